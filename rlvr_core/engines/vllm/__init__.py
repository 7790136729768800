"""vLLM in the training process, and the weight files that other engines use too."""
