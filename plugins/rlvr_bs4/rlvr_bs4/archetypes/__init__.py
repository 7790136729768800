"""The kinds of tasks, one module to a family."""
