"""Runs faults and healthy shapes, each in a fork."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from chaos import lab, process
from chaos.outcome import Outcome, read
from chaos.registry import Fault, Patch

LIMIT = 120.0
"""Seconds after which a run that does not end is killed."""
PATIENCE = 75.0
"""The same for a run in which something hangs; up to ``HANGING`` of them wait beside the others."""
HANGING = 5


@dataclass(frozen=True, slots=True)
class Case:
    """One run.

    Attributes:
        backend: ``in process``, ``child`` or ``vllm``; ``two processes``, each with its engine; or
            ``rlvr eval``: a run of half the steps, whose checkpoint is evaluated.
        dtype: ``float32`` or ``bfloat16``.
        shape: Name of the healthy shape.
        fault: What is broken; None for a healthy run.
        resume: Whether it is a run of half the steps that is resumed.
        early: Whether the fault of a resumed run is there from its first step on.
    """

    backend: str
    dtype: str
    shape: str = "base"
    fault: Fault | None = None
    resume: bool = False
    early: bool = False

    @property
    def key(self) -> str:
        """Its name in tables and folders."""
        name = self.fault.name if self.fault else f"healthy {self.shape}"
        return "  ".join((name, self.backend, self.dtype, *(["resumed"] if self.resume else [])))

    @property
    def hangs(self) -> bool:
        """Whether something of it never answers."""
        return self.fault is not None and self.fault.cls == "hang"

    @property
    def healthy(self) -> Case:
        """The same run without the fault."""
        return Case(self.backend, self.dtype, self.shape, None, self.resume)


BACKENDS: Mapping[str, Mapping[str, Any]] = {
    "in process": {},
    # there is no launcher, by which the preflight would compare machines
    "two processes": {"guards": {"preflight": False}},
    "rlvr eval": {},
    "child": {"train": {"max_staleness": 1}},
    "vllm": {"engine": {"use": "vllm", "with": {"kv_cache_mb": 16}}},
}


class Bench:
    """Runs cases below a folder.

    Args:
        folder: Where; models are made there once.
        shapes: The healthy shapes by name: changes to the base config.
    """

    def __init__(self, folder: Path, shapes: Mapping[str, Mapping[str, Any]]) -> None:
        self.folder, self.shapes = folder, shapes
        self._healthy: dict[Case, Outcome] = {}
        self.models = {"tiny": folder / "model", "wide": folder / "wide", "lora": folder / "model"}
        site = folder / "site"
        if not site.exists():
            site.mkdir(parents=True)
        if not any(site.iterdir()):
            lab.install(site)
        else:
            import sys

            sys.path.insert(0, str(site))
        os.environ |= {
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        os.environ["PYTHONPATH"] = os.pathsep.join((str(site), os.environ.get("PYTHONPATH", "")))

    def prepare(self, *, wide: bool = False, steps: int = 500) -> None:
        """Make the models, unless they are there: one whose heads vLLM has kernels for is wider."""
        for name, changes in (("tiny", {}), ("wide", {"head_dim": 32})):
            if (name == "tiny" or wide) and not (self.models[name] / "config.json").exists():
                making = Path(f"{self.models[name]}.making")
                lab.make_model(making, steps=steps, **changes)
                making.rename(self.models[name])
        odd = self.folder / "odd"
        if not (odd / "config.json").exists():
            lab.widen(self.models["tiny"], odd, 317)
        process.load(self.models["tiny"])

    def config(self, case: Case) -> dict[str, Any]:
        """The configuration of a case."""
        wide = case.backend == "vllm"
        config = lab.base_config(self.models["wide" if wide else "tiny"])
        config["model"]["dtype"] = case.dtype
        for changes in (BACKENDS[case.backend], self.shapes[case.shape]):
            config = lab.merged(config, {k: v for k, v in changes.items() if k != "rows"})
        return lab.merged(config, case.fault.config) if case.fault else config

    def run(self, cases: Sequence[Case], jobs: int = 1) -> Iterator[tuple[Case, Outcome, Outcome]]:
        """Run cases, and before them the healthy runs they are compared with.

        Yields:
            A case, what came of it, and what came of the healthy one.
        """
        wanted = dict.fromkeys(case.healthy for case in cases)
        missing = [case for case in wanted if case not in self._healthy]
        for case, outcome in self.each(missing, jobs):
            self._healthy[case] = outcome
        for case, outcome in self.each([case for case in cases if case.fault], jobs):
            yield case, outcome, self._healthy[case.healthy]
        for case in cases:
            if not case.fault:
                yield case, self._healthy[case], self._healthy[case]

    def each(self, cases: Sequence[Case], jobs: int) -> Iterator[tuple[Case, Outcome]]:
        """Run cases, and yield what came of each."""
        waiting, running = list(cases), dict[int, tuple[Case, Path, float]]()
        room = {True: HANGING, False: jobs}
        while waiting or running:
            busy = Counter(case.hangs for case, _, _ in running.values())
            able = [case for case in waiting if busy[case.hangs] < room[case.hangs]]
            if able:
                case = able[0]
                waiting.remove(case)
                folder = self._folder(case)
                pid = process.forked(self._work(case, folder), folder)
                running[pid] = (case, folder, time.monotonic())
                continue
            pid, status = os.waitpid(-1, os.WNOHANG)
            now = time.monotonic()
            late = [
                one
                for one, (case, _, began) in running.items()
                if now - began > (PATIENCE if case.hangs else LIMIT)
            ]
            for one in late:
                with suppress(ProcessLookupError):
                    os.killpg(one, signal.SIGKILL)
            if pid in running:
                case, folder, began = running.pop(pid)
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                code = folder / "code"
                # one that its watchdog ended could not write it; one that was killed has none
                ends = int(code.read_text()) if code.exists() else os.waitstatus_to_exitcode(status)
                ended = None if ends < 0 else ends
                outcome = read(folder, ended, time.monotonic() - began)
                if case.fault:
                    shutil.rmtree(folder / "runs", ignore_errors=True)
                yield case, outcome
            elif not pid:
                time.sleep(0.01)

    def path(self, case: Case) -> Path:
        """The folder in which a case runs."""
        return self.folder / "cases" / case.key.replace(" ", "-")

    def _folder(self, case: Case) -> Path:
        folder = self.path(case)
        shutil.rmtree(folder, ignore_errors=True)
        rows = self.shapes[case.shape].get("rows", lab.rows)()
        if case.fault and case.fault.data:
            rows = case.fault.data(rows)
        lab.write(folder, self.config(case), rows)
        return folder

    def _work(self, case: Case, folder: Path) -> Callable[[], int]:
        def work() -> int:
            patch = Patch(folder)
            words = ["run", "config.yaml", "--display", "plain"]
            if case.early and case.fault and case.fault.install:
                case.fault.install(patch)
            if case.resume:
                half = ["--set", "train.steps=4", "--set", "checkpoint.every=2"]
                process.fork_children()
                if code := process.command(*words, *half):
                    return code
                words = ["run", "--resume", "last", "--display", "plain", "--set", "train.steps=8"]
            if case.fault and case.fault.install and not case.early:
                case.fault.install(patch)
            elif case.fault:
                patch.hit()
            if case.backend == "two processes":
                code = process.of_two(lambda: process.command(*words))
            else:
                process.fork_children()
                code = process.command(*words)
            process.notes_of_last()
            return code

        return self._evaluated(case, folder) if case.backend == "rlvr eval" else work

    def _evaluated(self, case: Case, folder: Path) -> Callable[[], int]:
        """Evaluate the checkpoint of a healthy run as the run evaluates, and then by pass@k."""

        def work() -> int:
            half = ("--set", "train.steps=4", "--set", "eval={}", "--display", "plain")
            process.fork_children()
            if code := process.command("run", "config.yaml", *half):
                return code
            patch = Patch(folder)
            if case.fault and case.fault.install:
                case.fault.install(patch)
            (task,) = self.config(case)["eval"]["tasks"]
            n = str(task["with"].get("n", 4))
            given = {"tasks": [task], "max_truncated": 1.0, "max_contaminated": 1.0}
            Path("eval.yaml").write_text(yaml.safe_dump(given))
            words = ("last", "--config", "eval.yaml", "--out")
            if code := process.command("eval", *words, "evals/eval"):
                return code
            return process.command("passk", *words, "evals/passk", "--n", n, "--k", f"1,{n}")

        return work
