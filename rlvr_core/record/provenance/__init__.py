"""``run.json``: hashes of a run's code, model and environment, and its warnings."""
