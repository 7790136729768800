"""Process groups, DDP and FSDP2."""
