"""Tiny models, which rlvr trains on a CPU when a config names one."""
