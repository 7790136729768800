"""Responses whose verdict is known, verdicts judged again, and references that groups doubt."""
