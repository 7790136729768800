"""``rlvr plan``: memory and time of a run on GPUs that are not here, by formulas."""
