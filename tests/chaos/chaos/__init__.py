"""The chaos suite: one fault a run, and what the run said of it."""
