r"""The YAML dialect of configurations: reading with line marks, and writing.

It is YAML 1.2's core schema plus merge keys: ``1e-6`` is a number, ``no`` and ``2024-01-01`` are
text, ``010`` is ten. Duplicate keys, control characters (as from ``"\boxed"``) and exponentially
expanding anchors are errors. ``docs/config.md`` gives the reasons.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.nodes import MappingNode, ScalarNode, SequenceNode

from rlvr_core.api import Complaint, ConfigError
from rlvr_core.config.tree import Mark, Node

MAX_CHARACTERS = 1_000_000
MAX_DEPTH = 64
MAX_VALUES = 50_000

_TAG = "tag:yaml.org,2002:"
_RESOLVERS = [
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("merge", "<<", "<"),
]


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with our scalar types and a limit on nesting depth."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.depth >= MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise ComposerError(None, None, f"nested more than {MAX_DEPTH} levels deep", mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


class _Dumper(yaml.SafeDumper):
    """Quotes every text that YAML 1.1 or our dialect would read as another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _write_text(dumper: _Dumper, text: str) -> ScalarNode:
    # PyYAML reads these as line breaks outside double quotes.
    style = '"' if re.search("[\x85\u2028\u2029]", text) else None
    return dumper.represent_scalar(_TAG + "str", text, style=style)


_Dumper.add_representer(str, _write_text)
for _name, _pattern, _first in _RESOLVERS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), list(_first))


def read(text: str, place: str) -> Node | None:
    """Read one YAML document.

    Args:
        text: The document.
        place: Name of the file, for marks and messages.

    Returns:
        The root node, with marks; None if the document is empty or holds only comments.

    Raises:
        ConfigError: If it is not valid in our dialect; names the line.
    """
    root = _compose(text, place, lines=True)
    return None if root is None else _Builder(place, lines=True).finish(root)


def read_option(text: str, place: str) -> Node:
    """Read the value of a ``key=value`` option; an empty value is null.

    Raises:
        ConfigError: If it is not valid in our dialect, or part of it would be read as a comment.
    """
    root = _compose(text, place, lines=False)
    end = 0 if root is None else root.end_mark.index
    if end < len(text.rstrip()):
        raise ConfigError(
            f"{text[end:].strip()!r} reads as a comment",
            where=place,
            remedy="put the value in quotes of its own: --set 'key=\"#1\"'",
        )
    if root is None:
        return Node(None, Mark(place), Mark(place), "")
    return _Builder(place, lines=False).finish(root)


