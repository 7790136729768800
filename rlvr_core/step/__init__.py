"""The training half of a step: rows, log-probs, losses and the update."""
