"""Helpers for tests of rlvr and of plugins: fixtures, a random model, a clock, a lab of runs."""
