"""Promises of weight transports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Json, TensorMeta, TransportTraits, traits_of
from rlvr_core.builtin.conformance.subject import Check, Subject, Unchecked, as_json, demand

if TYPE_CHECKING:
    from torch import Tensor


class _Outgoing:
    """See ``OutgoingWeights``."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        self._weights, self.read = weights, 0
        self.tensors = [
            TensorMeta(name, one.dtype, tuple(one.shape)) for name, one in weights.items()
        ]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        self.read += 1
        for name, one in self._weights.items():
            lent = one.clone()
            yield name, lent
            lent.zero_()  # a tensor is valid until the next one


class _Link:
    """Two receivers in this process; see ``TransportLink``."""

    receivers, members, remote_hosts = 2, ("first", "second"), ()

    def __init__(self, ends: list[Any]) -> None:
        self.ends = ends
        self.messages: list[Json] = []
        self.loaded: list[dict[str, Tensor]] = [{}, {}]

    def deliver(self, message: Json) -> None:
        """Deliver a message to both receivers."""
        self.messages.append(message)
        read = as_json(message, "a message")
        for index, end in enumerate(self.ends):
            end.receive(read, lambda pairs, i=index: self._load(pairs, i), index)

    def _load(self, pairs: Any, index: int) -> None:
        for name, tensor in pairs:
            twice = name in self.loaded[index]
            demand(not twice, f"receiver {index} is given '{name}' twice in one sync")
            self.loaded[index][name] = tensor.detach().cpu().clone()


def _weights(seed: int) -> dict[str, Tensor]:
    """Return weights of several shapes and types, one of them not contiguous."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return {
        "embed.weight": torch.randn(7, 4, generator=generator),
        "layer.weight": torch.randn(4, 6, generator=generator).T,
        "layer.bias": torch.randn(6, generator=generator).to(torch.bfloat16),
        "scale": torch.randn((), generator=generator),
    }


def _ends(subject: Subject) -> tuple[Any, _Link]:
    """Return the sending end, and a link to the receiving ones."""
    sender = subject.build()
    return sender, _Link([subject.build(), subject.build()])


def _close(sender: Any, link: _Link) -> None:
    for end in (sender, *link.ends):
        end.close()
        end.close()  # safe to call twice


def _sync(sender: Any, link: _Link, weights: dict[str, Tensor]) -> None:
    link.loaded, link.messages = [{}, {}], []
    outgoing = _Outgoing(weights)
    sender.send(outgoing, link)
    demand(outgoing.read == 1, f"the weights are iterated over {outgoing.read} times, not once")
    demand(bool(link.messages), "no message is delivered")
    _compare(link, weights)


def _compare(link: _Link, weights: dict[str, Tensor]) -> None:
    import torch

    for index, got in enumerate(link.loaded):
        missing = sorted(set(weights) - set(got))
        demand(not missing, f"receiver {index} is not given {', '.join(missing)}")
        for name, sent in weights.items():
            one = got[name]
            like = (one.dtype, tuple(one.shape)) == (sent.dtype, tuple(sent.shape))
            what = f"'{name}' is sent as {sent.dtype} {tuple(sent.shape)} and arrives as"
            demand(like, f"{what} {one.dtype} {tuple(one.shape)}")
            demand(torch.equal(one, sent), f"'{name}' arrives with other values than were sent")


def transport_delivers(subject: Subject) -> None:
    """Check that two receivers get every tensor bit for bit, in two syncs of different weights."""
    sender, link = _ends(subject)
    try:
        for seed in (1, 2):
            _sync(sender, link, _weights(seed))
    finally:
        _close(sender, link)


def transport_lasts(subject: Subject) -> None:
    """Check that delivered messages can be received again, if the traits say so."""
    sender, link = _ends(subject)
    if not traits_of(sender, TransportTraits).lasting:
        raise Unchecked("its traits do not say lasting")
    try:
        weights = _weights(3)
        _sync(sender, link, weights)
        messages, link.loaded = list(link.messages), [{}, {}]
        link.ends = [subject.build(), subject.build()]  # like restarted processes
        for message in messages:
            link.deliver(message)
        _compare(link, weights)
    finally:
        _close(sender, link)


TRANSPORT_CHECKS: tuple[Check, ...] = (
    Check("delivers", "every receiver gets every tensor, to the bit", transport_delivers),
    Check("lasts", "with lasting, it can be received once more", transport_lasts),
)
