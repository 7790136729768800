"""Environment of child processes that must not take part in the run's process group."""

from __future__ import annotations

import os


def apart() -> dict[str, str]:
    """Return the environment without the variables that make a process a rank of this run."""
    ranks = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK"}
    ranks |= {"MASTER_ADDR", "MASTER_PORT", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "ROLE_NAME"}
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ranks and not name.startswith(("TORCHELASTIC_", "ACCELERATE_"))
    }
