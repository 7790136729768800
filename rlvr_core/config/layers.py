"""Layers of a configuration: ``extends``, ``--set``, ``${env:NAME}``.

Mappings merge deeply and lists replace. When a layer changes a component's ``use``, the inherited
``with`` is dropped, because it holds the options of another component.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from rlvr_core.api import Complaint, ConfigError
from rlvr_core.config.dialect import MAX_DEPTH, read_option
from rlvr_core.config.tree import Loc, Mark, Node, dotted, kind_at, same_component

_STEP = re.compile(r"[^\s.=]+")
_ENV = re.compile(
    r"\$\$\{|\$\{env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{[^}]*\}?"
)
_SECRET = re.compile(
    r"(?:^|_)(?:API_?KEY|ACCESS_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)"
    r"[0-9]*(?:_|$)",
    re.IGNORECASE,
)


def merge(base: Node, over: Node, loc: Loc = ()) -> Node:
    """Merge ``over`` on top of ``base``; neither is changed."""
    if kind_at(loc):
        base, over = as_reference(base), as_reference(over)
    if not (isinstance(base.value, dict) and isinstance(over.value, dict)):
        return over
    inherited = dict(base.value)
    if kind_at(loc) and "use" in over.value and not _same_use(base, over.value["use"]):
        inherited.pop("with", None)
    for key, node in over.value.items():
        below = inherited.get(key)
        inherited[key] = node if below is None else merge(below, node, (*loc, key))
    return Node(inherited, over.mark, over.key_mark)


def as_reference(node: Node) -> Node:
    """Expand a component given by its bare name to a ``{use: NAME}`` mapping."""
    if not isinstance(node.value, str):
        return node
    return Node({"use": Node(node.value, node.mark, node.key_mark)}, node.mark, node.key_mark)


def _same_use(base: Node, use: Node) -> bool:
    before = base.value.get("use")
    return before is None or same_component(before.value, use.value)


def split_option(option: str, flag: str) -> tuple[str, str]:
    """Split ``key.path=value`` into key and value.

    Raises:
        ConfigError: If it has no ``=``, or its key is not a dotted path.
    """
    path, equals, text = option.partition("=")
    path = path.strip()
    steps = path.split(".")
    if not equals or not all(_STEP.fullmatch(step) for step in steps):
        example = "train.lr=1e-6" if flag == "--set" else "split=train"
        raise ConfigError(
            f"{flag} takes key=value, not {option[:80]!r}",
            where=f"{flag} {option[:80]}",
            remedy=f"for example: {flag} {example}",
        )
    return path, text


def assign(root: Node, option: str, flag: str = "--set") -> None:
    """Apply one ``key.path=value`` option: replace the value, creating missing parent mappings.

    Raises:
        ConfigError: If it cannot be read, or its path leads through a value that is not a mapping,
            or past the end of a list.
    """
    path, text = split_option(option, flag)
    place = f"{flag} {option if len(option) <= 80 else option[:77] + '...'}"
    value = read_option(text.strip(), place)
    steps: list[str | int] = list(path.split("."))
    if len(steps) > MAX_DEPTH:
        raise ConfigError(f"a key of more than {MAX_DEPTH} steps", where=place)
    node = root
    for depth, step in enumerate(steps):
        loc = tuple(steps[:depth])
        if kind_at(loc) and isinstance(node.value, str):
            node.value, node.raw = as_reference(node).value, None
        key = steps[depth] = _key(node, step, loc, place)
        last = depth == len(steps) - 1
        if last:
            if kind_at(loc) and key == "use" and not _same_use(node, value):
                _drop_inherited(node)
            _put(node, key, value)
        else:
            below = node.child(key)
            if below is None or (below.value is None and below.raw is not None):
                below = Node({}, Mark(place), Mark(place))
                _put(node, key, below)
            node = below


def _key(node: Node, step: str | int, loc: Loc, place: str) -> str | int:
    if isinstance(node.value, dict):
        return step
    if not isinstance(node.value, list):
        shown = "null" if node.value is None else repr(node.value)
        raise ConfigError(
            f"{dotted(loc) or 'the file'} is {shown[:60]}, not a mapping: {step!r} cannot be set "
            f"in it",
            where=place,
        )
    size = len(node.value)
    if not (isinstance(step, str) and step.isascii() and step.isdigit() and int(step[:9]) < size):
        have = f"0 to {size - 1}" if size else "none"
        raise ConfigError(
            f"{dotted(loc)} has no entry {step!r}; entries: {have}",
            where=place,
            remedy=f"to replace the whole list: --set '{dotted(loc)}=[...]'",
        )
    return int(step)


def _put(node: Node, key: str | int, value: Node) -> None:
    node.value[key] = value


def _drop_inherited(node: Node) -> None:
    """Drop the options inherited from a component that was replaced, except those set by option."""
    options = node.value.get("with")
    if options is not None and isinstance(options.value, dict):
        kept = {key: value for key, value in options.value.items() if value.mark.by_option}
        node.value["with"] = Node(kept, options.mark, options.key_mark)
    elif options is not None and not options.mark.by_option:
        del node.value["with"]


def substitute(root: Node) -> dict[Loc, str]:
    """Substitute environment variables in every string of the tree, in place.

    Returns:
        The places filled from variables whose names look like secrets, each with the original text,
        which is safe to record.

    Raises:
        ConfigError: If a variable is unset and has no default, or a ``${...}`` is malformed;
            reports all faults at once.
    """
    secrets: dict[Loc, str] = {}
    faults: list[Complaint] = []
    for loc, node in root.walk():
        if isinstance(node.value, str) and "${" in node.value:
            written = node.value
            where = f"{node.mark} ({dotted(loc)})"
            node.value, names = expand(written, where, faults)
            if names:
                node.raw = None
            if any(_SECRET.search(name) for name in names):
                secrets[loc] = written
    if faults:
        raise ConfigError.collect(faults)
    return secrets


def expand(text: str, where: str, faults: list[Complaint]) -> tuple[str, list[str]]:
    """Return ``text`` with variables replaced, and their names; append faults to ``faults``."""
    names: list[str] = []

    def one(match: re.Match[str]) -> str:
        name = match["name"]
        if match[0] == "$${":
            return "${"
        if name is None:
            faults.append(
                Complaint(
                    f"{match[0][:60]!r} is not understood",
                    where,
                    (
                        "an environment variable is written ${env:NAME} or ${env:NAME:-default}",
                        "for the characters themselves write $${",
                    ),
                )
            )
            return match[0]
        names.append(name)
        value = os.environ.get(name)
        if match["default"] is not None:
            return value or match["default"]
        if value is None:
            faults.append(
                Complaint(
                    f"the environment variable {name} is not set",
                    where,
                    (f"set it, or give a default: ${{env:{name}:-default}}",),
                )
            )
        return value or ""

    return _ENV.sub(one, text), names


def escape(text: str) -> str:
    """Escape ``text`` so that ``expand`` returns it unchanged."""
    return text.replace("${", "$${")


def options_to_node(options: Sequence[str], flag: str) -> Node:
    """Build one mapping from a list of ``key=value`` options."""
    root = Node({}, Mark(flag), Mark(flag))
    for option in options:
        assign(root, option, flag)
    return root
