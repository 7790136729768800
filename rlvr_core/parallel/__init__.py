"""Process groups, DDP, FSDP2, the GPUs of this machine, and whole models on disk."""
