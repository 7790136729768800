"""The commands that launch and follow jobs."""
