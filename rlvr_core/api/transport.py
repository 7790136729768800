"""How weights reach an engine that holds a copy of them in another process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rlvr_core.api.problems import Json

if TYPE_CHECKING:
    import torch
    from torch import Tensor

NamedTensors = Iterable[tuple[str, "Tensor"]]
"""Tensors by their Hugging Face names, each once."""


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """A tensor that will be sent.

    Attributes:
        name: Hugging Face name.
        dtype: As sent.
        shape: As sent.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


class OutgoingWeights(Protocol):
    """The weights of one sync on the trainer's end; a transport iterates over them exactly once.

    In a sharded policy each tensor is gathered when the iteration reaches it.
    """

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        """Name, dtype and shape of each tensor, in the order of the iteration."""

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Names and tensors, on the trainer's device; they are only valid until the next one."""


class TransportLink(Protocol):
    """The receiving processes of an engine, as the trainer's end of a transport sees them."""

    @property
    def receivers(self) -> int:
        """How many processes receive; they are numbered from 0."""

    @property
    def members(self) -> tuple[str, ...]:
        """Names of these processes; a process that was replaced has a new name."""

    @property
    def remote_hosts(self) -> tuple[str, ...]:
        """Names of the other machines on which they run."""

    def deliver(self, message: Json) -> None:
        """Have every process call ``WeightTransport.receive`` with a message.

        Returns when all of them have. The messages of a transport whose traits say ``lasting`` may
        be delivered after ``send`` has returned.
        """


@runtime_checkable
class WeightTransport(Protocol):
    """How the trainer's weights reach an engine in other processes; see ``TransportTraits``.

    It has two ends, made of the same class and options: one in the trainer's process, which sends,
    and one in each receiving process. The engine checks what arrives: a transport changes no value.
    """

    def send(self, weights: OutgoingWeights, link: TransportLink) -> None:
        """Send the weights; called on the trainer's end at every sync.

        Args:
            weights: What to send.
            link: Carries messages to the other end. One message at least has to be delivered.
        """

    def receive(self, message: Json, load: Callable[[NamedTensors], None], index: int) -> None:
        """Load what was sent; called on the receiving end with each message, in order.

        Args:
            message: As it was delivered.
            load: Takes tensors in, on any device; may be called several times.
            index: Number of this process among the receivers.
        """

    def close(self) -> None:
        """Release what this end holds; safe to call twice."""


class TransportChoice(Protocol):
    """The transport that a configuration names, from which either end makes its own; it pickles."""

    @property
    def name(self) -> str:
        """The registered name, or the place it was named by."""

    def make(self) -> WeightTransport:
        """Make one end."""
