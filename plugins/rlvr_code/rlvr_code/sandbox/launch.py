"""How each backend starts the first process of a sandbox, and with what settings."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import rlvr_code.inside
from rlvr_code.inside import kernel
from rlvr_code.inside.room import WORK
from rlvr_code.sandbox.folders import WorkFolder
from rlvr_code.sandbox.layout import Layout, layout
from rlvr_code.sandbox.limits import MIB

Variant = Literal["bwrap", "namespaces", "landlock", "docker", "podman", "unsafe"]

_BOOT = """
import importlib.abc, importlib.util, json, os, sys
def read(n):
    data = b""
    while len(data) < n:
        part = os.read(0, n - len(data))
        if not part: os._exit(1)
        data += part
    return data
given = json.loads(read(int.from_bytes(read(4), "big")))
class Sent(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def find_spec(self, name, path=None, target=None):
        if name in given["sources"]:
            package = name in ("rlvr_code", "rlvr_code.inside")
            return importlib.util.spec_from_loader(name, self, is_package=package)
    def get_source(self, name): return given["sources"][name]
sys.meta_path.insert(0, Sent())
from rlvr_code.inside.zygote import main
main(given["spec"])
"""

_FLAGS = ("-S", "-s", "-P", "-B", "-X", "utf8")
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "LANG": "C.UTF-8",
    "PATH": "/usr/bin:/bin",
    "MALLOC_ARENA_MAX": "1",  # an arena for each thread would use up the address space
}
_INODES = 10_000
_TASKS = 1024
"""Maximum processes, threads and open files of a container; programs have lower limits."""
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")

WARM = """
abc argparse array ast bisect builtins calendar cmath collections collections.abc contextlib copy
csv dataclasses datetime decimal enum fractions functools gc hashlib heapq inspect io itertools json
math numbers operator os queue random re resource statistics string struct sys textwrap threading
time traceback types typing unicodedata uuid warnings weakref zlib
"""
"""Modules of the library that programs are likely to import, imported once for all of them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to start servers of one kind.

    Attributes:
        variant: What holds the programs in.
        layout: The interpreter; unused in containers.
        disk_mb: Room for the files of one program.
        packages: Folders with packages that programs may import.
        warm: Modules of these packages to import once for all programs.
        show: More paths that programs may read, and run.
        image: Of containers.
    """

    variant: Variant
    layout: Layout
    disk_mb: int = 64
    packages: tuple[str, ...] = ()
    warm: tuple[str, ...] = ()
    show: tuple[str, ...] = ()
    image: str = "python:3.11-slim"

    @classmethod
    def make(cls, variant: Variant, python: str | None, **rest: Any) -> Plan:
        """A plan for an interpreter, by default this one."""
        more = (*rest.get("packages", ()), *rest.get("show", ()))
        return cls(variant, layout(python, more), **rest)


@dataclass(slots=True)
class Launched:
    """A started server.

    Attributes:
        process: What was started; the first process inside is its child, or itself.
        errors: What it writes to standard error.
        folder: Its folder on this machine, to be closed in the end, if there is one.
        container: Name of its container, if it is one.
    """

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    folder: WorkFolder | None = None
    container: tuple[str, str] | None = field(default=None)


def launch(plan: Plan) -> Launched:
    """Start a server; it says for itself when it is ready.

    Raises:
        OSError: If there is no such program.
    """
    contained = plan.variant in ("docker", "podman")
    uid = _unused_uid() if contained or os.geteuid() == 0 else os.geteuid()
    folder = container = None
    work = WORK
    if plan.variant in ("landlock", "unsafe"):
        folder = WorkFolder(os.geteuid() if plan.variant == "unsafe" else uid)
        work = str(folder.path)
    if contained:
        container = (plan.variant, f"rlvr-code-{os.urandom(8).hex()}")
    spec = _spec(plan, work, uid)
    errors = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the server
    process = subprocess.Popen(
        _command(plan, container, uid),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=_ENVIRONMENT if container is None else dict(os.environ),
        cwd="/",
        start_new_session=True,
        bufsize=0,
    )
    launched = Launched(process, errors, folder, container)
    text = json.dumps({"sources": _sources(), "spec": spec}).encode()
    with contextlib.suppress(BrokenPipeError):  # whoever waits for it to be ready will see
        process.stdin.write(struct.pack("!I", len(text)) + text)  # type: ignore[union-attr]
    return launched


def _spec(plan: Plan, work: str, uid: int) -> Mapping[str, Any]:
    confined = plan.variant != "unsafe"
    return {
        "room": plan.variant == "namespaces",
        "show": plan.layout.show,
        "hide": plan.layout.hide,
        "disk_bytes": plan.disk_mb * MIB,
        "disk_inodes": _INODES,
        # bubblewrap and podman cannot have a file system limit them
        "count_files": plan.variant in ("bwrap", "docker", "podman"),
        "uid": uid,
        "gid": uid,
        "drop": confined,
        # a limit on tasks counts those of the user, so it needs one, or a user namespace, to itself
        "own_user": plan.variant in ("bwrap", "namespaces", "docker", "podman")
        or (plan.variant == "landlock" and os.geteuid() == 0),
        "work": work,
        "confined": confined,
        "landlock": confined and "must" if plan.variant in ("namespaces", "landlock") else confined,
        "readable": _readable(plan),
        "path": list(plan.packages),
        "execute": bool(plan.show),
        "warm": [*WARM.split(), *plan.warm],
    }


def _readable(plan: Plan) -> dict[str, int]:
    """Path to Landlock's rights on it."""
    read = kernel.READ_FILE | kernel.READ_DIR | kernel.EXECUTE
    device = kernel.READ_FILE | kernel.WRITE_FILE
    paths = {f"/dev/{name}": device for name in ("null", "zero", "random", "urandom")}
    if plan.variant == "landlock":
        paths |= dict.fromkeys(plan.layout.readable(), read)
        paths[plan.layout.stdlib] = kernel.READ_DIR
        return paths
    if plan.variant in ("docker", "podman"):
        return paths | dict.fromkeys(("/usr", "/lib", "/lib64", "/etc/ld.so.cache"), read)
    return paths | dict.fromkeys(plan.layout.show, read)


def _command(plan: Plan, container: tuple[str, str] | None, uid: int) -> list[str]:
    if container is not None:
        return _container(plan, *container, uid)
    python = [plan.layout.python, *_FLAGS, "-c", _BOOT]
    return [*_bwrap(plan), *python] if plan.variant == "bwrap" else python


def _bwrap(plan: Plan) -> list[str]:
    command = [
        str(shutil.which("bwrap")),
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
    ]
    command += ["--unshare-cgroup-try", "--as-pid-1", "--clearenv"]
    if os.geteuid() == 0:
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
    for name, value in _ENVIRONMENT.items():
        command += ["--setenv", name, value]
    shown = [*plan.layout.show, "/dev/null"]
    for folder in sorted({str(parent) for path in shown for parent in Path(path).parents} - {"/"}):
        command += ["--perms", "0755", "--dir", folder]
    for path in plan.layout.show:
        if Path(path).is_symlink():
            command += ["--symlink", str(Path(path).readlink()), path]
        else:
            command += ["--ro-bind", path, path]
    for path in plan.layout.hide:
        command += ["--tmpfs", path, "--remount-ro", path]
    for name in ("null", "zero", "random", "urandom"):
        command += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    size = str(plan.disk_mb * MIB)
    command += ["--perms", "1777", "--size", size, "--tmpfs", WORK]
    if not any(path.startswith("/tmp/") for path in plan.layout.show):
        command += ["--symlink", WORK, "/tmp"]
    return [*command, "--remount-ro", "/", "--chdir", WORK, "--"]


def _container(plan: Plan, tool: str, name: str, uid: int) -> list[str]:
    command = [tool, "run", "--rm", "--interactive", "--name", name, "--pull", "never"]
    command += ["--network", "none", "--ipc", "private", "--read-only", "--cap-drop", "ALL"]
    command += ["--security-opt", "no-new-privileges", "--user", f"{uid}:{uid}"]
    command += ["--pids-limit", str(_TASKS), "--ulimit", "core=0:0"]
    for kind in ("nofile", "nproc"):  # the tools ask for more than some hosts may give
        most = resource.getrlimit(getattr(resource, f"RLIMIT_{kind.upper()}"))[1]
        most = _TASKS if most == resource.RLIM_INFINITY else min(most, _TASKS)
        command += ["--ulimit", f"{kind}={most}:{most}"]
    command += ["--tmpfs", f"{WORK}:rw,nosuid,nodev,size={plan.disk_mb}m,mode=1777"]
    # the tools hand in the caller's proxies, passwords and all
    hidden = dict.fromkeys((*_PROXIES, *map(str.upper, _PROXIES)), "")
    for key, value in (_ENVIRONMENT | hidden).items():
        command += ["--env", f"{key}={value}"]
    for path in plan.packages:
        command += ["--volume", f"{path}:{path}:ro"]
    return [*command, "--workdir", WORK, plan.image, "python3", *_FLAGS, "-c", _BOOT]


def _sources() -> dict[str, str]:
    """Text of every module that runs inside, by name."""
    folder = Path(rlvr_code.inside.__file__).parent
    sources = {f"rlvr_code.inside.{file.stem}": file.read_text() for file in folder.glob("*.py")}
    sources["rlvr_code.inside"] = sources.pop("rlvr_code.inside.__init__")
    return sources | {"rlvr_code": ""}


def _unused_uid() -> int:
    """A user id that nothing else has, so that limits and signals reach one server only."""
    while True:
        uid = random.SystemRandom().randrange(20_000, 60_000)
        try:
            pwd.getpwuid(uid)
        except KeyError:
            return uid


def available(plan: Plan) -> str:
    """Empty if the machine may have it, else what is missing. Starts nothing."""
    variant = plan.variant
    if sys.platform != "linux" and variant not in ("docker", "podman", "unsafe"):
        return "needs Linux"
    if variant in ("bwrap", "docker", "podman"):
        return "" if shutil.which(variant) else f"no program {variant}"
    if variant in ("namespaces", "landlock") and kernel.landlock_version() == 0:
        return "the kernel has no Landlock (Linux 5.13), or it is not switched on"
    if variant == "landlock" and os.geteuid() == 0:
        for folder in Path(plan.layout.python).parents:
            if not folder.stat().st_mode & 0o001:
                return f"{plan.layout.python} lies in {folder}, where only root may go"
    return ""
