"""More guards for rlvr: verifiers, formulas of the step, seeds, collapse, GPU memory."""
