"""Trackers of tools that few have."""
