"""Give wrong inputs to the real command line, each in a fresh folder, and look at what it says.

Each case runs in a forked process, so that the libraries are imported once.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parents[2] / "wrong_inputs"
PARTS = ("what", "where", "do")
PATIENCE = 240
BASE = """\
run:
  name: base
model:
  path: model
data:
  sources:
    - use: core/jsonl
      with:
        path: data.jsonl
        prompt: question
        id: id
        verifier: core/exact
sampling:
  {n: 4, max_tokens: 6}
sampler: {use: shuffle, with: {drop_zero_variance: false}}
engine: transformers
loss:
  use: dapo
train:
  steps: 2
  prompts_per_step: 2
  lr: 1.0e-3
  warmup_steps: 1
guards: [{use: defaults, off: true}]
checkpoint: {every: 2}
"""
ROW = '{{"id": "p{0}", "question": "Say {0}.", "answer": "x"}}\n'


@dataclass(frozen=True)
class Outcome:
    """What came of a case.

    Attributes:
        name: Its name.
        code: Exit code.
        text: What was printed.
        parts: Which of ``PARTS`` the message has.
        faults: What else is wrong: the exit code, a traceback, files that are left.
    """

    name: str
    code: int
    text: str
    parts: tuple[str, ...]
    faults: tuple[str, ...]


def cases(file: str) -> list[dict[str, Any]]:
    """Read a table."""
    return list(yaml.safe_load((HERE / file).read_text(encoding="utf-8")))


def try_case(case: Mapping[str, Any], folder: Path, model: Path) -> Outcome:
    """Carry out a case in an empty folder; ``model`` is a sound model."""
    folder.mkdir()
    _prepare(case, folder, model)
    before = _files(folder)
    code, text = _carried_out(case, folder)
    left = _files(folder) - before - set(case.get("kept", ()))
    left = {one for one in left if not any(one.startswith(k + "/") for k in case.get("kept", ()))}
    faults = []
    if code != case.get("code", 2):
        faults.append(f"exit code {code}")
    if "Traceback (most recent call last)" in text:
        faults.append("traceback")
    if left:
        faults.append(f"left: {', '.join(sorted(left)[:4])}")
    flat = " ".join(text.split())
    parts = tuple(one for one in PARTS if re.search(str(case[one]), flat, re.IGNORECASE))
    return Outcome(case["name"], code, text, parts, tuple(faults))


def _prepare(case: Mapping[str, Any], folder: Path, model: Path) -> None:
    text = BASE
    for old, new in case.get("edit", {}).items():
        assert old in text, f"{case['name']}: base.yaml has no '{old}'"
        text = text.replace(old, new)
    (folder / "base.yaml").write_text(text)
    (folder / "data.jsonl").write_text("".join(ROW.format(n) for n in range(8)))
    shutil.copytree(model, folder / "model")
    for name, content in case.get("files", {}).items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(content)
    if "sh" in case:
        subprocess.run(["bash", "-ec", case["sh"]], cwd=folder, check=True)


def _files(folder: Path) -> set[str]:
    found = {str(one.relative_to(folder)) for one in folder.rglob("*")}
    return {one for one in found if "__pycache__" not in one}


def _carried_out(case: Mapping[str, Any], folder: Path) -> tuple[int, str]:
    with tempfile.TemporaryDirectory(prefix="wrong-home-") as home:
        Path(home).chmod(0o777)
        env = {"HOME": home, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "HF_HUB_OFFLINE": "1"}
        env |= case.get("env", {})
        out = Path(home) / "out.txt"
        child = os.fork()
        if child == 0:
            _become(case, folder, env, out)
        code = _waited(child)
        return code, out.read_text(encoding="utf-8", errors="replace")


def _become(case: Mapping[str, Any], folder: Path, env: Mapping[str, str], out: Path) -> None:
    """Be the process of a case; does not return."""
    code = 70
    try:
        os.setsid()
        file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # pytest has put objects of its own there
        sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
        os.chdir(folder)
        os.environ.update(env)
        for name in [name for name, value in os.environ.items() if value == "-"]:
            del os.environ[name]
        if case.get("user") and os.geteuid() == 0:
            _heed_permissions()
        if case.get("alone"):
            os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            code = subprocess.run(["bash", "-c", case["run"]], check=False).returncode
        else:
            from rlvr_core.cli.main import main

            words = shlex.split(case["run"])
            sys.argv = ["rlvr", *words]
            code = main(words)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _heed_permissions() -> None:
    """Take from root that it may read and write everything (CAP_DAC_*), as from any user."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    sets = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    for index in range(3):  # effective, permitted, inheritable
        sets[index] &= ~0b110
    for one in (1, 2):
        assert libc.prctl(24, one, 0, 0, 0) == 0  # PR_CAPBSET_DROP: nor those that it starts
    assert libc.capset(header, sets) == 0


def _waited(child: int) -> int:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def make_model(folder: Path) -> Path:
    """Write a sound model, and import what commands import."""
    import torch  # noqa: F401
    import transformers  # noqa: F401

    from rlvr_core.testing.random_model import save_random_model

    save_random_model(folder / "model")
    return folder / "model"


def measure(chosen: Iterable[Mapping[str, Any]], folder: Path) -> list[Outcome]:
    """Carry out cases one after the other."""
    model = make_model(folder)
    return [try_case(case, folder / f"case{n}", model) for n, case in enumerate(chosen)]
