"""The generated pages on keys and options: ``config-reference.md`` and ``loss-options.md``."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rlvr_core.api import config_class
from rlvr_core.builtin.configs.keys import Key, component_keys, run_keys
from rlvr_core.host.discovery import CORE
from rlvr_core.host.host import load_host

_HEAD = """# Every key of a configuration

Written by `tools/docs.py` from `rlvr_core/config/model.py`; do not edit it by hand. How files,
options and variables work together is in [config.md](config.md). The options of components
(`with:`) are theirs: `rlvr list KIND NAME`, or `rlvr config explain loss.with`.
"""


_LOSS_HEAD = """# Options of every loss

Written by `tools/docs.py` from the losses themselves; do not edit it by hand. What they mean
together is in [losses.md](losses.md).
"""


def loss_options() -> str:
    """The page: what most losses share first, then what each has beyond it."""
    entries = [entry for entry in load_host().registry.of("loss") if entry.plugin == CORE]
    keys = {e.name: component_keys(config_class(e.load()), ("loss",)) for e in entries}
    policy = [one for one in keys.values() if any(key.path == "loss.with.beta" for key in one)]
    shared = [key for key in policy[0] if all(key in one for one in policy)]
    parts = [_LOSS_HEAD, "## Every loss on rewards\n", _table(shared)]
    for entry in entries:
        own = [key for key in keys[entry.name] if key not in shared]
        parts.append(f"## `{entry.leaf}`\n\n{entry.summary}\n")
        parts.append(_table(own) if own else "No options beyond these.\n")
    return "\n".join(parts)


def reference() -> str:
    """The page: one table for each section, in the order of the model."""
    keys = run_keys()
    parts = [_HEAD]
    for top in (key for key in keys if len(key.loc) == 1):
        below = [key for key in keys if key.loc[0] == top.loc[0] and len(key.loc) > 1]
        parts.append(f"## `{top.path}`\n\n{top.description}\n")
        if not top.section or "component" in top.type:
            parts.append(f"Takes {key_cell(top.type)}. {_default(top)}.\n")
        if below:
            parts.append(_table(below))
    return "\n".join(parts)


def _table(keys: Sequence[Key]) -> str:
    lines = ["| key | takes | default | meaning |", "|---|---|---|---|"]
    for key in keys:
        default = "" if key.section and not key.required else key_default(key)
        row = (f"`{key.path}`", key_cell(key.type), default, key_cell(key.description))
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _default(key: Key) -> str:
    return "Required" if key.required else f"Default: {key_default(key)}"


def key_default(key: Key) -> str:
    """A key's default as a cell of a table."""
    return "required" if key.required else f"`{json.dumps(key.default, ensure_ascii=False)}`"


def key_cell(text: str) -> str:
    """Text as a cell of a table: no column, tag or footnote of it is Markdown's."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("[^", "\\[^")
