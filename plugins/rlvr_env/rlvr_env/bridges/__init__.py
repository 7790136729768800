"""What other programs take of rlvr, and rlvr of them: see ``docs/bridges.md``."""
