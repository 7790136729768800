"""Rollouts by actors on a Ray cluster, and runs submitted as Ray jobs."""
