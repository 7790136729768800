"""``rlvr show``: reports on a run, using only its folder."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlvr_core.terminal.output import is_terminal, print_json, print_line

if TYPE_CHECKING:
    from rlvr_core.cli.plot import Points
    from rlvr_core.record.view import RunView

_WIDTH = 76
_PROMPT_CHARACTERS = 600
_ANSWER_CHARACTERS = 600


@click.command()
@click.argument("run", default="last")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.option(
    "--runs-dir", default="runs", show_default=True, metavar="DIR", help="Where runs are."
)
@click.option(
    "--rollouts",
    type=click.IntRange(min=0),
    metavar="N",
    help="Show the last N groups of completions [default: 1; with --json none].",
)
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAME", help="Plot this metric; may be repeated."
)
def show(
    run: str,
    as_json: bool,
    runs_dir: str,
    rollouts: int | None,
    metrics: tuple[str, ...],
) -> None:
    """Show what a run did: its outcome, learning curve, ledger and sample answers.

    RUN is 'last' (the default), a run's name, the beginning of one, or its folder. It needs the
    folder only, so runs copied from elsewhere, running ones and half-broken ones can be shown.
    """
    from rlvr_core.record.view import RunView

    view = RunView.find(run, runs_dir)
    summary = full_summary(view)
    chosen = _chosen_metrics(view, metrics)
    shown_groups = rollouts if rollouts is not None else int(not as_json)
    groups = last_lines(view.folder.traces / "rollouts.jsonl", shown_groups)
    if as_json:
        if chosen:
            summary["metrics"] = {
                name: {"step": list(steps), "value": list(values)}
                for name, (steps, values) in chosen.items()
            }
        if rollouts:
            summary["rollouts"] = groups
        print_json(summary)
        return
    from rlvr_core.record.curves import before_after

    for line in report(summary, chosen, before_after(view), groups):
        print_line(line)


def report(
    summary: Mapping[str, Any],
    chosen: Mapping[str, Points],
    pairs: Sequence[Mapping[str, Any]],
    groups: Sequence[Mapping[str, Any]],
) -> Iterator[str]:
    """Yield the lines of the report, safe on a terminal whatever a model wrote."""
    for place, (title, lines) in enumerate(sections(summary, chosen)):
        yield from ("", _bold(title)) if place else (_bold(title),)
        yield from lines
    if pairs:
        yield from ("", _bold("held-out answers, before and after"))
        for pair in pairs:
            yield from _pair(pair)
    if groups:
        yield from ("", _bold("last rollouts"))
        for group in groups:
            yield from _group(group)


def full_summary(view: RunView) -> dict[str, Any]:
    """Return a run's summary, with meta and speed."""
    from rlvr_core.record.speed import seconds_by_phase

    summary = view.summary()
    summary["meta"] = {k: v for k, v in (view.config.get("meta") or {}).items() if v is not None}
    summary["speed"] = {"seconds": seconds_by_phase(view)}
    return summary


def last_lines(path: Path, n: int) -> list[dict[str, Any]]:
    """Return the last ``n`` lines of a stream; of a long one only the files that have them."""
    from rlvr_core.record.jsonl import read_jsonl, segments

    lines: list[dict[str, Any]] = []
    for part in (path, *reversed(segments(path))):
        if len(lines) >= n:
            break
        lines = [*deque(read_jsonl(part), maxlen=n - len(lines)), *lines]
    return lines


