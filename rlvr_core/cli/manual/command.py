"""``rlvr docs``: print a page of the documentation, or list the pages."""

from __future__ import annotations

import click

from rlvr_core.cli.manual.pages import listed, read_page
from rlvr_core.terminal.output import is_terminal, print_line, print_table


@click.command("docs")
@click.argument("page", metavar="[PAGE[#SECTION]]", required=False)
def docs(page: str | None) -> None:
    """Print PAGE of the documentation, or one SECTION of it; without PAGE, list the pages.

    A page can be named as messages name it, docs/guards.md#parity, or in short, guards#parity.

    Example: rlvr docs tutorial
    """
    if page is None:
        print_table(("page", "what it has"), listed())
        return
    text = read_page(page)
    if is_terminal():
        click.echo_via_pager(text)
    else:
        print_line(text.rstrip("\n"))
