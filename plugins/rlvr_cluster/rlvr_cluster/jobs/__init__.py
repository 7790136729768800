"""Jobs on Slurm and Ray: launching, staging, watching."""
