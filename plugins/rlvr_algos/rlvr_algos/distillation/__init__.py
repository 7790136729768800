"""Learning from a teacher: its losses, its prompts and its most likely tokens."""
