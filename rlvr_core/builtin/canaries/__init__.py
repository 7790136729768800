"""Guards of verdicts: known verdicts, repeated verdicts, and doubtful references."""
