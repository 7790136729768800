"""The chaos suite: one fault a run, and what the run said of it."""

import os

# runs are forks of a process that has computed: threads of OpenMP would not be there in a fork
os.environ["OMP_NUM_THREADS"] = "1"
