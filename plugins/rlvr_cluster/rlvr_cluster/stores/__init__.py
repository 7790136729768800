"""Copies of runs in stores: mirror, ownership, fetching."""
