"""The registry of measured figures of models: ours, and those of other systems.

Its files are TOML: each ``[[measured]]`` says of which model, when, by whom and where its figures
stand, and lists them as ``results``, which take every key that they do not have from it. A plugin
adds a file by a service called ``baselines`` that returns its text.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator
from datetime import date
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from rlvr_core.api import ComponentConfig, Json, PluginError
from rlvr_core.api.services import Host, wilson

SERVICE = "baselines"
_SNAPSHOT = re.compile(r"models--([^/]+)/snapshots/[^/]+/?$")


class Baseline(ComponentConfig):
    """One figure."""

    model: str
    """Id on the hub, ``tiny:TASK``, or the name that its source gives."""
    task: str
    """The benchmark, and which part of it."""
    metric: str
    """What the figure is."""
    value: float
    """The figure; a share lies between 0 and 1."""
    n: Annotated[int, Field(gt=0)] | None = None
    """Problems it was measured on; none where its source does not say."""
    correct: Annotated[int, Field(ge=0)] | None = None
    """How many of them were right, where each had one completion: it gives the interval."""
    prompt: str = ""
    """How it was asked."""
    sampling: str = ""
    """How completions were drawn."""
    after: str = ""
    """The training before it; empty for the model as it is."""
    date: date
    """The day it was measured, or, for a reference, recorded here."""
    measured_by: Literal["rlvr", "reference"]
    """Who measured it."""
    system: str = ""
    """The reference's name."""
    source: str
    """Where it stands, and the command that measures it."""
    note: str = ""
    """What to know before it is compared."""
    revision: str | None = None
    """Commit of the model on the hub, if known."""
    sha256: str | None = None
    """The model's identity as ``run.json`` has it, if known."""

    @model_validator(mode="after")
    def _consistent(self) -> Baseline:
        if (self.measured_by == "reference") != bool(self.system):
            raise ValueError("a reference has a system, and only a reference has one")
        if self.correct is not None and (self.n is None or self.correct > self.n):
            raise ValueError("correct is a part of n")
        if self.correct is not None and self.n and abs(self.correct / self.n - self.value) > 6e-4:
            raise ValueError(f"{self.correct} of {self.n} is not {self.value}")
        return self

    @property
    def interval(self) -> tuple[float, float] | None:
        """The Wilson interval at 95 %, where the count is known."""
        if self.correct is None or self.n is None:
            return None
        low, high = wilson(self.correct, self.n)
        return round(low, 4), round(high, 4)

    @property
    def by(self) -> str:
        """Who measured it, for people."""
        return self.system or self.measured_by

    def as_json(self) -> dict[str, Json]:
        """Return the figure as JSON."""
        return {**self.model_dump(mode="json"), "interval": self.interval}


def core() -> str:
    """Return the core's own file (the service ``core/baselines``)."""
    file = resources.files("rlvr_core.builtin.modelcheck") / "baselines.toml"
    return file.read_text(encoding="utf-8")


def read(text: str, where: str) -> Iterator[Baseline]:
    """Yield the figures of a file.

    Args:
        text: The file, TOML.
        where: Its source, for messages.

    Raises:
        PluginError: If it is malformed.
    """
    try:
        blocks = tomllib.loads(text)["measured"]
        for block in blocks:
            common = {key: value for key, value in block.items() if key != "results"}
            for result in block["results"]:
                yield Baseline(**{**common, **result})
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        what = f"the baselines of {where} cannot be read: {type(error).__name__}: {error}"
        raise PluginError(what, remedy="see rlvr docs models for their form") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        what = f"the baselines of {where} cannot be read: {place}: {first['msg']}"
        raise PluginError(what, remedy="see rlvr docs models for their form") from None


def registered(host: Host) -> list[Baseline]:
    """Return all figures, the core's first.

    Raises:
        PluginError: If a plugin's file cannot be read.
    """
    entries = [one for one in host.registry.of("service") if one.leaf == SERVICE]
    entries.sort(key=lambda one: one.plugin != "core")
    return [found for one in entries for found in read(_text(one.load()), f"plugin {one.plugin}")]


def _text(target: Any) -> str:
    return str(target())


def names_of(reference: str, folder: str = "") -> set[str]:
    """Return the names under which a model may be in the registry, in lower case."""
    found = {reference.rstrip("/").casefold()}
    for place in (reference, folder):
        if match := _SNAPSHOT.search(place):
            found.add(match[1].replace("--", "/", 1).casefold())
    return found


def known(
    baselines: Collection[Baseline],
    names: Collection[str],
    digests: Collection[str] = (),
) -> list[tuple[Baseline, str]]:
    """Return the figures of a model, each with how the model was recognised.

    Args:
        baselines: The registry.
        names: Its names, from ``names_of``.
        digests: Its SHA-256 and commit.

    Returns:
        With ``files`` (the same hash), ``id`` (the same id; it may be another revision) or
        ``name`` (only the last part of the name is the same).
    """
    last = {name.rpartition("/")[2] for name in names}
    found = []
    for one in baselines:
        name = one.model.casefold()
        if digests and (one.sha256 in digests or one.revision in digests):
            found.append((one, "files"))
        elif (one.sha256 or one.revision) and digests:
            continue  # it is of other files
        elif name in names:
            found.append((one, "id"))
        elif name.rpartition("/")[2] in last and not name.startswith("tiny:"):
            found.append((one, "name"))
    return found
