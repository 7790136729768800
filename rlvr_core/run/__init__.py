"""The training run: preparation, steps, records and a clean end."""
