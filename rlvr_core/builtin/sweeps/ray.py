"""Runs of a sweep as tasks of a Ray cluster, each with its share of a node."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core import __version__
from rlvr_core.api import MachineError
from rlvr_core.api.services import is_secret
from rlvr_core.builtin.sweeps.processes import PATIENCE, POLL, child_command
from rlvr_core.builtin.sweeps.state import CONFIG_FILE, LOG_FILE

if TYPE_CHECKING:
    from rlvr_core.api.services import Host
    from rlvr_core.builtin.sweeps.processes import Job
    from rlvr_core.builtin.sweeps.trials import Run

WHERE = "--address"
RETRIES = 3
"""Maximum moves of a run to another node because its node was lost; it resumes there."""
_PASSED_ON = ("RLVR_PLUGINS", "VLLM_", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Environment variables passed on to runs, except those named like a secret."""
_ASK_AGAIN = 2.0
"""Seconds between two counts of the cluster's nodes."""


@contextmanager
def on_cluster(
    host: Host, address: str | None, needs: Mapping[str, float], most: int | None
) -> Iterator[Cluster]:
    """Use a running cluster for the block.

    Args:
        host: The plugins.
        address: ``host:port`` of its head; None for that of ``RAY_ADDRESS``, else for the one that
            runs on this machine.
        needs: Resources reserved for each run: ``CPU``, ``GPU``.
        most: Maximum runs at once; None for as many as the cluster has room for.

    Raises:
        RlvrError: If it cannot be reached, or no node has room for a run.
    """
    new = host.service("core/ray-connect")(address, "rlvr sweep --backend ray", WHERE)
    import ray

    try:
        cluster = Cluster({name: count for name, count in needs.items() if count}, most)
        if cluster.room() == 0:
            raise cluster.no_room()
        yield cluster
    finally:
        if new:
            ray.shutdown()


class Cluster:
    """A cluster that this process is connected to, for executing runs.

    Args:
        needs: Resources reserved for each run; not empty.
        most: Maximum runs at once; None for as many as there is room for.
    """

    def __init__(self, needs: Mapping[str, float], most: int | None) -> None:
        self._needs, self._most = needs, most
        self._room, self._counted = 0, float("-inf")

    def room(self) -> int:
        """Return how many runs the current nodes have room for together."""
        now = time.monotonic()
        if now - self._counted > _ASK_AGAIN:
            # 0.1 three times is more than 0.3
            fits = [
                min(int(node.get(name, 0) / count + 1e-9) for name, count in self._needs.items())
                for node in _nodes()
            ]
            self._room, self._counted = sum(fits), now
        return self._room if self._most is None else min(self._room, self._most)

    def no_room(self) -> MachineError:
        """Return the error for a cluster where no node has room for a run."""
        each = " and ".join(f"{count:g} {name}" for name, count in self._needs.items())
        have = [f"{node.get('CPU', 0):g} CPU and {node.get('GPU', 0):g} GPU" for node in _nodes()]
        return MachineError(
            f"no node of the Ray cluster has {each}, which each run is to have",
            where="--cpus, --gpus",
            remedy=(
                f"lower them: its nodes have {'; '.join(sorted(set(have))) or 'nothing'}",
                "or add a node: ray start --address=HEAD:6379",
            ),
        )

    def start(self, run: Run) -> Job:
        """Submit a run as a task."""
        import ray

        task = ray.remote(run_there).options(
            name=run.label,
            num_cpus=self._needs.get("CPU", 0),
            num_gpus=self._needs.get("GPU", 0),
            max_retries=RETRIES,
            scheduling_strategy="SPREAD",
        )
        environment = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(_PASSED_ON) and not is_secret(name)
        }
        text = run.file.read_text(encoding="utf-8")
        return _Task(task.remote(str(Path.cwd()), str(run.folder), text, environment, __version__))


@dataclass(slots=True)
class _Task:
    """A run submitted to Ray."""

    reference: Any
    fault: str | None = None

    def poll(self) -> int | None:
        import ray
        from ray.exceptions import RayError, TaskCancelledError

        ready, _ = ray.wait([self.reference], timeout=0)
        if not ready:
            return None
        try:
            code, self.fault = ray.get(self.reference)
        except TaskCancelledError:
            return 128 + signal.SIGTERM
        except RayError as error:
            self.fault = f"Ray has lost it: {error}"
            return 1
        return int(code)

    def why(self) -> str | None:
        return self.fault

    def terminate(self) -> None:
        import ray

        ray.cancel(self.reference)

    def kill(self) -> None:
        if self.poll() is None:
            import ray

            ray.cancel(self.reference, force=True)


def _nodes() -> list[Mapping[str, float]]:
    """Return the total resources of each living node."""
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def run_there(
    directory: str, folder: str, config: str, environment: Mapping[str, str], version: str
) -> tuple[int, str | None]:
    """Execute a run in a task, as a process that ends with the task.

    Args:
        directory: Working directory of the sweep.
        folder: The run's folder in the sweep, relative to ``directory``.
        config: Content of its config file.
        environment: Environment variables for it.
        version: Version of rlvr-core that started the sweep.

    Returns:
        The exit code of its process, and a reason that its log lacks.
    """
    if version != __version__:
        return 4, f"node {platform.node()} has rlvr-core {__version__}, and the sweep {version}"
    place = Path(directory) / folder
    try:
        if (place / CONFIG_FILE).read_text(encoding="utf-8") != config:
            return 4, f"node {platform.node()} has other files in {place}: {_SHARED}"
    except OSError as error:
        return 4, f"node {platform.node()} cannot read {place}: {error.strerror}; {_SHARED}"
    os.chdir(directory)
    with (place / LOG_FILE).open("ab") as log:
        process = subprocess.Popen(
            child_command(Path(folder)),
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while process.poll() is None:  # a wait could not be cancelled
                time.sleep(POLL)
        finally:
            _end(process)
    return process.wait(), None


_SHARED = "the sweep's folder has to be on a file system that all nodes share"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process if it still runs; it writes its checkpoint first."""
    process.terminate()
    try:
        process.wait(PATIENCE / 2)
    finally:
        process.kill()
