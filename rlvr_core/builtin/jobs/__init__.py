"""Launching and following runs elsewhere: Accelerate, Slurm, stores, mirrors."""
