"""``rlvr sweep``: many runs of one configuration with varied values, and a table of them."""
