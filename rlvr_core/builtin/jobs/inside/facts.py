"""What one process says of itself and its machine."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlvr_core.api import RlvrError
from rlvr_core.api.services import Resolved, code_hash, package_hash, versions
from rlvr_core.builtin.jobs.inside.wheels import driver_cuda, driver_number, vllm_built
from rlvr_core.builtin.jobs.mirror import probe

_SHARED_MEMORY = Path("/dev/shm")
_OWN = ("run.dir",)
"""Keys that each machine may have its own value of."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A process and its machine.

    Attributes:
        rank: The process.
        machine: Number of its machine, from 0.
        host: The machine's name.
        first: Whether it is the machine's first process; it alone says what follows ``archs``.
        cuda: CUDA that torch is built for; empty for a build for CPUs.
        torch: Version of torch.
        driver: CUDA of the driver; empty without one.
        driver_number: Number of the driver.
        gpu: Name of the process's GPU; empty without one.
        capability: Its compute capability.
        archs: Architectures that torch is built for.
        versions: Of Python and libraries.
        code: Hash of each package and component.
        config: Hash of each value of the configuration.
        vllm: Version, CUDA and torch that vLLM was built for, where the config names it.
        shared_memory: Free bytes of /dev/shm; None without it.
        scratch: The folder for temporary files, and why nothing can be written there.
        scratch_free: Free bytes there.
        store: Why ``run.mirror`` does not work from here; empty if it does, or was not tried.
    """

    rank: int
    machine: int
    host: str
    first: bool
    cuda: str
    torch: str
    driver: tuple[int, ...]
    driver_number: str
    gpu: str
    capability: tuple[int, ...]
    archs: tuple[str, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    vllm: tuple[str, ...] = ()
    shared_memory: int | None = None
    scratch: tuple[str, str] = ("", "")
    scratch_free: int = 0
    store: str = ""

    def as_json(self) -> str:
        """Return them as text."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str | bytes) -> Facts:
        """Return what ``as_json`` has made text of."""
        made: dict[str, Any] = json.loads(text)
        tuples = {key: tuple(value) for key, value in made.items() if isinstance(value, list)}
        return cls(**(made | tuples))


def facts_here(resolved: Resolved) -> Facts:
    """Look at this process and its machine."""
    import torch

    environment = os.environ
    local, rank = int(environment.get("LOCAL_RANK", "0")), int(environment.get("RANK", "0"))
    gpu, capability = "", (0, 0)
    if torch.cuda.is_available() and local < torch.cuda.device_count():
        torch.cuda.set_device(local)  # or every process would take memory of the first
        gpu, capability = torch.cuda.get_device_name(local), torch.cuda.get_device_capability(local)
    machine, first = int(environment.get("GROUP_RANK", "0")), local == 0
    more = _of_machine(resolved, machine) if first else dict[str, Any]()
    return Facts(
        rank=rank,
        machine=machine,
        host=socket.gethostname(),
        first=first,
        cuda=torch.version.cuda or "",
        torch=f"torch {torch.__version__}",
        driver=() if _hidden() else driver_cuda() or (),
        driver_number=driver_number(),
        gpu=gpu,
        capability=capability if gpu else (),
        archs=tuple(torch.cuda.get_arch_list()),
        **more,
    )


def _of_machine(resolved: Resolved, machine: int) -> dict[str, Any]:
    """What is the same for all processes of a machine."""
    import torch

    folder = Path(tempfile.gettempdir())
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    found: dict[str, Any] = {
        "shared_memory": shutil.disk_usage(_SHARED_MEMORY).free
        if _SHARED_MEMORY.is_dir()
        else None,
        "scratch": (str(folder), _unwritable(folder)),
        "scratch_free": shutil.disk_usage(folder).free,
        "vllm": vllm_built() if torch.version.cuda and _may_take_vllm(resolved) else (),
    }
    if several:  # nobody to compare with otherwise
        found["versions"], found["code"] = _versions(resolved), dict(_code(resolved))
        found["config"] = dict(values_of(resolved.dump()))
    mirror = resolved.config.run.mirror
    if machine > 0 and mirror is not None:  # machine 0 tries it by itself, in the mirror
        try:
            probe(resolved.host.ask_store(mirror))
        except RlvrError as error:
            found["store"] = " ".join(str(error).split())
    return found


def _hidden() -> bool:
    """Whether the run is on the CPU because the user wants it there."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() in ("", "-1")


def _may_take_vllm(resolved: Resolved) -> bool:
    engine = resolved.config.engine.use
    return engine == "auto" or "vllm" in engine


def _versions(resolved: Resolved) -> dict[str, str]:
    """Versions of Python (without the patch), of the core, its plugins, and libraries."""
    made: dict[str, Any] = dict(versions(resolved.host.plugin_versions()))
    python = ".".join(str(made.pop("python")).split(".")[:2])
    rest = {**made.pop("plugins"), **made.pop("libraries"), **made}
    return {"python": python, **{name: str(value) for name, value in rest.items()}}


def _code(resolved: Resolved) -> Iterator[tuple[str, str]]:
    """Name and hash of the core, of each plugin, and of each component named by file or module."""
    modules = {one.module.partition(".")[0] for one in resolved.host.records if one.module}
    for package in sorted({"rlvr_core", *modules}):
        yield package, package_hash(package) or ""
    for name, target in resolved.sources(()).items():
        yield Path(name).name, code_hash(name, target) or ""


def values_of(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield key and hash of each value of a configuration; values themselves are sent nowhere.

    Of an absolute path only its last name counts: machines may have things in different places.
    """
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from values_of(below, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from values_of(below, f"{path}.{index}")
    elif path not in _OWN:
        compared = Path(value).name if isinstance(value, str) and value.startswith("/") else value
        text = json.dumps(compared, sort_keys=True, default=str)
        yield path, hashlib.sha256(text.encode()).hexdigest()[:12]


def _unwritable(folder: Path) -> str:
    """Why no file can be written there; empty if it can."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"rlvr")
            file.flush()
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""
