"""The built-in samplers."""
