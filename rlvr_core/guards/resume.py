"""Guard ``core/resume``: what a run goes on with is what it had when the checkpoint was written.

A checkpoint holds fingerprints of the live objects, taken before anything is written: trained and
frozen weights, the reference, the optimizer's moments, the sampler, steps and versions. Before a
resumed run's first step they are compared with those of what was loaded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import NoConfig
from rlvr_core.api.guards import BaseGuard
from rlvr_core.engines.sync import weight_checksums
from rlvr_core.guards.tensors import is_sharded
from rlvr_core.parallel.model_adapter import adapter_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from rlvr_core.api import Group, Json, RunStarted

WORDS: Mapping[str, tuple[str, str]] = {
    "weights": (
        "the weights are not those",
        "look at what loads trainer/master.safetensors or, in float32, model.safetensors, and at "
        "what changes weights after that",
    ),
    "frozen": (
        "weights that are not trained are not those",
        "model.path holds another model than it did: put back the one that the run began with",
    ),
    "reference": (
        "the reference model is not the one",
        "one that stays is loaded from model.path, which may have changed; one that moves comes "
        "from trainer/reference.safetensors",
    ),
    "moments": (
        "the optimizer's moments are not those",
        "look at what loads trainer/optimizer.safetensors, and at its names",
    ),
    "sampler": (
        "the sampler would draw other problems than it would have: its state is not the one",
        "a sampler's load_state_dict must restore what its state_dict gave: position, order and "
        "number of draws",
    ),
}
"""What is wrong with a part, and where to look."""


class Resume(BaseGuard):
    """A resumed run has what it had."""

    name = "core/resume"

    def __init__(self, config: NoConfig) -> None:
        super().__init__(config)
        self._step = self._version = 0
        self._saved: dict[str, Any] | None = None
        self._resumed = False

    # -- while it trains -------------------------------------------------------------------------

    def step_begins(self, groups: Sequence[Group], step: int, version: int) -> None:
        """Compare the policy version of the first step after a resumption."""
        if self._resumed and version != self._version:
            raise self._differs(
                step,
                f"the policy version is {version}, and was {self._version}",
                "look at what loads trainer/state.json: seeds would be those of other steps",
            )
        self._resumed, self._version = False, version

    def update_ended(self, grad_norm: float, *, applied: bool) -> None:
        """Count the policy's versions."""
        self._version += applied

    def step_ends(self) -> Mapping[str, float]:
        """Note the step as done."""
        self._step = self.view.step + 1
        return {}

    def state_dict(self) -> dict[str, Json]:
        """Return the fingerprints of everything as it is now."""
        counts = {"step": self._step, "version": self._version}
        return {**counts, **self._fingerprints()}

    # -- after a resumption ----------------------------------------------------------------------

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Keep the fingerprints until everything is loaded."""
        self._saved = dict(state)
        self._step, self._version = state["step"], state["version"]

    def run_started(self, event: RunStarted) -> None:
        """Compare everything that was loaded."""
        if not event.resumed or event.step == 0:
            return
        if self._saved is None:
            if self.context.ranks.main:
                self.warn_once(
                    "the checkpoint has no fingerprints, as an older version or a run "
                    "without this guard wrote it. What was loaded is not compared"
                )
            return
        saved, self._saved = self._saved, None
        if event.step != saved["step"]:
            raise self._differs(
                event.step,
                f"it goes on with step {event.step + 1}, after {saved['step']} steps",
                "look at what loads trainer/state.json",
            )
        loaded = self._fingerprints()
        for part, (what, remedy) in WORDS.items():
            if part in saved and part in loaded and saved[part] != loaded[part]:
                detail = _detail(saved[part], loaded[part])
                raise self._differs(event.step, f"{what} of the checkpoint{detail}", remedy)
        self._resumed = True

    def _differs(self, step: int, what: str, *remedy: str) -> Exception:
        return self.fault(step, f"going on from the checkpoint, {what} (band: none)", *remedy)

    def _fingerprints(self) -> dict[str, Json]:
        """Return fingerprints by part; of sharded tensors, which no process has whole, none."""
        trainer = self.context.trainer
        model, optimizer = trainer.model, trainer.optimizer
        prints: dict[str, Json] = {"sampler": _digest(self.context.sampler.state_dict())}
        if any(map(is_sharded, model.parameters())):
            return prints
        trained = adapter_of(model).trained_tensors(model)
        frozen = {
            name: one
            for name, one in model.named_parameters()
            if name not in trained and one.is_floating_point()
        }
        moments = {
            f"{name}|{key}": torch.as_tensor(value)
            for name, parameter in zip(optimizer.names, optimizer.parameters, strict=True)
            for key, value in optimizer.inner.state.get(parameter, {}).items()
        }
        beside: dict[str, Tensor] = {}
        if trainer.reference is not None:
            with trainer.reference.active() as active:  # under LoRA it is the policy's own model
                beside = {} if active is model else dict(active.named_parameters())
        parts = {"weights": trained, "frozen": frozen, "moments": moments, "reference": beside}
        for name, tensors in parts.items():
            if not any(map(is_sharded, tensors.values())):
                prints[name] = dict(weight_checksums(tensors.items()))
        return prints


def _detail(saved: Any, loaded: Any) -> str:
    if not isinstance(saved, Mapping):
        return ""
    names = saved.keys() | loaded.keys()
    wrong = sorted(name for name in names if saved.get(name) != loaded.get(name))
    lost = sum(name not in loaded for name in wrong)
    missing = f", {lost} of them missing" if lost else ""
    return f", in {len(wrong)} of {len(saved)} tensors{missing}: {wrong[0]}"


def _digest(state: Any) -> str:
    """Return a hash of a state, whatever the order of what it lists."""
    plain = json.loads(json.dumps(state, default=sorted))
    return hashlib.sha256(json.dumps(_unordered(plain), sort_keys=True).encode()).hexdigest()[:16]


def _unordered(value: Any) -> Any:
    # a part of somebody else may keep sets, whose order is another in each process
    if isinstance(value, dict):
        return {key: _unordered(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((_unordered(item) for item in value), key=json.dumps)
    return value
