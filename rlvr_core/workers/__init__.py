"""Killable worker processes."""
