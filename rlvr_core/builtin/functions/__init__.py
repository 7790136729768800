"""Plain Python functions as the parts of the algorithm: advantages, losses, schedules."""
