"""``rlvr launch``: starts the processes of a run on this machine, on several, or by a plugin."""
