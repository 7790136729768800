"""What tests of rlvr and of plugins use: fixtures, a random model, a clock, a lab of runs."""
