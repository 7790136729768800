"""What a plugin tests its verifiers and environments with; `rlvr_core.testing` hands it on."""
