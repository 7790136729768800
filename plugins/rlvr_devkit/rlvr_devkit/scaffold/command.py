"""``rlvr new``: write the package of a plugin."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from rlvr_core.api import ConfigError
from rlvr_core.plugins.registry import parse_kind
from rlvr_core.toolkit import kind_words, print_line
from rlvr_devkit.scaffold.kinds import TEMPLATES
from rlvr_devkit.scaffold.names import check_name
from rlvr_devkit.scaffold.package import render, write


class _WithKinds(click.Command):
    """A command whose help ends in the list of kinds."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list."""
        with formatter.section("Kinds, and what is written"):
            rows = [(kind, template.does.replace("`", "")) for kind, template in TEMPLATES.items()]
            formatter.write_dl(rows)


@click.command("new", cls=_WithKinds)
@click.argument("kind")
@click.argument("name")
@click.option(
    "--into",
    "parent",
    type=click.Path(path_type=Path),
    default=Path(),
    metavar="FOLDER",
    help="Folder that the package's folder is made in; by default this one.",
)
def new(kind: str, name: str, parent: Path) -> None:
    """Write the package of a plugin with a component of a KIND, called NAME.

    The package is whole: it can be installed, its tests pass, and its component works and can be
    named in a configuration. What it does is simple, and there to be changed.
    """
    known = _parse(kind)
    names = check_name(name)
    folder = parent / name
    files = render(known, names)
    write(files, folder)
    template = TEMPLATES[known]
    print_line(f"{folder}: {template.noun}, plugin '{name}': {template.does}")
    for path in files:
        print_line(f"  {path}")
    print_line(f"""
next:
  pip install -e "{folder}[test]"
  rlvr plugins check {name}
  python -m pytest {folder}
then change {folder / names.module}.py; see {template.page}""")


def _parse(text: str) -> str:
    word = text.lower().replace("-", "_")
    if known := parse_kind(text):
        return known
    for kind in TEMPLATES:
        if word in (kind, f"{kind}s"):
            return kind
    close = difflib.get_close_matches(word, TEMPLATES, n=1)
    remedy = [f"did you mean: {close[0]}?"] if close else []
    kinds = ", ".join(TEMPLATES)
    raise ConfigError(
        f"there is no kind '{kind_words(text)}'", remedy=[*remedy, f"the kinds are: {kinds}"]
    )
