"""``rlvr examples``: list them, and copy one to where it can be changed."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from rlvr_core.api import ConfigError
from rlvr_core.examples.catalog import FOLDER, Example, examples, find_example
from rlvr_core.examples.copying import copy_files
from rlvr_core.terminal.output import is_terminal, print_json, print_line, print_table


@click.group("examples")
def examples_() -> None:
    """List the examples that come with rlvr, and copy them.

    Example: rlvr examples copy quickstart
    """


@examples_.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def list_(as_json: bool) -> None:
    """List the examples with description, duration and required plugins."""
    rows = [(each.name, ", ".join(each.plugins), each.summary) for each in examples()]
    if as_json:
        print_json(
            [
                {"name": each.name, "plugins": each.plugins, "summary": each.summary}
                for each in examples()
            ]
        )
        return
    print_table(("example", "plugins", "what it is"), rows)
    if is_terminal():
        print_line(f"rlvr examples copy NAME puts one into ./{FOLDER}")


@examples_.command()
@click.argument("name")
@click.argument("folder", type=click.Path(path_type=Path), default=Path(FOLDER))
def copy(name: str, folder: Path) -> None:
    """Copy example NAME with the files that it extends, into FOLDER ("examples" by default).

    Nothing is overwritten: a file that is there and differs stops the command before it has copied
    anything.
    """
    example = find_example(name)
    if example is None:
        raise _unknown(name)
    written, kept = copy_files(example, folder)
    for file in written:
        print_line(f"wrote {file}")
    for file in kept:
        print_line(f"{file} is there already")
    _say_what_next(example, folder)


def _say_what_next(example: Example, folder: Path) -> None:
    if example.plugins:
        needed = ", ".join(f"rlvr-{plugin}" for plugin in example.plugins)
        print_line(f"its plugins: {needed} (rlvr plugins list shows what is installed)")
    if example.command:
        print_line(f"next: {example.command.replace(f'{FOLDER}/', f'{folder}/')}")
    elif example.path.is_dir():
        print_line(f"next: read {folder / example.name / 'README.md'}")


def _unknown(name: str) -> ConfigError:
    names = [each.name for each in examples()]
    close = difflib.get_close_matches(name, names, n=3)
    remedy = [f"did you mean: {', '.join(close)}?"] if close else []
    return ConfigError(
        f"there is no example '{name}'", remedy=[*remedy, "all of them: rlvr examples list"]
    )
