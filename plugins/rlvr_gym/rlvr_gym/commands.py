"""``rlvr gym``: which generators there are, and how each is made harder."""

from __future__ import annotations

import click

from rlvr_core.terminal import output
from rlvr_gym.entries import category, check_task, curriculum, defaults, entry, names
from rlvr_gym.fences import FENCED, fenced_levels
from rlvr_gym.rules import ALSO, JUDGED


@click.command("list")
def list_them() -> None:
    """List the generators with their number of levels, and why some are fenced."""
    rows = []
    for task in names():
        levels = max(map(len, curriculum(task).values()), default=0)
        rows.append((task, category(task), str(levels or "-"), FENCED.get(task, "")))
    output.print_table(("generator", "category", "levels", "fenced because"), rows)


@click.command()
@click.argument("task")
def show(task: str) -> None:
    """Show the options of generator TASK, what its levels set, and an example."""
    check_task(task, allow_fenced=True, where="TASK")
    if task in FENCED:
        output.print_line(f"fenced: {FENCED[task]}")
    for rules, how in ((JUDGED, "in place of its scoring"), (ALSO, "in addition to its scoring")):
        if task in rules:
            output.print_line(f"judged by a rule {how}: {rules[task][1]}")
    levels = curriculum(task)
    options = [(name, str(value)) for name, value in sorted(defaults(task).items())]
    output.print_table(("option", "default"), options)
    if levels:
        rows = [(name, ", ".join(map(str, values))) for name, values in levels.items()]
        output.print_table(("parameter of the curriculum", "levels 0, 1, ..."), rows)
    for (name, level), why in fenced_levels().items():
        if name == task:
            output.print_line(f"level {level} is fenced: {why}")
    made = entry(task, {}, 42, 0)
    output.print_line(f"\n{made['question']}\n\nanswer: {made['answer']}")
