"""Advantages, policy losses and their pieces."""
