"""The weight transport of a run: chosen in the config, built at both ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlvr_core.api import (
    Json,
    NamedTensors,
    OutgoingWeights,
    TransportLink,
    TransportTraits,
    config_class,
    traits_of,
)
from rlvr_core.plugins.registry import Entry

_KEY = "engine.transport"


@dataclass(frozen=True, slots=True)
class ChosenTransport:
    """A transport and its options, from which either end makes its own; pickles, and is JSON.

    Attributes:
        name: Its registered name, or the place it was named by.
        target: ``module:attribute`` of its class.
        plugin: The plugin it comes from; empty when the user named it by file or module.
        options: Its checked options.
    """

    name: str
    target: str
    plugin: str
    options: Mapping[str, Json]

    def make(self) -> NamedTransport:
        """Make one end.

        Raises:
            PluginError: If it cannot be imported, or not be made with its options.
        """
        entry = Entry("transport", self.name, self.target, "", self.plugin)
        with entry.named("could not be made with its options", _KEY):
            cls = entry.load()
            inner = cls(config_class(cls)(**self.options))
        return NamedTransport(entry, inner)


class NamedTransport:
    """One end of a transport; an error in a plugin's is named as the plugin's."""

    def __init__(self, entry: Entry, inner: Any) -> None:
        self._entry, self._inner = entry, inner
        self.traits = traits_of(inner, TransportTraits)

    def send(self, weights: OutgoingWeights, link: TransportLink) -> None:
        """See ``WeightTransport.send``."""
        with self._entry.named("could not send weights", _KEY):
            self._inner.send(weights, link)

    def receive(self, message: Json, load: Callable[[NamedTensors], None], index: int) -> None:
        """See ``WeightTransport.receive``."""
        with self._entry.named("could not receive weights", _KEY):
            self._inner.receive(message, load, index)

    def close(self) -> None:
        """See ``WeightTransport.close``."""
        with self._entry.named("could not be closed", _KEY):
            self._inner.close()
