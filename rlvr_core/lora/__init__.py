"""Training and exporting LoRA adapters."""
