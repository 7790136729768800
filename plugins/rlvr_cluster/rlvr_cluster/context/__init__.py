"""Context parallelism: processes that split the tokens of each micro-batch."""
