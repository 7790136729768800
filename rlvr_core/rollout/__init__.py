"""Turns problems into judged groups of completions."""
