"""The bridges that a program of somebody else's imports, from ``rlvr_core.api``."""

from rlvr_env.bridges.lm_eval import lm_eval_metric
from rlvr_env.bridges.trl import trl_reward
from rlvr_env.bridges.verifiers import verifiers_environment

__all__ = ["lm_eval_metric", "trl_reward", "verifiers_environment"]
