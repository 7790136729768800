"""Versions that images are built with."""
