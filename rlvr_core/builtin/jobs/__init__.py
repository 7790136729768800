"""Runs elsewhere: launching with Accelerate and Slurm, stores and mirrors."""
