"""Tiny models that a run makes for itself, and the fast path that runs them on a CPU."""
