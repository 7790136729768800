"""``rlvr list``, ``rlvr plugins`` and ``rlvr doctor``: what is installed on this machine."""
