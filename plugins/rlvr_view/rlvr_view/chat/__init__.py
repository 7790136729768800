"""``rlvr chat``: a conversation with a model or a run's checkpoint in the terminal."""
