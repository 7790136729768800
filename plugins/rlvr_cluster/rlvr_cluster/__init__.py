"""Running rlvr elsewhere: Slurm, Ray, stores, launched jobs, sweeps."""
