"""The launcher ``core/accelerate``: training processes on several machines, started on each.

``accelerate launch`` itself starts only one process if there is no GPU, and hides the run's exit
code; so torch's elastic agent, which it would call, is called directly. The processes get the
environment that Accelerate would have set.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rlvr_core.api import ConfigError, LaunchPlan, LaunchRequest
from rlvr_core.launch.processes import Nodes, ProcessConfig, process_plan, supervise


class AccelerateLauncher:
    """Starts this machine's processes of a multi-machine run; the command waits for them."""

    class Config(ProcessConfig):
        """Options of ``core/accelerate``; ``processes`` is the number on each machine."""

        nodes: Annotated[int, Field(gt=0)] = 1
        """Number of machines; the command is run once on each."""
        node_rank: Annotated[int, Field(ge=0)] = 0
        """This machine's number. Machine 0 has process 0, which writes the run's folder."""
        main_address: str | None = None
        """Name or address of machine 0, as the others reach it."""
        main_port: Annotated[int, Field(gt=0, lt=65536)] = 29500
        """A free port on machine 0, where the processes meet."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """Return what would be started on this machine; see ``Launcher.plan``.

        Raises:
            ConfigError: If the options do not describe the machines.
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
