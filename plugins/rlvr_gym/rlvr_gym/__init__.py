"""reasoning-gym as data sets and verifiers of rlvr."""
