"""The faults, by subject."""
