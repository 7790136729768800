"""A frozen reference in host memory, for train.reference.offload."""
