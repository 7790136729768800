"""rlvr: reinforcement learning with verifiable rewards.

What a plugin imports is in ``rlvr_core.api``.
"""

__version__ = "0.1.0"
