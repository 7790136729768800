"""``rlvr launch``: several processes on this machine, on several, or where a plugin knows."""
