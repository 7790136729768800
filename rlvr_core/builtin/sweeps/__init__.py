"""``rlvr sweep``: many runs of one configuration with other values, and one table of them."""
