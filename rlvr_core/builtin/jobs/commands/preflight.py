"""``rlvr launch --preflight``: what can be known of a launch before it costs anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any, Literal, Protocol, runtime_checkable

from rlvr_core.api import LaunchPlan, RlvrError
from rlvr_core.api.services import is_uri, load_host, output
from rlvr_core.builtin.jobs.mirror import probe

Verdict = Literal["ok", "wrong", "unknown"]

_CARDS = {
    "h100": "h100-80",
    "h200": "h200",
    "a100-80gb": "a100-80",
    "a100": "a100-40",
    "l4": "l4-24",
    "rtx4090": "rtx4090-24",
}
"""Cards that ``rlvr plan`` knows, by SkyPilot's names."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        check: Its name.
        verdict: ``unknown`` where nothing here can tell.
        found: What was found, for people.
    """

    check: str
    verdict: Verdict
    found: str


@runtime_checkable
class ChecksMachines(Protocol):
    """A launcher that can ask its scheduler about a job without submitting it."""

    def ask_ahead(self, plan: LaunchPlan) -> Iterable[tuple[str, bool | None, str]]:
        """Yield name, verdict (None: it cannot tell) and text of what the scheduler says."""


def preflight(
    launcher: Any, plan: LaunchPlan, config: Sequence[str], *, as_json: bool, evaluates: bool
) -> int:
    """Check a launch, print what was found, and return the exit code: 1 if something is wrong.

    Args:
        launcher: The launcher.
        plan: Its plan; that there is one says that config, files and options are in order.
        config: The config and its ``--set``, as the words of a command.
        as_json: Whether to print JSON.
        evaluates: Whether it is an evaluation, of which ``rlvr doctor`` and ``rlvr plan`` know
            nothing.
    """
    found = list(_all(launcher, plan, config, evaluates=evaluates))
    wrong = [one for one in found if one.verdict == "wrong"]
    verdict = "do not launch" if wrong else "ready"
    if as_json:
        output.print_json({"verdict": verdict, "checks": [asdict(one) for one in found]})
    else:
        output.print_table(
            ["check", "verdict", "found"], [[one.check, one.verdict, one.found] for one in found]
        )
        unknown = sum(one.verdict == "unknown" for one in found)
        output.print_line(f"{verdict}: {len(wrong)} wrong, {unknown} unknown, of {len(found)}")
    return 1 if wrong else 0


def _all(
    launcher: Any, plan: LaunchPlan, config: Sequence[str], *, evaluates: bool
) -> Iterator[Finding]:
    details: Mapping[str, Any] = plan.details
    yield Finding("config", "ok", f"{plan.launcher} has a plan for it")
    yield from _files(details)
    yield Finding("plugins", "ok", ", ".join(_distributions()))
    yield from _secrets(details)
    yield from _stores(details)
    if not evaluates:
        yield from _told("run", ["doctor", *config, "--quick", "--json"], _examined)
        yield _memory(details, config)
    if isinstance(launcher, ChecksMachines):
        try:
            for name, good, text in launcher.ask_ahead(plan):
                yield Finding(name, _VERDICTS[good], text)
        except RlvrError as error:
            yield Finding("machines", "wrong", _line(error))
    else:
        yield Finding("machines", "unknown", "this backend cannot be asked without a job")
    yield Finding(
        "image",
        "unknown",
        f"here: {_torch()}; that of a job is looked at from inside, as it starts",
    )


_VERDICTS: dict[bool | None, Verdict] = {True: "ok", False: "wrong", None: "unknown"}


def _files(details: Mapping[str, Any]) -> Iterator[Finding]:
    files = details.get("files")
    if files is not None:
        size = sum(int(one["size"]) for one in files)
        yield Finding("files", "ok", f"{len(files)} go along, {size:,} bytes; no secret found")


def _secrets(details: Mapping[str, Any]) -> Iterator[Finding]:
    names = details.get("secrets")
    if isinstance(names, list) and names:
        missing = [name for name in names if not os.environ.get(name)]
        what = f"not in this environment: {', '.join(missing)}" if missing else ", ".join(names)
        yield Finding("secrets", "wrong" if missing else "ok", what)


def _stores(details: Mapping[str, Any]) -> Iterator[Finding]:
    """Write, list and delete a small file where the run is to be copied to."""
    uri = details.get("store") or details.get("runs")
    if not isinstance(uri, str) or not is_uri(uri):
        return
    try:
        probe(load_host().ask_store(uri))
    except RlvrError as error:
        yield Finding("store", "wrong", _line(error))
    else:
        yield Finding("store", "ok", f"{uri} can be written, listed and deleted in, from here")


def _memory(details: Mapping[str, Any], config: Sequence[str]) -> Finding:
    options = details.get("options")
    asked = options.get("accelerators") if isinstance(options, dict) else None
    if not isinstance(options, dict) or not isinstance(asked, str):
        return Finding("memory", "unknown", "which card? see: rlvr plan CONFIG --gpu")
    name, _, count = asked.partition(":")
    card = _CARDS.get(name.lower())
    if card is None:
        return Finding("memory", "unknown", f"rlvr plan knows no card {name}")
    every = int(count or 1) * int(options.get("nodes") or 1)
    words = ["plan", *config, "--gpu", card, "--count", str(every), "--json"]
    if options.get("engine_gpus"):
        engine = int(options["engine_gpus"]) * int(options.get("nodes") or 1)
        words += ["--engine-gpus", str(engine)]
    return next(iter(_told("memory", words, _planned)))


def _told(
    check: str, words: Sequence[str], read: Callable[[Any], Iterator[Finding]]
) -> Iterator[Finding]:
    """Run another command of rlvr, and read its JSON."""
    command = [sys.executable, "-m", "rlvr_core.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        told = json.loads(done.stdout)
    except ValueError:
        lines = [one for one in done.stderr.splitlines() if one.startswith("error")]
        what = lines[-1] if lines else f"rlvr {words[0]} ended with {done.returncode}"
        yield Finding(check, "wrong", what)
        return
    yield from read(told)


def _examined(told: Any) -> Iterator[Finding]:
    """The checks of ``rlvr doctor --quick`` that are not in order, and their number."""
    checks = told["checks"]
    for one in checks:
        if one["verdict"] == "wrong":
            yield Finding(f"run: {one['id']}", "wrong", str(one["measured"]))
    bad = sum(one["verdict"] == "wrong" for one in checks)
    what = f"rlvr doctor --quick: {len(checks)} checks, {told['verdict']}"
    yield Finding("run", "wrong" if bad else "ok", what)


def _planned(told: Any) -> Iterator[Finding]:
    memory, step = told["memory"], told["seconds"]["step"]
    peak, card = memory["peak"] / 2**30, memory["card"] / 2**30
    what = f"peak {peak:.1f} of {card:.1f} GiB, {step:.3g} s a step as planned"
    yield Finding("memory", "ok" if told["fits"] else "wrong", what)


def _distributions() -> list[str]:
    found = {
        f"{one.name} {one.version}"
        for one in metadata.distributions()
        if re.fullmatch(r"rlvr[-_.].*", one.name or "")
        or any(entry.group == "rlvr" for entry in one.entry_points)
    }
    return sorted(found)


def _torch() -> str:
    return f"torch {metadata.version('torch')}, Python {sys.version.split()[0]}"


def _line(error: RlvrError) -> str:
    return " ".join(str(error).split())
