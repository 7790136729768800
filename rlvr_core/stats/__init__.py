"""Means with their intervals, and tests of whether figures differ."""
