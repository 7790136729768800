"""Looks for held-out problems among those that a model was trained on."""
