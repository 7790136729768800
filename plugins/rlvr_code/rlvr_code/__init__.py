"""Code for rlvr: a sandbox, data sets and verifiers for what models write."""
