"""Engines that generate text, and the weight sync."""
