"""``rlvr export``: a checkpoint for other programs, the Hub and llama.cpp."""
