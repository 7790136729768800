"""A small document tree and its serializer, so that pages depend on no parser's version.

A page is built as a tree, noise is put into the tree, and only then is it written: nothing is ever
replaced inside finished text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

VOID = frozenset(
    (
        *("area", "base", "br", "col", "embed", "hr", "img"),
        *("input", "link", "meta", "source", "track", "wbr"),
    )
)
RAW_TEXT = frozenset(("script", "style"))
_SPEC = re.compile(r"(?P<tag>[a-zA-Z][\w-]*)(?P<rest>(?:[#.][^#.]+)*)\Z")
_COMPOUND = re.compile(r"([#.]?[\w-]+|\[[\w:-]+(?:=\"[^\"]*\")?\])")


@dataclass(slots=True)
class Comment:
    """``<!-- text -->``."""

    text: str


@dataclass(slots=True)
class Raw:
    """Markup that is written as it is: a script's body, a deliberate entity."""

    html: str


@dataclass(slots=True)
class Element:
    """One element.

    Attributes:
        tag: Its name.
        attrs: Attributes in order; None for one without a value.
        kids: What it holds.
        unclosed: Its end tag is left out.
        unquoted: Attribute values are written without quotes where HTML lets them.
    """

    tag: str
    attrs: dict[str, str | None] = field(default_factory=dict)
    kids: list[Node] = field(default_factory=list)
    unclosed: bool = False
    unquoted: bool = False

    @property
    def classes(self) -> list[str]:
        """The tokens of its class attribute."""
        return (self.attrs.get("class") or "").split()


Node = Element | Comment | Raw | str


def h(spec: str, *kids: Node, **attrs: str | None) -> Element:
    """Make an element.

    Args:
        spec: Tag, id and classes as in CSS: ``p#note.big``.
        kids: What it holds, in order.
        attrs: Other attributes; ``data_id`` becomes ``data-id``, ``for_`` becomes ``for``.
    """
    match = _SPEC.match(spec)
    if match is None:
        raise ValueError(f"not a tag with id and classes: {spec!r}")
    attributes: dict[str, str | None] = {}
    parts = re.findall(r"([#.])([^#.]+)", match["rest"])
    classes = [name for mark, name in parts if mark == "."]
    if classes:
        attributes["class"] = " ".join(classes)
    ids = [name for mark, name in parts if mark == "#"]
    if ids:
        attributes["id"] = ids[0]
    attributes |= {name.rstrip("_").replace("_", "-"): value for name, value in attrs.items()}
    return Element(match["tag"], attributes, list(kids))


def walk(node: Node, depth: int = 0) -> Iterator[tuple[Node, int]]:
    """The node and everything below it in document order, each with its depth."""
    stack = [(node, depth)]
    while stack:
        current, level = stack.pop()
        yield current, level
        if isinstance(current, Element):
            stack.extend((kid, level + 1) for kid in reversed(current.kids))


def elements(node: Node) -> Iterator[Element]:
    """Every element of the tree in document order."""
    return (current for current, _ in walk(node) if isinstance(current, Element))


def depth(node: Node) -> int:
    """How deep the elements of the tree are nested; an element alone is 1."""
    return max(
        (level + 1 for current, level in walk(node) if isinstance(current, Element)), default=0
    )


def text_of(node: Node) -> str:
    """Text of the tree without comments, scripts and styles."""
    if isinstance(node, str):
        return node
    if not isinstance(node, Element) or node.tag in RAW_TEXT:
        return ""
    return "".join(text_of(kid) for kid in node.kids)


def matches(element: Element, css: str) -> bool:
    """Whether the element matches a compound selector of tag, ``#id``, ``.class``, ``[a="v"]``."""
    parts = _COMPOUND.findall(css)
    if "".join(parts) != css:
        raise ValueError(f"not a compound selector: {css!r}")
    return all(_matches_one(element, part) for part in parts)


def _matches_one(element: Element, part: str) -> bool:
    if part[0] == "#":
        return element.attrs.get("id") == part[1:]
    if part[0] == ".":
        return part[1:] in element.classes
    if part[0] == "[":
        name, has_value, value = part[1:-1].partition("=")
        return name in element.attrs and (not has_value or element.attrs[name] == value[1:-1])
    return element.tag == part


def escape(text: str) -> str:
    """Text as it is written between tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def serialize(node: Node) -> str:
    """Write the tree as HTML."""
    out: list[str] = []
    _write(node, out)
    return "".join(out)


def document(root: Element) -> str:
    """Write a whole page."""
    return "<!DOCTYPE html>\n" + serialize(root) + "\n"


def _write(node: Node, out: list[str]) -> None:
    if isinstance(node, str):
        out.append(escape(node))
    elif isinstance(node, Comment):
        out.append(f"<!-- {node.text} -->")
    elif isinstance(node, Raw):
        out.append(node.html)
    else:
        attrs = "".join(_attribute(k, v, node.unquoted) for k, v in node.attrs.items())
        out.append(f"<{node.tag}{attrs}>")
        for kid in node.kids:
            if node.tag in RAW_TEXT and isinstance(kid, str):
                out.append(kid)
            else:
                _write(kid, out)
        if node.tag not in VOID and not node.unclosed:
            out.append(f"</{node.tag}>")


def _attribute(name: str, value: str | None, unquoted: bool) -> str:
    if value is None:
        return f" {name}"
    if unquoted and re.fullmatch(r"[\w./:#-]+", value):
        return f" {name}={value}"
    return f' {name}="{escape(value).replace(chr(34), "&quot;")}"'
