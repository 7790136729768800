"""How a run that was begun before goes on: ``rlvr run --resume``."""
