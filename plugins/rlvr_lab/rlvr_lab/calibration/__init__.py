"""Measures a judge before a run trains on it."""
