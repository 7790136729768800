"""The page of every key of a configuration, from ``rlvr_core/config/model.py``."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rlvr_core.config.keys import Key, run_keys

_HEAD = """# Every key of a configuration

Written by `tools/docs.py` from `rlvr_core/config/model.py`. [config.md](../config.md) explains how
files, `--set` and environment variables work together. `rlvr config explain KEY` prints the same
for one key, and `rlvr list KIND NAME` the options of a component (`with:`).
"""


def page() -> str:
    """The page: one table for each section, in the order of the model."""
    keys = run_keys()
    parts = [_HEAD]
    for top in (key for key in keys if len(key.loc) == 1):
        below = [key for key in keys if key.loc[0] == top.loc[0] and len(key.loc) > 1]
        parts.append(f"## `{top.path}`\n\n{top.description}\n")
        if not top.section or "component" in top.type:
            parts.append(f"Takes {cell(top.type)}. {_default(top)}.\n")
        if below:
            parts.append(_table(below))
    return "\n".join(parts)


def _table(keys: Sequence[Key]) -> str:
    lines = ["| key | takes | default | meaning |", "|---|---|---|---|"]
    for key in keys:
        default = "" if key.section and not key.required else default_cell(key)
        row = (f"`{key.path}`", cell(key.type), default, cell(key.description))
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _default(key: Key) -> str:
    return "Required" if key.required else f"Default: {default_cell(key)}"


def default_cell(key: Key) -> str:
    """A key's default as a cell of a table."""
    return "required" if key.required else f"`{json.dumps(key.default, ensure_ascii=False)}`"


def cell(text: str) -> str:
    """Text as a cell of a table: no column, tag or footnote of it is Markdown's."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("[^", "\\[^")