def write(data: Any) -> str:
    """Write plain data as YAML that ``read`` reads back as equal data."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def _compose(text: str, place: str, *, lines: bool) -> yaml.Node | None:
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(
            f"a configuration of {len(text):,} characters; at most {MAX_CHARACTERS:,} are read",
            where=place,
            remedy="is this the right file? Data belong in data files",
        )

    loader = None
    try:
        loader = _Loader(text)
        root: yaml.Node | None = loader.get_single_node()
        return root
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        from rlvr_core.config.reading import yaml_fault as explain

        line = None if loader is None else loader.line
        raise explain(error, text, place, lines=lines, line=line) from error


class _Builder:
    """Converts PyYAML's nodes into ours: merge keys, aliases, duplicate keys, scalars."""

    def __init__(self, place: str, *, lines: bool) -> None:
        self.place = place
        self.lines = lines
        self.count = 0
        self.twice: dict[tuple[Mark, str], Complaint] = {}

    def finish(self, root: yaml.Node) -> Node:
        node = self.build(root, 0)
        if self.twice:
            raise ConfigError.collect(list(self.twice.values()))
        return node

    def mark(self, node: yaml.Node) -> Mark:
        return Mark(self.place, node.start_mark.line + 1 if self.lines else 0)

    def build(self, node: yaml.Node, depth: int, key: Mark | None = None) -> Node:
        mark = self.mark(node)
        self.count += 1
        if self.count > MAX_VALUES:
            raise ConfigError(
                f"more than {MAX_VALUES:,} values once every alias is followed", where=str(mark)
            )
        if depth > MAX_DEPTH:
            raise ConfigError(
                f"nested more than {MAX_DEPTH} levels deep once every alias is followed",
                where=str(mark),
                remedy="does an anchor contain itself?",
            )
        if isinstance(node, ScalarNode):
            return Node(self.scalar(node), mark, key or mark, node.value)
        if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
            items = [self.build(item, depth + 1) for item in node.value]
            return Node(items, mark, key or mark)
        if isinstance(node, MappingNode) and node.tag == _TAG + "map":
            return Node(self.mapping(node, depth), mark, key or mark)
        raise _bad_tag(node, mark)

    def mapping(self, node: MappingNode, depth: int) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        lines: dict[str, Mark] = {}
        for key_node, value_node in node.value:
            mark = self.mark(key_node)
            if not isinstance(key_node, ScalarNode):
                raise ConfigError("a key must be a single word", where=str(mark))
            key = _text(key_node.value, mark)
            if key in lines:
                self.twice[mark, key] = Complaint(
                    f"duplicate key {key!r}: first given at {lines[key]}",
                    str(mark),
                    ("keep one of the two: YAML would silently take the last",),
                )
                continue
            lines[key] = mark
            if key_node.tag == _TAG + "merge":
                merged = self.merged(value_node, depth)
            else:
                entries[key] = self.build(value_node, depth + 1, mark)
        return {**merged, **entries} if merged else entries

    def merged(self, node: yaml.Node, depth: int) -> dict[str, Node]:
        """Return the keys that ``<<`` brings in; of several mappings, the first with a key wins."""
        several = isinstance(node, SequenceNode)
        entries: dict[str, Node] = {}
        for part in reversed(node.value if several else [node]):
            if not isinstance(part, MappingNode):
                raise ConfigError(
                    "'<<' takes a mapping, or a list of mappings", where=str(self.mark(part))
                )
            entries |= self.build(part, depth + 1).value
        return entries

    def scalar(self, node: ScalarNode) -> Any:
        mark = self.mark(node)
        text = _text(node.value, mark)
        kind = node.tag.removeprefix(_TAG)
        if kind == "str":
            return text
        try:
            if kind == "null" and text in ("", "~", "null", "Null", "NULL"):
                return None
            if kind == "bool":
                return {"true": True, "false": False}[text.lower()]
            if kind == "int":
                return _integer(text)
            if kind == "float":
                return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
        except (ValueError, KeyError) as error:
            raise ConfigError(f"{text[:40]!r} is no {_WORDS[kind]}", where=str(mark)) from error
        raise _bad_tag(node, mark)


_WORDS = {"bool": "truth value", "int": "whole number of at most 64 bits", "float": "number"}


def _integer(text: str) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    number = int(text[2:] if base != 10 else text, base)
    if not -(2**63) <= number < 2**64:
        raise ValueError(number)
    return number


def _bad_tag(node: yaml.Node, mark: Mark) -> ConfigError:
    return ConfigError(
        f"the tag {node.tag.replace(_TAG, '!!')!r} is not allowed here",
        where=str(mark),
        remedy="put a value that begins with '!' in quotes",
    )


def _text(text: str, mark: Mark) -> str:
    control = re.search(r"[\a\b\v\f\x1b]", text)
    if control:
        raise ConfigError(
            f"{text[:60]!r} holds the control character {control[0]!r}",
            where=str(mark),
            remedy='in double quotes a backslash starts an escape, and "\\boxed" begins with a '
            "backspace: use 'single quotes'",
        )
    if re.search("[\ud800-\udfff]", text):
        try:  # JSON writes characters above U+FFFF as an escaped surrogate pair
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{text[:60]!a} is not valid Unicode", where=str(mark)) from error
    return text
