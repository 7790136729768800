"""``rlvr run --resume``: continues a run."""
