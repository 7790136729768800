"""Learning from given answers."""
