"""``rlvr passk``: pass@k, difficulty, curricula."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlvr_core.api import ConfigError
from rlvr_core.eval.options import Options, common, open_session, say
from rlvr_core.terminal import output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Row = dict[str, Any]


@click.command()
@click.argument("model", required=False)
@common
@click.option("--n", type=click.IntRange(1), default=128, show_default=True, help="Completions.")
@click.option("--k", "ks", default="1", show_default=True, help="Which k, as in 1,2,4,8.")
@click.option(
    "--temperature",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Of sampling.",
)
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), default=1.0, help="1 is off.")
@click.option("--top-k", type=click.IntRange(0), default=0, help="0 is off.")
@click.option("--max-tokens", type=click.IntRange(1), help="Cap instead of the task's own.")
@click.option("--curriculum", type=click.Path(path_type=Path), help="Write ids, easiest first.")
@click.option("--min", "low", type=click.FloatRange(0, 1), default=0.0, help="Least pass rate.")
@click.option("--max", "high", type=click.FloatRange(0, 1), default=1.0, help="Largest one.")
@click.option("--sft", type=click.Path(path_type=Path), help="Write correct completions.")
def passk(
    model: str | None,
    *,
    n: int,
    ks: str,
    temperature: float,
    top_p: float,
    top_k: int,
    max_tokens: int | None,
    curriculum: Path | None,
    low: float,
    high: float,
    sft: Path | None,
    **options: Any,
) -> None:
    """Sample each problem --n times: pass@k by the unbiased estimator, and how hard each is.

    MODEL and what concerns the task are as in `rlvr eval`. The same command again goes on where it
    was stopped.

    Writes difficulty.jsonl beside the results. --min and --max choose what --curriculum writes.

    Example: rlvr passk last --task math/gsm8k-test --n 16 --k 1,4,16 --curriculum order.txt
    """
    from rlvr_core.eval.evaluate import check_truncation
    from rlvr_lab.passk import check_ks, run, summarise

    given, requested_ks = Options(**options), _ks(ks)
    _check_files(curriculum, sft, (low, high))
    check_ks(requested_ks, n)
    sampling: Row = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
    sampling |= {} if max_tokens is None else {"max_tokens": max_tokens}
    session, folder = open_session(model, given, n=n, sampling=sampling)
    folders = run(session, given.out or folder.with_name(f"{folder.name}-passk"), say)
    summaries = {str(folder): summarise(folder, requested_ks) for folder in folders}
    _report(summaries, as_json=given.as_json)
    check_truncation(summaries)
    _files(folders, curriculum, (low, high), sft)


def _check_files(curriculum: Path | None, sft: Path | None, rates: tuple[float, float]) -> None:
    """Report mistakes in the options before anything is sampled."""
    low, high = rates
    for path, flag in ((curriculum, "--curriculum"), (sft, "--sft")):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise ConfigError(
                f"'{path}' cannot be written: it is a folder, or its folder is missing", where=flag
            )
    if low > high:
        raise ConfigError(f"--min {low:g} is above --max {high:g}: no problem would be left")
    if curriculum is None and (low, high) != (0.0, 1.0):
        raise ConfigError("--min and --max choose what --curriculum FILE writes; name the file")


def _report(summaries: Mapping[str, Row], *, as_json: bool) -> None:
    from rlvr_core.eval.command import cells, spent

    if as_json:
        output.print_json({"tasks": summaries})
        return
    for folder, summary in summaries.items():
        output.print_line(
            f"{summary['task']}: {summary['n_problems']} problems x "
            f"{summary['n_per_problem']}, truncated "
            f"{summary['truncation_rate']:.1%}, spec {summary['spec_hash'][:16]}"
        )
        rows = [(f"pass@{k}", *cells(estimate)) for k, estimate in summary["pass_at_k"].items()]
        output.print_table(("metric", "value", "95% interval", "n", "by"), rows)
        output.print_line(
            f"never solved: {summary['solved_never']}, always: {summary['solved_always']}"
        )
        if "usage" in summary:
            output.print_line(f"asked model: {spent(summary['usage'])}")
        output.print_line(f"results: {folder}")


def _files(
    folders: Sequence[Path],
    curriculum: Path | None,
    rates: tuple[float, float],
    sft: Path | None,
) -> None:
    from rlvr_lab.passk import write_curriculum, write_sft

    if curriculum is not None:
        count = write_curriculum(curriculum, folders, *rates)
        say(f"{count} ids with a pass rate from {rates[0]:g} to {rates[1]:g}: {curriculum}")
    if sft is not None:
        written, left_out = write_sft(sft, folders)
        say(f"{written} correct completions: {sft}")
        for what, count in left_out.items():
            say(f"left out: {count} {what}")


def _ks(text: str) -> list[int]:
    try:
        return sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise ConfigError(
            f"'{text}' is no list of numbers", where="--k", remedy="as in 1,2,4"
        ) from None
