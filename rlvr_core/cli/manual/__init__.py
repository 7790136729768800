"""``rlvr docs``: the documentation, whose pages messages name, wherever rlvr is installed."""
