"""Rollouts by actors on a Ray cluster."""
