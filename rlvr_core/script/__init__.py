"""``rlvr_core.train`` and ``evaluate``: runs started from Python code."""
