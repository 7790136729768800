"""What shows the progress of a run."""
