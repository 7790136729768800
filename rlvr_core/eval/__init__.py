"""Evaluation: tasks, stored results, comparisons, pass@k, contamination."""
