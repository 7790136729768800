"""Turns a YAML file and ``--set`` options into a validated ``RunConfig`` with line numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rlvr_core.api import Complaint, ConfigError
from rlvr_core.config.dialect import MAX_CHARACTERS, read
from rlvr_core.config.layers import assign, expand, merge, substitute
from rlvr_core.config.model import RunConfig
from rlvr_core.config.tree import Loc, Node, shown

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Draft:
    """All layers of a configuration merged, not yet validated against the model.

    Attributes:
        root: The values with their marks, environment variables substituted.
        path: The file that was read.
        text: Content of that file.
        files: That file and everything it extends, in that order.
        secrets: Places filled from variables named like secrets, with the text written there.
    """

    root: Node
    path: Path
    text: str
    files: tuple[Path, ...]
    secrets: dict[Loc, str] = field(default_factory=dict)

    def hide(self, complaints: Sequence[Complaint]) -> list[Complaint]:
        """Return the complaints with each secret value replaced by the text that was written."""
        forms: dict[str, str] = {}
        for loc, written in self.secrets.items():
            node = self.root.find(loc)
            value = "" if node is None else str(node.value)
            if len(value) > 3:
                quoted = (repr(value)[1:-1], shown(value)[1:-1])
                forms |= dict.fromkeys((value, *quoted), written)

        def hidden(text: str) -> str:
            for form, written in forms.items():
                text = text.replace(form, written)
            return text

        return [
            Complaint(
                hidden(complaint.what),
                hidden(complaint.where),
                tuple(map(hidden, complaint.remedy)),
            )
            for complaint in complaints
        ]

    def checked(self, model: type[M]) -> M:
        """Validate against a model, without resolving components.

        Raises:
            ConfigError: If it does not fit; reports all faults at once, without secrets.
        """
        try:
            return checked(model, self.root.plain(), self.root)
        except ConfigError as error:
            raise ConfigError.collect(self.hide(error.complaints)) from error


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration that fits the model; its components are not resolved yet.

    Attributes:
        config: The configuration; components have the names and options as written.
        draft: The merged layers, with the origin of each value.
    """

    config: RunConfig
    draft: Draft

    @property
    def path(self) -> Path:
        """The file that was read."""
        return self.draft.path

    @property
    def text(self) -> str:
        """Content of that file."""
        return self.draft.text

    def where(self, loc: Loc) -> str:
        """Return ``file:line (key.path)`` of a value; of its parent if it is not written."""
        return self.draft.root.where(loc)


def load_config(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> LoadedConfig:
    """Read a run's configuration.

    Args:
        path: The YAML file.
        overrides: ``key.path=value`` options, applied in order on top of it.

    Raises:
        ConfigError: If it cannot be read or does not fit the model; reports all faults at once.
    """
    draft = read_draft(path, overrides)
    return LoadedConfig(draft.checked(RunConfig), draft)


def checked(
    model: type[M], data: Mapping[str, Any], root: Node, prefix: Loc = (), owner: str = ""
) -> M:
    """Validate plain data.

    Args:
        model: The model to validate against.
        data: The data.
        root: The tree that holds the data, for line numbers.
        prefix: The location of the data in the tree.
        owner: The component whose options they are (``loss 'core/grpo'``); empty for the file
            itself.

    Raises:
        ConfigError: If they are wrong; reports all faults at once, with lines and suggestions.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        from rlvr_core.config.faults import complaints

        raise ConfigError.collect(complaints(error, data, model, root, prefix, owner)) from error


def read_draft(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), text: str | None = None
) -> Draft:
    """Read a file and the files it extends, then apply the options on top.

    Args:
        path: The file.
        overrides: ``key.path=value`` options.
        text: The content, if there is no such file and ``path`` is only a name for messages.

    Raises:
        ConfigError: If a file or an option cannot be read; reports all faulty options at once.
    """
    top = Path(path)
    layers: list[Node] = []
    texts: list[str] = []
    chain: list[Path] = []
    seen: set[str] = set()
    following: Path | None = top
    where = ""
    while following is not None:
        _no_cycle(following, chain, seen, where)
        chain.append(following)
        given = text if not texts else None
        texts.append(_text_of(following, where) if given is None else given)
        layers.append(_mapping(texts[-1], following))
        following, where = _base(layers[-1], following)
    root = layers.pop()
    while layers:
        root = merge(root, layers.pop())
    faults: list[Complaint] = []
    for option in overrides:
        try:
            if option.partition("=")[0].strip() == "extends":
                raise ConfigError(
                    "'extends' belongs in a file: it is read before any option",
                    where=f"--set {option[:80]}",
                )
            assign(root, option)
        except ConfigError as error:
            faults.extend(error.complaints)
    secrets: dict[Loc, str] = {}
    try:
        secrets = substitute(root)
    except ConfigError as error:
        faults.extend(error.complaints)
    if faults:
        raise ConfigError.collect(faults)
    return Draft(root, top, texts[0], tuple(chain), secrets)


def _base(node: Node, path: Path) -> tuple[Path | None, str]:
    """Remove ``extends`` from a file's mapping; return the path it names and its location."""
    base = node.value.pop("extends", None)
    if base is None:
        return None, ""
    where = f"{base.mark} (extends)"
    if not isinstance(base.value, str) or not base.value.strip("\0 "):
        raise ConfigError(
            f"extends must be the path of a YAML file, not {shown(base.value)}",
            where=where,
            remedy="one file; that file may extend another",
        )
    faults: list[Complaint] = []
    name, _ = expand(base.value, where, faults)
    if faults:
        raise ConfigError.collect(faults)
    return path.parent / name.replace("\0", ""), where


def _no_cycle(path: Path, chain: list[Path], seen: set[str], where: str) -> None:
    real = os.path.realpath(path)
    if real in seen:
        names = " -> ".join(str(each) for each in [*chain, path])
        raise ConfigError(f"extends goes round in a circle: {names}", where=where)
    seen.add(real)


def _text_of(path: Path, where: str) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(4 * MAX_CHARACTERS + 1)
        return raw.decode("utf-8-sig")
    except (OSError, ValueError) as error:  # a NUL in the path, or what is not UTF-8
        from rlvr_core.config.reading import file_fault as explain

        raise explain(error, path, where) from error


def _mapping(text: str, path: Path) -> Node:
    node = read(text, str(path))
    if node is None:
        raise ConfigError(
            "the file is empty" if not text.strip() else "the file holds nothing but comments",
            where=f"{path}:1",
            remedy="a run needs at least model, data and train",
        )
    if not isinstance(node.value, dict):
        kind: Any = shown(node.value)
        raise ConfigError(
            f"the top level must be a mapping of sections (model:, data:, train:), not {kind}",
            where=str(node.mark),
        )
    return node
