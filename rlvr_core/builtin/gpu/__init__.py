"""What is measured and tried on a GPU: the numbers of a step, the largest micro-batch, the card."""
