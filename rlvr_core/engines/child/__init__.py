"""Generation that continues during training: buffer, replay, producers."""
