"""Reports about a run, read from its folder: the view, `RESULTS.md`, and the command `show`."""
