"""The suite's results as a page of the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chaos.registry import DTYPES, EVERYWHERE, Fault

HEAD = """# The chaos suite

`make chaos` breaks runs, one fault at a time, and notes what each run says of its fault.
`tests/chaos` has the faults: {faults} of them, in the training pass, the sampler, the sync, the
data, the verifiers and wherever else a run can go wrong in silence. Each is put into runs of eight
steps of a small model that has half learned its task, in float32 and bfloat16, with the engine in
the trainer's process, in a process of its own, and with vLLM where that applies, or strikes when a
healthy run is resumed.

- **A fault matters.** A fault that moves no token, reward, loss, gradient or weight against the
  same run without it is an error of the suite, as is one whose code was not used, and one that ends
  in an exception that is nobody's check.
- **Right names are declared beforehand.** Each fault comes with the words (`WORDS` in
  `registry.py`, and its own) of which a message has to have one to count as the right name. That
  rule alone judges.
- **Blind.** The faults were written without reading the guards.

`make chaos` measures all and writes this page. `make test-long` runs a third of the faults, by the
newest commit's turn, and {healthy} healthy runs of different shape; `make test` a sample.

## In figures

Runs with a fault, by precision. *Stopped*: the run ended with an error that names the cause.
*Note*: it went on, and a line of its output or of `rlvr show` names the cause. *Wrong name*:
something was said, and not the cause.

"""
BODY = """
## Fault by fault

`parity 1`: the guard `parity` stopped the run at step 1; `start`: before the first step. In
brackets: something was said, and not the cause. A dash: the fault does not apply there.

"""
BEFORE = """
Before the checks of each step (`parity` on what the loss used, `calibration`, `advantages`,
`tokens`, `kl`, `updates`) and the preflight, of 210 runs in float32 with the engine in process 55
were stopped with the right name, 2 noted, 5 given a wrong name and 148 missed; of 153 in bfloat16
33 were stopped with the right name, 2 noted and 118 missed.
"""
KINDS = ("stopped", "note", "wrong name", "missed")
COLUMNS = tuple((backend, dtype) for backend in EVERYWHERE for dtype in DTYPES)


def kind(line: Mapping[str, Any]) -> str:
    """What a result counts as."""
    if line["found"] == "missed":
        return "missed"
    if not line["right"]:
        return "wrong name"
    return "note" if line["found"] == "note" else "stopped"


def page(
    faults: Iterable[Fault],
    results: Sequence[Mapping[str, Any]],
    healthy: Sequence[Mapping[str, Any]],
) -> str:
    """The whole page."""
    declared = list(faults)
    shapes = {line["shape"] for line in healthy}
    disturbed = [line["case"] for line in healthy if line["code"] != 0]
    out = HEAD.format(faults=len(declared), healthy=len(shapes))
    out += _summary(results)
    out += (
        f"\nHealthy runs: {len(healthy)}, of {len(shapes)} shapes, {len(disturbed)} disturbed"
        f"{': ' if disturbed else ''}{', '.join(disturbed)}.\n"
    )
    out += BEFORE
    by_fault: dict[str, dict[tuple[str, str], Mapping[str, Any]]] = {}
    for line in results:
        by_fault.setdefault(line["fault"], {})[line["backend"], line["dtype"]] = line
    out += BODY
    head = [
        "fault",
        *(f"{b}, {d}".replace("bfloat16", "bf16").replace("float32", "f32") for b, d in COLUMNS),
    ]
    for cls in dict.fromkeys(fault.cls for fault in declared):
        out += f"### {cls}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
        for fault in declared:
            if fault.cls == cls:
                found = by_fault.get(fault.name, {})
                cells = [
                    _cell(found.get((backend, dtype)))
                    if backend in fault.backends and dtype in fault.dtypes
                    else "-"
                    for backend, dtype in COLUMNS
                ]
                out += f"| {fault.what.rstrip('.')} (`{fault.name}`) | {' | '.join(cells)} |\n"
        out += "\n"
    return out.rstrip() + "\n"


def _summary(results: Sequence[Mapping[str, Any]]) -> str:
    head = ["class", *(f"{d}: {what}" for d in DTYPES for what in ("runs", *KINDS))]
    out = f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    classes = dict.fromkeys(line["cls"] for line in results)
    for cls in (*classes, "all"):
        cells = []
        for dtype in DTYPES:
            mine = [x for x in results if x["dtype"] == dtype and cls in (x["cls"], "all")]
            counts = Counter(kind(x) for x in mine)
            cells += [len(mine), *(counts[what] for what in KINDS)]
        bold = "**" if cls == "all" else ""
        out += f"| {bold}{cls}{bold} | {' | '.join(f'{bold}{c}{bold}' for c in cells)} |\n"
    return out


def _cell(line: Mapping[str, Any] | None) -> str:
    if line is None:
        return "not run"
    what = kind(line)
    if what == "missed":
        return "**missed**"
    by = line["by"] if line["found"] == "guard" else line["found"]
    said = by if line["found"] == "note" else f"{by} {line['step']}"
    return f"({said})" if what == "wrong name" else said
