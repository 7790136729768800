"""The sandboxes of this machine: the choice, and the attacks that each does not stop."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rlvr_code.sandbox.launch import Plan, Variant, available
from rlvr_code.sandbox.limits import Limits
from rlvr_code.sandbox.server import BrokenError, Run, Server
from rlvr_core.api import Finding, MachineError

Choice = Literal["auto", "bwrap", "namespaces", "landlock", "docker", "podman", "unsafe"]
ORDER: tuple[Variant, ...] = ("bwrap", "namespaces", "landlock", "podman", "docker")
"""Backends that ``auto`` tries, in this order; never ``unsafe``."""

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_known: dict[Plan, str] = {}

_KERNEL = "a fault of the kernel itself"
_NAMES = "names, sizes and dates of files outside can be asked for, though not their content"
_IMAGE = "programs may read the image; without Landlock the container's own /proc, too"
WEAKNESSES: dict[Variant, tuple[str, ...]] = {
    "bwrap": (_KERNEL,),
    "namespaces": (_KERNEL,),
    "landlock": (
        _KERNEL,
        _NAMES,
        "neither the number nor the sum of a program's files is limited, only each one's size, and "
        "the time, to which their removal counts",
        "programs can have one process only",
    ),
    "docker": (_KERNEL, _IMAGE, "this project's tests have not been run with docker, only podman"),
    "podman": (_KERNEL, _IMAGE),
    "unsafe": ("anything: programs run as you, with your files, processes and network",),
}
"""Attacks that each backend does not stop."""

MEANS: dict[Variant, str] = {
    "bwrap": "bubblewrap's namespaces, Landlock where there is, seccomp",
    "namespaces": "namespaces of our own making, Landlock, seccomp; needs no program",
    "landlock": "Landlock and seccomp alone, where namespaces are forbidden",
    "docker": "a container without network, seccomp, Landlock where there is",
    "podman": "a container without network, seccomp, Landlock where there is",
    "unsafe": "limits only; has to be asked for by name",
}

_TRY = "print(6 * 7)"


@dataclass(frozen=True, slots=True)
class Found:
    """The result of trying a backend.

    Attributes:
        variant: Its name.
        missing: Why it cannot be had; empty if it works.
    """

    variant: Variant
    missing: str

    @property
    def works(self) -> bool:
        """Whether it can be used."""
        return not self.missing


def choose(backend: Choice, **options: Any) -> Plan:
    """The plan for a backend, tried out once per process.

    Args:
        backend: A name, or ``auto`` for the first of ``ORDER`` that works.
        options: See ``Plan.make``.

    Raises:
        MachineError: If it does not work, or none does.
    """
    python = options.pop("python", None)
    variants = ORDER if backend == "auto" else (backend,)
    tried = []
    for variant in variants:
        plan = Plan.make(variant, python, **options)
        missing = missing_for(plan)
        if not missing:
            say = _log.warning if variant == "unsafe" else _log.info
            say("programs run in the sandbox %s: %s", variant, MEANS[variant])
            return plan
        tried.append(f"{variant}: {missing}")
    raise MachineError(
        f"no sandbox for programs: {'none of them works here' if backend == 'auto' else backend}",
        remedy=(
            *tried,
            "install bubblewrap, or allow user namespaces; rlvr doctor says what is there",
            "backend: unsafe runs programs without any sandbox",
        ),
    )


def missing_for(plan: Plan) -> str:
    """Empty if a plan works here, else why not; tried once per process."""
    with _lock:
        if plan not in _known:
            _known[plan] = available(plan) or _try(plan)
        return _known[plan]


def survey(python: str | None = None) -> list[Found]:
    """Every backend, tried out, with an interpreter or this one."""
    plans = [Plan.make(variant, python) for variant in get_args(Variant)]
    return [Found(plan.variant, missing_for(plan)) for plan in plans]


def findings() -> list[Finding]:
    """Every backend for ``rlvr doctor``: whether it works, and what it does not stop."""
    tried = survey()
    chosen = next(
        (
            backend.variant
            for name in ORDER
            for backend in tried
            if backend.variant == name and backend.works
        ),
        None,
    )
    lines = []
    for backend in tried:
        id_ = f"sandbox/{backend.variant}"
        if not backend.works:
            lines.append(Finding(id_, "note", f"not here: {backend.missing}"))
            continue
        chosen_words = " and is taken" if backend.variant == chosen else ""
        weak = "; ".join(f"does not stop: {weakness}" for weakness in WEAKNESSES[backend.variant])
        lines.append(Finding(id_, "ok", f"works{chosen_words}: {MEANS[backend.variant]}", weak))
    return lines


def _try(plan: Plan) -> str:
    limits = Limits(wall_seconds=30.0)
    try:
        server = Server(plan)
        try:
            server.open("script", _TRY.encode(), {}, limits)
            result = Run(server, limits).finish()
        finally:
            server.close()
    except BrokenError as error:
        return " ".join(str(error).split())[-300:]
    if result.stdout != "42\n":
        return f"a first program failed: {' '.join(result.stderr.split())[-300:]}"
    return ""
