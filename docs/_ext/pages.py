"""What the pages need beyond MyST to be plain Markdown that a code host shows as well.

- A link to a file outside ``docs/`` becomes a link to the repository at ``source_url``; without one
  it is shown as text. A file that does not exist is a warning, and so an error of the build.
- A link whose text is the file name of another page has that page's title as its text.
- ``index.md`` lists the pages under headings; the navigation is made of these lists, and of the
  generated pages in ``_generated``, where ``make docs`` has written them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

_LOG = logging.getLogger(__name__)
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_OUTWARD = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((\.\./[^)\s]+)\)")
_NAMED = re.compile(r"\[`?([\w-]+)\.md`?\]\((\1\.md(?:#[\w-]+)?)\)")
_LISTED = re.compile(r"^- \[[^\]]+\]\(([\w-]+)\.md\)", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what is changed in the text of pages."""
    app.add_config_value("source_url", "", "env", str)
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    text = "".join(_resolved(app, page, source[0]))
    if page == app.config.root_doc:
        text += navigation(text) + _reference(Path(app.srcdir) / "_generated")
    source[0] = text


def _resolved(app: Sphinx, page: str, text: str) -> Iterator[str]:
    """The page's lines, with the links outward changed in those that are prose."""
    fence = ""
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence):
            fence = ""
        elif not fence:
            line = _OUTWARD.sub(lambda link, n=number: _outward(app, page, n, link), line)
            line = _NAMED.sub(lambda link: f"[{_title(app, link[1])}]({link[2]})", line)
        yield line


def _outward(app: Sphinx, page: str, line: int, link: re.Match[str]) -> str:
    shown, target = link.groups()
    path, _, anchor = target.partition("#")
    source = Path(app.srcdir).resolve()
    root = source.parent
    found = (source / page).parent.joinpath(path).resolve()
    if found.is_relative_to(source):  # of a generated page, to one that is not
        return link[0]
    if not found.exists() or not found.is_relative_to(root):
        _LOG.warning("link to a file that does not exist: %s", target, location=(page, line))
        return shown
    place = found.relative_to(root).as_posix()
    if app.config.source_url:
        url = f"{app.config.source_url.rstrip('/')}/{place}"
        return f"[{shown}]({url}{'#' + anchor if anchor else ''})"
    plain = shown.strip("`")
    return f"`{place}`" if place.endswith(plain.rstrip("/")) else f"{shown} (`{place}`)"


def _title(app: Sphinx, page: str) -> str:
    file = Path(app.srcdir) / f"{page}.md"
    if not file.is_file():  # Sphinx reports the broken link
        return page
    return file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def navigation(text: str) -> str:
    """A hidden table of contents for each heading of the index that has pages listed under it."""
    made = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        caption, _, rest = section.partition("\n")
        listed = _LISTED.findall(rest)
        if listed:
            names = "\n".join(listed)
            made.append(_toctree(caption, names))
    return "".join(made)


def _reference(folder: Path) -> str:
    """The table of contents of the generated pages, where there are any."""
    names = sorted(f"{folder.name}/{file.stem}" for file in folder.glob("*.md"))
    return _toctree("Reference", "\n".join(names)) if names else ""


def _toctree(caption: str, names: str) -> str:
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{names}\n```\n"
