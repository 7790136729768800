"""Whether this machine can make the tasks, run programs on them, and grade what comes of it."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rlvr_bs4 import catalog, manifest, solvers
from rlvr_bs4.datasets import Pages, tasks_of
from rlvr_bs4.generate import generate
from rlvr_bs4.site import PARSERS
from rlvr_bs4.task import Task
from rlvr_bs4.web.datasets import problem
from rlvr_bs4.web.environment import Web
from rlvr_bs4.web.tools import RUN
from rlvr_core.api import RlvrError, ToolCall, tool_format
from rlvr_core.testing import play

_READ = "print(make_soup().find('body').get_text())"
_PLANTED = "mvp.extract_attribute"
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was tried.

    Attributes:
        what: Its name.
        good: Whether all is well.
        told: What was found, in a line.
    """

    what: str
    good: bool
    told: str


def findings(rows: int) -> Iterator[Finding]:
    """Try everything, one after the other.

    Args:
        rows: Rows of the data set whose memory is measured.
    """
    checks: dict[str, Callable[[], tuple[bool, str]]] = {
        "libraries": _libraries,
        "tasks": _tasks,
        "conversations": _conversations,
        "memory": lambda: _memory(rows),
    }
    for what, check in checks.items():
        try:
            yield Finding(what, *check())
        except RlvrError as error:
            yield Finding(what, False, str(error))


def _libraries() -> tuple[bool, str]:
    now, then = manifest.versions(), manifest.read()[0]["versions"]
    assert isinstance(then, dict)
    other = [f"{name} {now[name]} (benchmark: {then.get(name)})" for name in now]
    same = [name for name in now if then.get(name) == now[name]]
    shown = [text for text in other if text.partition(" ")[0] not in same]
    return True, "as the benchmark was made with" if not shown else f"others: {', '.join(shown)}"


def _tasks() -> tuple[bool, str]:
    """One task of each archetype, solved under each parser there is."""
    begin, wrong = time.perf_counter(), []
    parsers = [one for one in PARSERS if manifest.versions().get(one, "") != "absent"]
    for id, kind in catalog.everything().items():
        task = generate(id, 0, "small")
        for parser in parsers:
            if not solvers.run(kind.solve, task, parser).correct:
                wrong.append(f"{id} ({parser})")
    seconds = time.perf_counter() - begin
    n = len(catalog.everything())
    if wrong:
        return False, f"reference solvers are wrong on {', '.join(wrong)}"
    return True, f"{n} archetypes made and solved under {', '.join(parsers)} in {seconds:.1f} s"


def _conversations() -> tuple[bool, str]:
    """What is worth 1, 0 and less than 0, with programs in the sandbox."""
    task = next(task for seed in range(40) if (task := generate(_PLANTED, seed, "small")).canaries)
    call = tool_format("hermes").render(ToolCall(RUN.name, {"code": _READ}))
    wrong = json.dumps({"status": "ok", "answer": "none of these"})
    cases = {
        "a right answer": ([call, task.gold], 1.0),
        "a wrong answer": ([call, wrong], 0.0),
        "a guess": ([task.gold], 0.0),
        "a secret told": ([call, f"{task.canaries[0]} {task.gold}"], -0.5),
    }
    web = Web(Web.Config())
    try:
        scores = {name: _score(web, task, said) for name, (said, _) in cases.items()}
        begin = time.perf_counter()
        for _ in range(5):
            _score(web, task, [call])
        seconds = (time.perf_counter() - begin) / 5
    finally:
        web.shut()
    bad = [f"{name} is worth {scores[name]}" for name in cases if scores[name] != cases[name][1]]
    if bad:
        return False, ", ".join(bad)
    return True, f"graded as they should be; {1000 * seconds:.0f} ms a program"


def _score(web: Web, task: Task, said: list[str]) -> float | None:
    verdict = play(web, problem(task), said, max_turns=len(said)).verdict
    assert verdict is not None
    return verdict.score


def _memory(rows: int) -> tuple[bool, str]:
    """What a data set holds before its tasks are asked for, and after all of them are made."""
    tracemalloc.start()
    try:
        lazy = tasks_of(Pages.Config(n=rows))
        few = tracemalloc.get_traced_memory()[0] / MIB
        eager = lazy.eager()
        many = tracemalloc.get_traced_memory()[0] / MIB
    finally:
        tracemalloc.stop()
    told = f"{len(eager)} rows: {few:.1f} MiB as they are asked for, {many:.1f} MiB all made"
    return few <= many, told
