"""Training LoRA adapters, and exporting them."""
