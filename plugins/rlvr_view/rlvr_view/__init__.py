"""Shows runs of rlvr: reports, rollouts in a browser, a chat with a checkpoint."""
