"""Means with their intervals, and significance tests."""
