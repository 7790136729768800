"""Judges programs: by their output, by what their functions return, by assertions."""
