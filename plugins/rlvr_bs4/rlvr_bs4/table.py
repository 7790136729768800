"""The page ARCHETYPES.md, made from the archetypes themselves."""

from __future__ import annotations

from rlvr_bs4 import catalog

_HEAD = """\
# Archetypes

Written by `tools/docs.py` from the code. `primer.*` and `mvp.*` are the names of an older
environment, kept where the kind of task is the same; `web.*` are new. Phase 1 is the mode `mvp`.
"""


def page() -> str:
    """The page as Markdown."""
    lines = [_HEAD]
    lines.append("| id | category | difficulty | phase | what it asks for | bugs that fail |")
    lines.append("|---|---|---|---|---|---|")
    for kind in catalog.everything().values():
        bugs = ", ".join(kind.bugs)
        about = f"{kind.category} | {kind.difficulty} | {kind.phase} | {kind.summary}"
        lines.append(f"| `{kind.id}` | {about} | {bugs} |")
    return "\n".join(lines) + "\n"
