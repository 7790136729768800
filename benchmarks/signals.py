"""What a run does when it is signalled, in twelve patterns at ten moments.

Each trial starts a run, waits for its moment, sends the signals of its pattern, and looks at how
it ends: all its processes have to be gone within 30 seconds of the first signal, with an exit
code and words that say what happened, and every checkpoint that is there has to be whole. A run of
``rlvr launch`` that was stepping, and was asked once, has to leave a checkpoint of its last step.

    python benchmarks/signals.py [--only PATTERN] [--how run|launch] [--out FILE]

``run`` trains in one process beside an engine in a child; ``launch`` in two processes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import yaml

from rlvr_core.testing.lab import Lab
from rlvr_core.testing.random_model import save_random_model

GONE_WITHIN = 30.0
STEPS = 400

Tree = list[psutil.Process]


class Trial:
    """A run that goes on in a session of its own.

    Args:
        lab: Its folder.
        how: ``run`` or ``launch``.
    """

    def __init__(self, lab: Lab, how: str) -> None:
        self.lab, self.how = lab, how
        words = ["run"] if how == "run" else ["launch", "--processes", "2"]
        self.log = (lab.folder / "log.txt").open("wb")
        self.process = subprocess.Popen(
            lab.command(words[0], "config.yaml", *words[1:], "--display", "plain"),
            cwd=lab.folder,
            env=lab.env(),
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.top = psutil.Process(self.process.pid)
        self.family: dict[int, psutil.Process] = {self.top.pid: self.top}

    @property
    def run(self) -> Path | None:
        """The run's folder, once there is one."""
        runs = self.lab.runs()
        return runs[-1] if runs else None

    def steps(self) -> int:
        """Steps that the run has recorded."""
        path = self.run / "metrics.jsonl" if self.run else None
        return len(path.read_bytes().splitlines()) if path and path.exists() else 0

    def tree(self) -> Tree:
        """The processes that live, the first one in front."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in self.top.children(recursive=True):
                self.family.setdefault(one.pid, one)
        return [one for one in self.family.values() if alive(one)]

    def text(self) -> str:
        """What it has written."""
        return (self.lab.folder / "log.txt").read_text(errors="replace")


def alive(process: psutil.Process) -> bool:
    """Whether a process is there and no zombie."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def send(processes: Sequence[psutil.Process], number: int) -> None:
    """Signal processes, those that have ended left out."""
    for one in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(number)


def group(trial: Trial, number: int) -> None:
    """Signal the group, as a terminal does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(trial.process.pid, number)


def session(trial: Trial, number: int) -> None:
    """Signal all processes of the run's session."""
    for one in trial.tree():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getsid(one.pid) == trial.process.pid:
                one.send_signal(number)


def several(trial: Trial, number: int, times: int, pause: float) -> None:
    """Signal the first process again and again."""
    for at in range(times):
        time.sleep(pause if at else 0)
        send([trial.top], number)


def term_then_int(trial: Trial) -> None:
    """Two ways of the same wish, close together."""
    send([trial.top], signal.SIGTERM)
    time.sleep(0.1)
    send([trial.top], signal.SIGINT)


def tree_from_below(trial: Trial) -> None:
    """The whole tree, its leaves first."""
    for one in reversed(trial.tree()):
        send([one], signal.SIGTERM)
        time.sleep(0.02)


PATTERNS: dict[str, Callable[[Trial], None]] = {
    "SIGTERM": lambda t: send([t.top], signal.SIGTERM),
    "SIGINT": lambda t: send([t.top], signal.SIGINT),
    "SIGINT to the group": lambda t: group(t, signal.SIGINT),
    "SIGTERM to the group": lambda t: group(t, signal.SIGTERM),
    "SIGTERM to the session": lambda t: session(t, signal.SIGTERM),
    "SIGTERM to the tree": lambda t: send(t.tree(), signal.SIGTERM),
    "SIGTERM to the tree, leaves first": tree_from_below,
    "SIGINT to the tree": lambda t: send(t.tree(), signal.SIGINT),
    "SIGTERM twice in a second": lambda t: several(t, signal.SIGTERM, 2, 0.5),
    "SIGTERM and SIGINT": term_then_int,
    "SIGINT twice, 3 s apart": lambda t: several(t, signal.SIGINT, 2, 3.0),
    "SIGINT three times, 2.5 s apart": lambda t: several(t, signal.SIGINT, 3, 2.5),
}
INSISTS = ("SIGINT twice, 3 s apart", "SIGINT three times, 2.5 s apart")
"""Patterns of several wishes: no checkpoint is promised."""


def writing(trial: Trial) -> bool:
    """Whether a checkpoint is being written."""
    return trial.run is not None and any((trial.run / "checkpoints").glob(".tmp*"))


MOMENTS: dict[str, tuple[Callable[[Trial], bool], float]] = {
    "at once": (lambda _: True, 0.2),
    "importing": (lambda _: True, 1.5),
    "loading": (lambda trial: len(trial.tree()) > 1, 1.0),
    "the folder is there": (lambda trial: trial.run is not None, 0.0),
    "before the first step": (
        lambda trial: bool(trial.run and (trial.run / "run.json").exists()),
        0.5,
    ),
    "behind the first step": (lambda trial: trial.steps() >= 1, 0.0),
    "in the third step": (lambda trial: trial.steps() >= 2, 0.3),
    "at any time": (lambda trial: trial.steps() >= 3, -1.5),
    "writing a checkpoint": (writing, 0.0),
    "behind a checkpoint": (lambda trial: trial.steps() >= 5, 0.05),
}
"""What has to be there, and seconds behind it; less than 0 for up to so many, at random."""


