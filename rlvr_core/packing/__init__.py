"""Packs the rows of a micro-batch as one sequence without padding."""
