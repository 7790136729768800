"""Ends a run that waits for something that never comes."""
