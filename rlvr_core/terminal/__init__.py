"""Printing on the terminal: the display of a run, and the output of commands."""
