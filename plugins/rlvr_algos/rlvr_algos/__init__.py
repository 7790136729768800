"""More algorithms for rlvr: losses, distillation, advantage estimators, optimizers."""
