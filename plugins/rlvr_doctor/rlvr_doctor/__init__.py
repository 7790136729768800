"""Examining a run before it is spent: config, data, model files, memory and time."""
