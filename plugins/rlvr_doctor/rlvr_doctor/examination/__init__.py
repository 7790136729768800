"""``rlvr doctor CONFIG`` and ``rlvr selftest CONFIG``: examine a run before it starts."""
