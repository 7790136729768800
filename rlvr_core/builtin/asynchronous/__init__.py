"""Generation that goes on while training runs: buffer, replay, producers."""
