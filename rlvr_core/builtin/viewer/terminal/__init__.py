"""The keyboard browser of ``rlvr view --terminal``."""
