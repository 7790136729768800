"""The launcher ``core/local``: several processes on this machine."""

from __future__ import annotations

from rlvr_core.api import LaunchPlan, LaunchRequest
from rlvr_core.launch.processes import Nodes, ProcessConfig, process_plan, supervise


class LocalLauncher:
    """Starts processes on this machine; the command waits for them."""

    class Config(ProcessConfig):
        """Options of ``core/local``."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """Return what would be started; see ``Launcher.plan``."""
        return process_plan("core/local", self._config, request, Nodes())

    def submit(self, plan: LaunchPlan) -> int:
        """Start the processes and wait; see ``Launcher.submit``."""
        return supervise(plan)
