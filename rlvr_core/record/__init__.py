"""The records of a run on disk."""
