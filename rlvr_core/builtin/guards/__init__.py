"""Guards that a run asks for."""
