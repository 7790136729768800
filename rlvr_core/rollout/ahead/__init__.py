"""Rollouts ahead of the trainer, for ``train.max_staleness`` above 0."""
