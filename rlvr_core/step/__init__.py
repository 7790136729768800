"""The optimizer step."""
