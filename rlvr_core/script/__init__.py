"""``rlvr_core.train``: runs from Python, with functions of the running program."""
