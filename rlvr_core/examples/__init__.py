"""``rlvr examples``: the examples that come with rlvr, to look at and to copy."""
