"""For authors of rlvr plugins: templates and conformance checks."""
