"""``rlvr new``: the package of a plugin, ready to be installed, tested and changed."""
