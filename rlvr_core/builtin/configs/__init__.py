"""``rlvr config``: checks, explains and documents configurations; the words of its errors."""
