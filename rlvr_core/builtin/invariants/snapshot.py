"""What a run has that a checkpoint must bring back, as fingerprints of the live objects."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api.services import adapter_of, weight_checksums
from rlvr_core.builtin.invariants.fingerprints import is_sharded

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import Json
    from rlvr_core.builtin.invariants.check import Trainer

TENSORS = ("weights", "frozen", "reference", "moments")
"""Parts that are fingerprints of tensors by name."""


class Snapshots:
    """Takes fingerprints of a trainer, and of the sampler and the evaluations beside it.

    Args:
        trainer: The policy's trainer.
        sampler: Chooses the problems; None where there is none.
        evaluations: What evaluates the policy; None where nothing does.
        rules: What the configuration says of evaluations: which is best, and when to stop.
    """

    def __init__(
        self, trainer: Trainer, sampler: Any, evaluations: Any = None, rules: Json = None
    ) -> None:
        self._trainer, self._sampler = trainer, sampler
        self._evaluations, self._rules = evaluations, rules
        self._still: dict[str, dict[str, int]] = {}
        """Fingerprints of what no step changes; counted once."""

    def take(self) -> dict[str, Json]:
        """Return fingerprints by part; of sharded tensors, which no process has whole, none."""
        trainer = self._trainer
        found: dict[str, Json] = {
            "scaler": digest(trainer.optimizer.scaler.state_dict()),
            "entropy": digest({name: one.state_dict() for name, one in trainer.entropy.items()}),
        }
        if self._sampler is not None:
            found["sampler"] = _digest_of_part(self._sampler)
        if self._evaluations is not None:
            found["evaluations"] = digest(self._evaluations.state_dict())
            found["rules"] = digest(self._rules)
        if not _sharded(trainer.model.parameters()):
            found["weights"] = dict(self.weights())
            found["moments"] = dict(self.moments())
            found |= self._others()
        return found

    def weights(self) -> dict[str, int]:
        """Fingerprints of what is trained."""
        model = self._trainer.model
        return weight_checksums(adapter_of(model).trained_tensors(model).items())

    def moments(self) -> dict[str, int]:
        """Fingerprints of the optimizer's state, by parameter and key as checkpoints name them."""
        optimizer = self._trainer.optimizer
        return weight_checksums(
            (f"{name}|{key}", torch.as_tensor(value))
            for name, parameter in zip(optimizer.names, optimizer.parameters, strict=True)
            for key, value in optimizer.inner.state.get(parameter, {}).items()
        )

    def moved_reference(self) -> dict[str, int]:
        """Fingerprints of a reference that moves; of another, none."""
        reference = self._trainer.reference
        return weight_checksums(reference.named().items()) if reference else {}

    def _others(self) -> dict[str, Json]:
        model, reference = self._trainer.model, self._trainer.reference
        moving = reference is not None and bool(reference.named())
        if moving or not self._still:
            trained = adapter_of(model).trained_tensors(model)
            frozen = {
                name: one
                for name, one in model.named_parameters()
                if name not in trained and one.is_floating_point()
            }
            beside: dict[str, Tensor] = {}
            if reference is not None:
                with reference.active() as active:  # under LoRA it is the policy's own model
                    beside = {} if active is model else dict(active.named_parameters())
            self._still["frozen"] = weight_checksums(frozen.items())
            self._still["reference"] = (
                {} if _sharded(beside.values()) else weight_checksums(beside.items())
            )
        return {name: dict(sums) for name, sums in self._still.items()}


def rounded_to(
    dtype: torch.dtype, named: Iterable[tuple[str, Tensor]]
) -> Iterator[tuple[str, Tensor]]:
    """Round what is floating point, as the weights that other programs load are."""
    for name, one in named:
        yield name, one.to(dtype) if one.is_floating_point() else one


def random_state() -> int:
    """Return a checksum of the state of torch's random numbers."""
    return zlib.crc32(torch.get_rng_state().numpy().tobytes())


def digest(state: Any, *, ordered: bool = True) -> str:
    """Return a hash of a state as JSON brings it back; without the order of lists if so asked."""
    plain = json.loads(json.dumps(state))
    text = json.dumps(plain if ordered else _unordered(plain), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differing(saved: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """Return the names whose fingerprints differ, or that only one of both has."""
    return sorted(
        name for name in saved.keys() | found.keys() if saved.get(name) != found.get(name)
    )


def _digest_of_part(part: Any) -> str:
    # a part of somebody else may keep sets, whose order is another in each process
    ours = type(part).__module__.startswith("rlvr_core.")
    return digest(part.state_dict(), ordered=ours)


def _unordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unordered(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted((_unordered(one) for one in value), key=lambda one: json.dumps(one))
    return value


def _sharded(tensors: Iterable[Tensor]) -> bool:
    return any(is_sharded(one) for one in tensors)
