"""Checks of a model before training: whether its files are complete, and its figures."""
