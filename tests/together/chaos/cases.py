"""Runs faults and healthy shapes, each in a fork."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.together.chaos import lab, process
from tests.together.chaos.outcome import Outcome, read
from tests.together.chaos.registry import Fault, Patch
from tests.together.chaos.shapes import ROWS, SHAPES

LIMIT = 150.0
"""Seconds after which a run that does not end is killed."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run.

    Attributes:
        backend: A key of ``BACKENDS``.
        dtype: ``float32`` or ``bfloat16``.
        shape: Name of the healthy shape.
        fault: What is broken; None for a healthy run.
        resume: Whether it is a run of half the steps that is resumed.
    """

    backend: str
    dtype: str
    shape: str = "base"
    fault: Fault | None = None
    resume: bool = False

    @property
    def key(self) -> str:
        """Its name in tables and folders."""
        name = self.fault.name if self.fault else f"healthy {self.shape}"
        return "  ".join((name, self.backend, self.dtype, *(["resumed"] if self.resume else [])))

    @property
    def healthy(self) -> Case:
        """The same run without the fault."""
        return Case(self.backend, self.dtype, self.shape, None, self.resume)


BACKENDS: Mapping[str, Mapping[str, Any]] = {
    "in process": {},
    # the preflight asks a launcher for the other machines, and there is none
    "two processes": {"guards": [{"use": "guards/preflight", "off": True}]},
    "child": {"train": {"max_staleness": 1}},
}


class Bench:
    """Runs cases below a folder.

    Args:
        folder: Where; models are made there once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._healthy: dict[Case, Outcome] = {}
        site = folder / "site"
        lab.install(site)
        os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        os.environ["PYTHONPATH"] = os.pathsep.join((str(site), os.environ.get("PYTHONPATH", "")))

    def prepare(self, *, steps: int = 500) -> None:
        """Make the models, unless they are there, and load once what each run loads."""
        tiny, odd = self.folder / "model", self.folder / "odd"
        if not (tiny / "config.json").exists():
            making = self.folder / "model.making"
            lab.make_model(making, steps=steps)
            making.rename(tiny)
        if not (odd / "config.json").exists():
            lab.widen(tiny, odd, 317)
        process.load(tiny)

    def config(self, case: Case) -> dict[str, Any]:
        """The configuration of a case."""
        config = lab.base_config(self.folder / "model")
        config["model"]["dtype"] = case.dtype
        guards: list[Any] = []
        for changes in (BACKENDS[case.backend], SHAPES[case.shape]):
            guards += changes.get("guards", [])
            config = lab.merged(config, changes)
        if guards:
            config["guards"] = guards
        return lab.merged(config, case.fault.config) if case.fault else config

    def run(self, cases: Sequence[Case], jobs: int = 1) -> Iterator[tuple[Case, Outcome, Outcome]]:
        """Run cases, and before them the healthy runs they are compared with.

        Yields:
            A case, what came of it, and what came of the healthy one.
        """
        wanted = dict.fromkeys(case.healthy for case in cases)
        missing = [case for case in wanted if case not in self._healthy]
        self._healthy.update(self.each(missing, jobs))
        for case, outcome in self.each([case for case in cases if case.fault], jobs):
            yield case, outcome, self._healthy[case.healthy]
        for case in cases:
            if not case.fault:
                yield case, self._healthy[case], self._healthy[case]

    def each(self, cases: Sequence[Case], jobs: int) -> Iterator[tuple[Case, Outcome]]:
        """Run cases, and yield what came of each."""
        waiting, running = list(cases), dict[int, tuple[Case, Path, float]]()
        while waiting or running:
            if waiting and len(running) < jobs:
                case = waiting.pop(0)
                folder = self._folder(case)
                pid = process.forked(self._work(case, folder), folder)
                running[pid] = (case, folder, time.monotonic())
                continue
            pid, status = os.waitpid(-1, os.WNOHANG)
            for late, (_, _, began) in running.items():
                if time.monotonic() - began > LIMIT:
                    with suppress(ProcessLookupError):
                        os.killpg(late, signal.SIGKILL)
            if pid in running:
                case, folder, began = running.pop(pid)
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                code = folder / "code"
                # a run that its watchdog ended writes no code; one that was killed has none
                ends = int(code.read_text()) if code.exists() else os.waitstatus_to_exitcode(status)
                outcome = read(folder, None if ends < 0 else ends, time.monotonic() - began)
                shutil.rmtree(folder / "runs", ignore_errors=True)
                yield case, outcome
            elif not pid:
                time.sleep(0.01)

    def _folder(self, case: Case) -> Path:
        folder = self.folder / "cases" / case.key.replace(" ", "-")
        shutil.rmtree(folder, ignore_errors=True)
        rows = ROWS.get(case.shape, lab.rows)()
        if case.fault and case.fault.data:
            rows = case.fault.data(rows)
        lab.write(folder, self.config(case), rows)
        return folder

    def _work(self, case: Case, folder: Path) -> Callable[[], int]:
        """Work that a fork does: the healthy half of a resumed run first, then the fault."""

        def work() -> int:
            words = ["run", "config.yaml", "--display", "plain"]
            if case.resume:
                process.fork_children()
                half = ("--set", "train.steps=4", "--set", "checkpoint.every=2")
                if code := process.command(*words, *half):
                    return code
                words = ["run", "--resume", "last", "--display", "plain", "--set", "train.steps=8"]
            if case.fault:
                patch = Patch(folder)
                if case.fault.install:
                    case.fault.install(patch)
                else:
                    patch.hit()
            if case.backend == "two processes":
                code = process.of_two(lambda: process.command(*words))
            else:
                process.fork_children()
                code = process.command(*words)
            process.notes_of_last()
            return code

        return work
