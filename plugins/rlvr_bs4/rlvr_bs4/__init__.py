"""Generated web pages with questions about them, for rlvr."""