def sections(
    summary: Mapping[str, Any], chosen: Mapping[str, Points]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the parts about the whole run, each as title and lines, safe on a terminal."""
    from rlvr_core.cli.plot import plot
    from rlvr_core.record.results import facts
    from rlvr_core.record.text import printable

    rows = [("folder", summary["folder"]), *facts(summary)]
    rows += [(key, str(value)) for key, value in summary.get("meta", {}).items()]
    if by_age := summary.get("staleness"):
        ages = (f"{count:,} {_updates(age)} old" for age, count in by_age.items())
        rows.append(("staleness", f"completions trained on: {', '.join(ages)}"))
    rows += [("note", note) for note in summary["notes"]]
    yield (
        printable(summary["name"]),
        [f"  {printable(label):<12}{printable(value)}" for label, value in rows],
    )
    if drawing := plot(chosen or _learning_curve(summary), width=_WIDTH):
        yield "metrics" if chosen else "learning curve", printable(drawing).split("\n")
    if seconds := summary.get("speed", {}).get("seconds"):
        from rlvr_core.record.speed import lines_of

        yield "time of a step", [printable(line) for line in lines_of(seconds)]
    if "ledger" in summary:
        yield "ledger: where every completion went", list(_ledger(summary["ledger"]))


def _chosen_metrics(view: RunView, names: Sequence[str]) -> dict[str, Points]:
    """Return the series of the requested metrics.

    Raises:
        ConfigError: If the run has no metric of that name.
    """
    import difflib

    from rlvr_core.api import Complaint, ConfigError

    lines = view.metrics.rows
    known = sorted(view.metrics.keys() - {"step", "version"})
    wrong = []
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known[:8]
            remedy = (f"it has: {', '.join(near)}",) if near else ()
            wrong.append(
                Complaint(f"the run has no metric '{name}'", str(view.folder.metrics), remedy)
            )
    if wrong:
        raise ConfigError.collect(wrong)
    return {
        name: ([line["step"] for line in lines], [_number(line.get(name)) for line in lines])
        for name in names
    }


def _learning_curve(summary: Mapping[str, Any]) -> dict[str, Points]:
    curve = summary["curve"]
    # a step's metrics are those of the policy before its update, like an evaluation after that many
    # steps
    series: dict[str, Points] = {
        "reward": (curve["step"], curve["reward"]),
        "pass rate": (curve["step"], curve["pass_rate"]),
    }
    if curve["reward"] == curve["pass_rate"]:
        series = {"reward and pass rate": series["reward"]}
    for evaluation in curve["evals"]:
        label = f"{evaluation['task']} {evaluation['metric']}" + (
            "" if evaluation["temperature"] else " (greedy)"
        )
        series[label] = (evaluation["step"], evaluation["value"])
    return series


def _updates(age: str) -> str:
    return "1 update" if age == "1" else f"{age} updates"


def _ledger(ledger: Mapping[str, Any]) -> Iterator[str]:
    counts = {name: count for name, count in ledger.items() if name != "balanced"}
    drawn = counts.pop("drawn")
    width = len(f"{drawn:,}")
    yield f"  {'drawn':<28}{drawn:>{width},}"
    for name, count in counts.items():
        if "/" not in name:
            share = f"{count / drawn:7.1%}" if drawn else ""
            yield f"  = {name.replace('_', ' '):<26}{count:>{width},}{share}"
            for detail, part in counts.items():
                if detail.startswith(f"{name}/") and count:
                    label = detail.partition("/")[2].replace("_", " ")
                    yield f"      {label:<22}{part:>{width},}"
    if not ledger["balanced"]:
        yield "  IT DOES NOT BALANCE: some completions are unaccounted for"


def _pair(pair: Mapping[str, Any]) -> Iterator[str]:
    from rlvr_core.record.text import printable

    yield f"  {printable(str(pair['problem_id']))}"
    yield from _block("prompt", pair["prompt"], _PROMPT_CHARACTERS)
    for when in ("before", "after"):
        row = pair[when]
        yield from _block(f"{when} {_mark(row)}", row.get("text"), _ANSWER_CHARACTERS)
    yield ""


def _group(group: Mapping[str, Any]) -> Iterator[str]:
    from rlvr_core.record.text import printable

    rows = [row for row in group.get("completions", []) if isinstance(row, dict)]
    at = group.get("step")
    counted = f"step {at + 1}" if isinstance(at, int) else "no step"
    place = f"{counted}, {group.get('problem_id')}, {len(rows)} completions"
    yield f"  {printable(place)}"
    yield from _block("prompt", group.get("prompt"), _PROMPT_CHARACTERS)
    ranked = sorted(rows, key=lambda row: -(_number(row.get("reward")) or 0.0))
    for row in ranked if len(ranked) < 2 else (ranked[0], ranked[-1]):
        heading = [_mark(row), f"reward {_shown(row.get('reward'))}"]
        if row.get("advantage") is not None:
            heading.append(f"advantage {_shown(row['advantage'])}")
        heading.append(str(row.get("fate", "")))
        yield from _block(" ".join(filter(None, heading)), _text(row), _ANSWER_CHARACTERS)
    yield ""


def _block(label: str, text: Any, limit: int) -> Iterator[str]:
    """Yield a labelled text, each line prefixed by a bar so that none can imitate our output."""
    from rlvr_core.record.text import printable

    yield f"    {printable(label)}"
    for line in printable(str(text or ""), limit).split("\n"):
        yield f"    | {line}"


def _text(row: Mapping[str, Any]) -> Any:
    """Return the text of a completion; of a conversation, every turn behind its role."""
    turns = (row.get("transcript") or {}).get("turns")
    if not turns:
        return row.get("text")
    return "\n".join(f"{turn.get('role')}: {turn.get('text') or ''}" for turn in turns)


def _mark(row: Mapping[str, Any]) -> str:
    return {True: "[right]", False: "[wrong]"}.get(row.get("passed"), "[not judged]")  # type: ignore[arg-type]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _shown(value: Any) -> str:
    number = _number(value)
    return "none" if number is None else f"{number:.3g}"


def _bold(text: str) -> str:
    import os

    plain = "NO_COLOR" in os.environ or not is_terminal()
    return text if plain else click.style(text, bold=True)
