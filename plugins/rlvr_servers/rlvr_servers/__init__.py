"""vLLM servers as an engine: a fleet of processes, and how weights reach them."""
