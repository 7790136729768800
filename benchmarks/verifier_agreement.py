"""Where verdicts differ, from the labels and from math-verify's: writes docs/math-verifiers.md.

    RLVR_DATA=data python benchmarks/verifier_agreement.py            # our verdicts, the page
    RLVR_DATA=data python benchmarks/verifier_agreement.py --refresh  # math-verify's, minutes

Our verdicts are taken anew each time. Those of math-verify are kept beside this file, as the ids
of the rows on which it differs from what was expected. Every difference must belong to one of
the classes of ``verifier_reasons``, where it was judged by hand; one that does not is an error.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from verifier_reasons import EMPTY, FORMS, OURS, THEIRS, Class
from verifier_rows import SETS, Row, rows

from rlvr_core.verify.verdicts import VerifierSpec

ROOT = Path(__file__).resolve().parent.parent
KEPT = Path(__file__).with_name("math_verify_verdicts.json")
PAGE = ROOT / "docs" / "math-verifiers.md"
PRESETS = {
    "gsm8k": "rlvr_math.final_number:Gsm8k",
    "gsm8k-strict": "rlvr_math.answer:Gsm8kStrict",
    "gsm8k-flexible": "rlvr_math.answer:Gsm8kFlexible",
    "answer": "rlvr_math.answer:Answer",
    "minerva": "rlvr_math.answer:Minerva",
    "qwen-math": "rlvr_math.answer:QwenMath",
    "math-verify": "rlvr_math.answer:MathVerify",
}
SYMBOLIC = ("answer", "minerva", "qwen-math", "math-verify")
SHOWN = 3
"""Ids of a class that are printed."""


def main() -> None:
    """Write the page, or first math-verify's verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--refresh", action="store_true", help="ask math-verify again")
    if parser.parse_args().refresh:
        KEPT.write_text(json.dumps(_ask(), indent=1) + "\n")
    PAGE.write_text(page(), encoding="utf-8")


def _ask() -> dict[str, object]:
    from verifiers import theirs

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    found: dict[str, object] = {"version": version("math-verify")}
    for name in SETS:
        found[name] = [row.id for row in rows(name) if theirs(row) != row.expected]
    return found


def page() -> str:
    """The page as it ought to be.

    Raises:
        LookupError: If a difference has no class.
    """
    kept = json.loads(KEPT.read_text())
    found = {name: rows(name) for name in SETS}
    parts = [_INTRODUCTION, "## GSM8K's labelled solutions\n", _labels(found["gsm8k"])]
    parts += ["## MATH's gold solutions and corrupted answers\n", _math(found)]
    parts += [f"## math-verify {kept['version']}\n", _theirs(found, kept)]
    return "\n".join(parts)


def wrong(preset: str, of: Sequence[Row]) -> list[Row]:
    """The rows on which a verifier of ours differs from what is expected."""
    verifier = VerifierSpec(PRESETS[preset], {}).build()
    return [
        row
        for row in of
        if bool(verifier.verify(row.problem, row.completion).passed) != row.expected
    ]


def dressed(row: Row, preset: str) -> Row:
    """A GSM8K solution with its last line ``A: N`` in the form that a strict preset asks for."""
    form = FORMS.get(preset)
    if form is None:
        return row
    return replace(row, response=re.sub(r"\nA: (.*)\s*\Z", lambda m: form % m[1], row.response))


def _labels(of: list[Row]) -> str:
    lines = ["| verifier | solutions | agreement | differing |", "|---|---|---|---|"]
    for preset in PRESETS:
        bad = wrong(preset, [dressed(row, preset) for row in of])
        ids = ", ".join(f"`{row.id}`" for row in bad) or "none"
        name = f"{preset} (dressed)" if preset in FORMS else preset
        lines.append(f"| `{name}` | {len(of):,} | {1 - len(bad) / len(of):.3%} | {ids} |")
    return "\n".join([*lines, "", _DRESSED])


def _math(found: dict[str, list[Row]]) -> str:
    lines = [
        "| verifier | gold solutions | pass | corrupted answers | fail |",
        "|---|---|---|---|---|",
    ]
    differing: dict[str, tuple[Row, list[str]]] = {}
    for preset in SYMBOLIC:
        cells = []
        for name in ("math-gold", "math-corrupted"):
            bad = wrong(preset, found[name])
            for row in bad:
                differing.setdefault(row.id, (row, []))[1].append(preset)
            n = len(found[name])
            cells += [f"{n:,}", f"{n - len(bad):,} ({1 - len(bad) / n:.3%})"]
        lines.append(f"| `{preset}` | {' | '.join(cells)} |")
    lines += [
        "",
        "Every exception:",
        "",
        "| id | verifiers | reference | why |",
        "|---|---|---|---|",
    ]
    for id, (row, presets) in sorted(differing.items()):
        why = _class(OURS, row).why
        lines.append(f"| `{id}` | {', '.join(presets)} | {_code(row.gold)} | {why} |")
    return "\n".join([*lines, "", EMPTY])


def _theirs(found: dict[str, list[Row]], kept: dict[str, list[str]]) -> str:
    lines = [
        _COMPARED,
        "| set | rows | as expected: math-verify | ours | alike |",
        "|---|---|---|---|---|",
    ]
    classes: dict[str, list[Row]] = {}
    for name, of in found.items():
        theirs, ours = set(kept[name]), {row.id for row in wrong("math-verify", of)}
        n, differing = len(of), [row for row in of if (row.id in theirs) != (row.id in ours)]
        rates = [1 - len(theirs) / n, 1 - len(ours) / n, 1 - len(differing) / n]
        lines.append(f"| {name} | {n:,} | {' | '.join(f'{rate:.3%}' for rate in rates)} |")
        for row in differing:
            classes.setdefault(_class(THEIRS, row).name, []).append(row)
    for one in THEIRS:
        if one.name in classes:
            lines += ["", *_section(one, classes[one.name])]
    return "\n".join([*lines, ""])


def _section(one: Class, of: list[Row]) -> Iterator[str]:
    yield f"### {one.name}: {len(of)}\n"
    yield f"{one.why} **Right: {one.right}.**\n"
    for row in of[:SHOWN]:
        said = "the whole solution" if row.id.count("/") == 0 else _code(row.response)
        yield f"- `{row.id}`: {_code(row.gold)}, given {said}"
    if len(of) > SHOWN:
        yield f"- and {len(of) - SHOWN} more of the same kind"


def _class(classes: Sequence[Class], row: Row) -> Class:
    for one in classes:
        if one.holds(row):
            return one
    raise LookupError(f"nobody has judged {row.id}: {row.gold!r} against {row.response[-80:]!r}")


def _code(text: str) -> str:
    return f"`{' '.join(text.split())}`".replace("|", "\\|")


_INTRODUCTION = """# What the maths verifiers say, checked

Written by `benchmarks/verifier_agreement.py` from the data; the reasons are by hand, in
`benchmarks/verifier_reasons.yaml`. A test fails when a verdict is not as this page says.
"""
_DRESSED = """\
The labels are those published with the solutions. The solutions end in `A: N`, a form that
`gsm8k-strict` and `minerva` do not take for an answer: as they stand, these two pass none of
them. For these two the last line was turned into `#### N` and
`The final answer is $N$. I hope it is correct.`
"""
_COMPARED = """\
The package as its users call it, with its timeouts of 5 seconds, against our preset of the same
name, which follows its purpose and not its faults. Expected: the label; right for a gold
solution; wrong for an answer with one digit changed, its sign flipped, or its two ends swapped.
"""

if __name__ == "__main__":
    main()
