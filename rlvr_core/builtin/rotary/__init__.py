"""Positions of queries and keys, in fewer kernels."""
