"""Tasks of lm-evaluation-harness through our engines."""
