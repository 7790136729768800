"""Where rlvr runs: Linux, macOS as far as Linux can tell, and not Windows."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rlvr_core
from rlvr_core.cli.main import main

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "rlvr_core", *(one / one.name for one in (ROOT / "plugins").glob("rlvr_*"))]

LINUX_ONLY = {
    "os": [
        "copy_file_range", "eventfd", "fdatasync", "getresuid", "getxattr", "listxattr",
        "memfd_create", "pidfd_open", "pipe2", "posix_fadvise", "posix_fallocate",
        "sched_getaffinity", "sched_setaffinity", "sched_setscheduler", "setns", "setresuid",
        "setxattr", "splice", "unshare", "O_DIRECT", "O_PATH", "O_TMPFILE", "P_PIDFD",
    ],
    "fcntl": ["F_ADD_SEALS", "F_GETPIPE_SZ", "F_NOTIFY", "F_OFD_SETLK", "F_SETPIPE_SZ"],
    "resource": ["prlimit", "RLIMIT_NICE", "RLIMIT_OFILE", "RLIMIT_RTPRIO", "RUSAGE_THREAD"],
    "select": ["epoll"],
    "signal": ["SIGPWR", "SIGRTMAX", "SIGRTMIN", "SIGSTKFLT", "pidfd_send_signal", "sigtimedwait",
               "sigwaitinfo"],
    "socket": ["AF_ALG", "AF_NETLINK", "AF_PACKET", "AF_VSOCK", "SOCK_CLOEXEC", "SOCK_NONBLOCK",
               "SO_PEERCRED", "SOCK_SEQPACKET"],
    "time": ["CLOCK_BOOTTIME", "CLOCK_TAI"],
}  # fmt: skip
"""What Python has on Linux and not on macOS, of the modules that are used here; and one kind of
socket whose name macOS has, but not between processes."""

ALLOWED = {
    "rlvr_core/builtin/asynchronous/shared_weights.py": {"os.posix_fallocate"},  # shared memory
    "rlvr_core/record/manifest.py": {"os.sched_getaffinity"},  # os.cpu_count elsewhere
}
SANDBOX = ("plugins/rlvr_code/rlvr_code/sandbox/", "plugins/rlvr_code/rlvr_code/inside/")


def named(tree):
    """All ``module.name`` of a file, and what it imports from a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_what_only_linux_has_is_named_in_the_sandbox_and_shared_memory_alone():
    missing = {f"{module}.{name}" for module, names in LINUX_ONLY.items() for name in names}
    found = {}
    for source in SOURCES:
        for file in source.rglob("*.py"):
            path = str(file.relative_to(ROOT))
            if used := missing & set(named(ast.parse(file.read_text()))):
                found[path] = used
    outside = {path: used for path, used in found.items() if not path.startswith(SANDBOX)}
    assert outside == ALLOWED
    assert len(outside) < len(found), "the search finds what the sandbox uses"


IMPORT_ALL = """
import importlib, pkgutil, sys
import datasets, torch, transformers  # built for Linux: they may use all of it
import psutil, click, rich, yaml, pydantic
for module, names in LINUX_ONLY.items():
    for name in names:
        vars(importlib.import_module(module)).pop(name, None)
absent = set()
for package in PACKAGES:
    root = importlib.import_module(package)
    for one in pkgutil.walk_packages(root.__path__, f"{package}."):
        if one.name.endswith("__main__") or one.name.startswith(SKIPPED):
            continue
        try:
            importlib.import_module(one.name)
        except ModuleNotFoundError as error:  # an extra that is not installed here
            absent.add(error.name.split(".")[0])
print(len(sys.modules), sorted(absent))
assert not absent & {"fcntl", "resource", "rlvr_core", *PACKAGES}
import os
assert "sched_getaffinity" not in vars(os)
"""


@pytest.mark.slow
def test_every_module_is_imported_without_what_only_linux_has():
    packages = [source.name for source in SOURCES]
    skipped = ("rlvr_code.sandbox", "rlvr_code.inside", "rlvr_core.testing.gpu")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"LINUX_ONLY = {LINUX_ONLY!r}\nPACKAGES = {packages!r}\nSKIPPED = {skipped!r}\n"
            + IMPORT_ALL,
        ],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("words", [["run", "config.yaml"], ["plugins", "list"], ["--help"]])
def test_windows_is_refused_with_a_sentence(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "win32")
    assert main(words) == 4
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "error: rlvr runs on Linux and macOS, not on Windows",
        "  use it in WSL 2, which is Linux",
    ]


@pytest.mark.parametrize("name", ["train", "evaluate", "RunView"])
def test_windows_is_refused_from_python_too(name, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delitem(vars(rlvr_core), name, raising=False)
    with pytest.raises(ImportError, match="rlvr runs on Linux and macOS, not on Windows"):
        getattr(rlvr_core, name)


WITHOUT_POSIX = """
import sys
import click  # has code of its own for Windows
class NotThere:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource", "pwd", "grp", "termios", "_posixsubprocess"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, NotThere())
sys.platform = "win32"
from rlvr_core.cli.main import main
sys.exit(main(["run", "x.yaml"]))
"""


def test_the_refusal_comes_before_anything_that_windows_lacks():
    done = subprocess.run([sys.executable, "-c", WITHOUT_POSIX], capture_output=True, text=True)
    assert done.returncode == 4
    assert done.stderr.startswith("error: rlvr runs on Linux and macOS")
    assert "Traceback" not in done.stderr
