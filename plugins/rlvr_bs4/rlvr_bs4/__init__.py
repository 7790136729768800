"""A world of generated web pages with questions about them, for rlvr."""
