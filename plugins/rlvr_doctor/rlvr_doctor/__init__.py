"""Runs examined before they are spent: config, data, model files, memory and time."""
