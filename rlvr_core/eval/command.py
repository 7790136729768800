"""``rlvr eval``: a model or checkpoint on held-out tasks."""

from __future__ import annotations

from typing import Any

import click

from rlvr_core.eval.options import Options, common, open_session, say
from rlvr_core.terminal import output

Row = dict[str, Any]


@click.command("eval")
@click.argument("model", required=False)
@common
def eval_(model: str | None, **options: Any) -> None:
    """Evaluate MODEL on the tasks given.

    MODEL is a model's folder, a checkpoint, a hub id, tiny:TASK, or a run (its name, its folder or
    'last': its newest complete checkpoint, or --step). A checkpoint is asked with the prompt
    section and dtype of its run. openai:NAME is a model behind an OpenAI-compatible API, at
    --set engine.with.base_url=URL. The same command again goes on where it was stopped.

    Example: rlvr eval last --task math/gsm8k-test --task ifeval/ifeval
    """
    from rlvr_core.terminal.live import waiting as waiting_for

    given = Options(**options)
    with waiting_for("the model and the tasks") as waiting:
        # what it imports takes seconds
        from rlvr_core.eval.evaluate import check_truncation, evaluate

        session, folder = open_session(model, given)
        out = given.out or folder
        summaries = evaluate(session, out, say, waiting)
    if given.as_json:
        output.print_json({"folder": str(out), "tasks": summaries})
    else:
        for name, summary in summaries.items():
            _print(name, summary)
        output.print_line(f"results: {out}")
    check_truncation(summaries)


def _print(name: str, summary: Row) -> None:
    output.print_line(
        f"{name}: {summary['n_problems']} problems x {summary['n_per_problem']}, "
        f"{_drawn(summary['sampling'])}spec {summary['spec_hash'][:16]}"
    )
    rows = [(metric, *cells(estimate)) for metric, estimate in summary["metrics"].items()]
    for grader, numbers in summary["graders"].items():
        shown = {key: numbers[key] for key in ("passed", "score", "extracted") if key in numbers}
        shown |= {f"part {part}": estimate for part, estimate in numbers.get("parts", {}).items()}
        rows += [(f"{grader}: {key}", *cells(estimate)) for key, estimate in shown.items()]
    for tag, values in summary["strata"].items():
        rows += [
            (f"accuracy, {tag}={value}", *cells(estimate)) for value, estimate in values.items()
        ]
    task_metrics = {
        key: estimate for key, estimate in summary["task_metrics"].items() if key not in _SAME
    }
    rows += [(f"task: {metric}", *cells(estimate)) for metric, estimate in task_metrics.items()]
    output.print_table(("metric", "value", "95% interval", "n", "by"), rows)
    for who, numbers in (("model", summary), *summary["graders"].items()):
        if "usage" in numbers:
            output.print_line(f"asked {who}: {spent(numbers['usage'])}")


def _drawn(sampling: Row | None) -> str:
    if sampling is None:
        return ""
    heat = sampling["temperature"]
    drawn = "greedy" if heat == 0 else f"temperature {heat:g}"
    return f"{drawn}, at most {sampling['max_tokens']} tokens, "


_SAME = {"truncated", "length"}
"""Task metrics that the summary already contains."""


def spent(usage: Row) -> str:
    """Return requests, tokens, cost and latency of a remote model, in words."""
    parts = [f"{usage['answers']} answers", f"{usage['requests']} requests"]
    if "prompt_tokens" in usage:
        parts.append(f"{usage['prompt_tokens']} + {usage['completion_tokens']} tokens")
    if usage["uncounted"]:
        parts.append(f"{usage['uncounted']} answers without a count")
    if "cost" in usage:
        parts.append(f"cost {usage['cost']:.6g}")
    parts.append(f"{usage['seconds_p50']:.2f} s an answer (p99 {usage['seconds_p99']:.2f})")
    return ", ".join(parts)


def cells(estimate: Row) -> tuple[str, str, str, str]:
    """Return value, interval, n and method of an estimate, as table cells."""
    value = "-" if estimate["value"] is None else f"{estimate['value']:.4f}"
    interval = (
        "-" if estimate["low"] is None else f"{estimate['low']:.4f} to {estimate['high']:.4f}"
    )
    return value, interval, str(estimate["n"]), estimate["method"]
