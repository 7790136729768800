"""Evaluation: ``rlvr eval``, stored results, and evaluations within a run."""
