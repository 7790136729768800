"""The records of a run on disk, and reading them back."""
