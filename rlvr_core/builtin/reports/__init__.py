"""What a run did, read from its folder: the view, `RESULTS.md`, and the command `show`."""
