"""Judging results: compare, pass@k, regrade, watch, other harnesses."""
