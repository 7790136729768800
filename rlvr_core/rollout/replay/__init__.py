"""Groups that are trained on in more than one step (``max_reads`` of a sampler)."""
