"""RMS norms of eager layers by torch's fused kernel, on a GPU."""