@dataclass
class Result:
    """How a trial ended.

    Attributes:
        faults: What is wrong; empty if nothing is.
    """

    how: str
    pattern: str
    moment: str
    code: int | None
    seconds: float
    stepping: bool
    steps: int
    newest: int
    last_words: str
    faults: list[str]


def trial(lab: Lab, how: str, pattern: str, moment: str, draw: random.Random) -> Result:
    """Start a run, signal it at a moment, and judge how it ended."""
    shutil.rmtree(lab.folder / "runs", ignore_errors=True)
    one = Trial(lab, how)
    there, pause = MOMENTS[moment]
    until = time.monotonic() + 240
    while not there(one):
        if one.process.poll() is not None or time.monotonic() > until:
            send(one.tree(), signal.SIGKILL)
            raise SystemExit(f"{how}, {moment}: the moment did not come\n{one.text()[-2000:]}")
        time.sleep(0.01)
    time.sleep(pause if pause >= 0 else draw.uniform(0, -pause))
    one.tree()
    stepping = one.steps() > 0
    began = time.monotonic()
    PATTERNS[pattern](one)
    while time.monotonic() - began < GONE_WITHIN and (one.process.poll() is None or one.tree()):
        time.sleep(0.05)
    took = time.monotonic() - began
    left = one.tree()
    send(left, signal.SIGKILL)
    code = one.process.poll()
    one.process.wait()
    one.log.close()
    return judged(one, how, pattern, moment, code, took, stepping, left)


def judged(
    one: Trial,
    how: str,
    pattern: str,
    moment: str,
    code: int | None,
    took: float,
    stepping: bool,
    left: Tree,
) -> Result:
    """Say what is wrong with how a run ended."""
    faults = [f"{len(left)} processes left after {took:.0f} s"] if left else []
    text, steps, newest = one.text(), one.steps(), 0
    early = moment in ("at once", "importing")
    if "Traceback" in text and not early:
        faults.append("a traceback")
    # -SIGINT is what CPython makes of 130 where the interrupt came through code that was compiled
    # at run time; a shell sees 130 for both
    starting = early and "Fatal Python error: init_" in text  # CPython's own, before any of ours
    early_end = starting or (early and code == -signal.SIGTERM)
    if code not in (130, -signal.SIGINT) and not early_end:
        faults.append(f"exit code {code}")
    if code == 130 and "interrupted" not in text.lower() and not early:
        faults.append("no word")
    if one.run is not None:
        manifest = one.run / "run.json"
        outcome = json.loads(manifest.read_text())["outcome"] if manifest.exists() else "nothing"
        if stepping and outcome != "interrupted":
            faults.append(f"run.json says {outcome}")
        for folder in sorted((one.run / "checkpoints").glob("step*")):
            if (folder / "COMPLETE").is_file():
                newest = max(newest, int(folder.name.removeprefix("step")))
            else:
                faults.append(f"{folder.name} is not whole")
        if how == "launch" and stepping and pattern not in INSISTS and newest != steps:
            faults.append(f"checkpoint of step {newest}, and {steps} steps were taken")
    words = " | ".join(text.strip().splitlines()[-3:])[-300:]
    return Result(how, pattern, moment, code, took, stepping, steps, newest, words, faults)


def config(model: Path, how: str) -> dict[str, object]:
    """Return a run that goes on until it is stopped."""
    return {
        "run": {"name": "lab", "seed": 1, "timeout": 120},
        "model": {"path": str(model)},
        "data": {"sources": [{"use": "math/arithmetic", "with": {"split": "train"}}]},
        "sampling": {"n": 4, "max_tokens": 16},
        "engine": "core/transformers",
        "loss": "core/grpo",
        "train": {"steps": STEPS, "prompts_per_step": 4, "lr": 1e-3, "warmup_steps": 1}
        | ({"max_staleness": 1} if how == "run" else {}),
        "checkpoint": {"every": 4, "keep": 2},
        "guards": [{"use": "core/idle", "off": True}],
    }


@contextlib.contextmanager
def labs(how: str) -> Iterator[Lab]:
    """A folder with a model and a config, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="signals-"))
    try:
        model = save_random_model(folder / "model")
        (folder / "config.yaml").write_text(yaml.safe_dump(config(model, how)))
        yield Lab(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Print a line of each trial, and how many were right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="regular expression of 'pattern / moment'")
    parser.add_argument("--how", default="run,launch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="results as JSON lines")
    given = parser.parse_args()
    # a shell's background job ignores SIGINT, and so would all that it starts
    signal.signal(signal.SIGINT, signal.default_int_handler)
    draw, results = random.Random(given.seed), list[Result]()
    for how in given.how.split(","):
        with labs(how) as lab:
            for pattern in PATTERNS:
                for moment in MOMENTS:
                    if not re.search(given.only, f"{pattern} / {moment}"):
                        continue
                    found = trial(lab, how, pattern, moment, draw)
                    results.append(found)
                    mark = "; ".join(found.faults) or "right"
                    print(
                        f"{how:6} {pattern:34} {moment:22} {found.code!s:>4} "
                        f"{found.seconds:5.1f} s  {mark}",
                        flush=True,
                    )
                    if given.out:
                        with given.out.open("a") as out:
                            out.write(json.dumps(asdict(found)) + "\n")
    right = sum(not one.faults for one in results)
    print(f"{right} of {len(results)} right")
    return 0 if right == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
