"""The launcher ``core/accelerate``: processes on several machines, started on each of them.

``accelerate launch`` itself starts one process where there is no GPU, and hides the run's exit
code; so what it would call, torch's elastic agent, is called here. Inside the processes Accelerate
finds what it would have set.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rlvr_core.api import ConfigError, LaunchPlan, LaunchRequest
from rlvr_core.builtin.jobs.processes import Nodes, ProcessConfig, process_plan, supervise


class AccelerateLauncher:
    """This machine's processes of a run on several machines; the command waits for them."""

    class Config(ProcessConfig):
        """Options of ``core/accelerate``; ``processes`` is the number on each machine."""

        nodes: Annotated[int, Field(gt=0)] = 1
        """Machines; the command is given once on each."""
        node_rank: Annotated[int, Field(ge=0)] = 0
        """This machine's number. Machine 0 has process 0, which writes the run's folder."""
        main_address: str | None = None
        """Name or address of machine 0, as the others reach it."""
        main_port: Annotated[int, Field(gt=0, lt=65536)] = 29500
        """A free port there, where the processes meet."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """What would be started on this machine; see ``Launcher.plan``.

        Raises:
            ConfigError: If the machines are not described.
        """
        config = self._config
        if config.node_rank >= config.nodes:
            raise ConfigError(
                f"node_rank is {config.node_rank}, and {config.nodes} machines are 0 to "
                f"{config.nodes - 1}",
                where="--node-rank",
            )
        if config.nodes == 1:
            return process_plan("core/accelerate", config, request, Nodes())
        if not config.main_address:
            raise ConfigError(
                "several machines have to know where machine 0 is",
                where="--main-address",
                remedy="say --main-address NAME, the same on all of them",
            )
        nodes = Nodes(config.nodes, config.node_rank, config.main_address, config.main_port)
        return process_plan("core/accelerate", config, request, nodes)

    def submit(self, plan: LaunchPlan) -> int:
        """Start this machine's processes and wait; see ``Launcher.submit``."""
        return supervise(plan)
