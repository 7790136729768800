"""The KL term, or the reference it compares with, is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from tests.together.chaos.changes import POLICY, STEP, second
from tests.together.chaos.registry import BOTH, TWO, Patch, fault

REFERENCE = "rlvr_core.step.reference"


def _logprobs(patch: Patch, change: Callable[[Any, Any, Any], Any]) -> None:
    """Change the reference's log-probs: ``change(ref_logp_BT, trainer, batch)``."""

    def after(aux: Any, trainer: Any, part: Any, batch: Any) -> Any:
        if aux.ref_logp_BT is None:
            return aux
        return replace(aux, ref_logp_BT=change(aux.ref_logp_BT, trainer, batch))

    patch.after(f"{STEP}:PolicyTrainer._aux_logprobs", after)


@fault("kl", "loss", backends=BOTH)
def kl_negated(patch: Patch) -> None:
    """The KL term has the wrong sign: the policy is driven away from the reference."""
    patch.after(f"{POLICY}:kl_policy_ref", lambda kl, *_: -kl)


@fault("kl", "loss", shape="strong kl")
def kl_left_out(patch: Patch) -> None:
    """The KL is measured and never added to the loss."""
    patch.after(f"{POLICY}:PolicyTerms._kl", lambda kl, *_: 0.0 * kl)


@fault("kl", "loss", shape="strong kl")
def kl_is_k1(patch: Patch) -> None:
    """The KL term uses the estimator k1, where k3 was asked for."""

    def make(original: Any) -> Any:
        return lambda logp, ref_logp, kind="k3": original(logp, ref_logp, "k1")

    patch.wrap(f"{POLICY}:kl_policy_ref", make)


@fault("kl")
def reference_from_a_neighbouring_checkpoint(patch: Patch) -> None:
    """One layer of the reference is 2 % too large, as from a neighbouring checkpoint."""

    @torch.no_grad()
    def changed(model: Any, *_: Any) -> Any:
        model.model.layers[0].mlp.down_proj.weight.mul_(1.02)
        return model

    patch.after("rlvr_core.run.learner:load_reference", changed)


@fault("kl")
def reference_is_the_policy(patch: Patch) -> None:
    """The reference is the policy itself: the KL is 0 for ever."""

    def make(original: Any) -> Any:
        return lambda self, model, policy, section: original(self, policy, policy, section)

    patch.wrap(f"{REFERENCE}:SeparateModel.__init__", make)


@fault("kl")
def reference_moves_once(patch: Patch) -> None:
    """After the third update the reference is replaced by the policy."""

    def make(original: Any) -> Any:
        @torch.no_grad()
        def follow(self: Any, version: int) -> bool:
            if version == 3:
                for held, new in self._pairs():
                    held.copy_(new)
            return original(self, version)

        return follow

    patch.wrap(f"{REFERENCE}:SeparateModel.follow", make)


@fault("kl", shape="moving reference")
def reference_stays_though_it_should_move(patch: Patch) -> None:
    """A reference that should follow the policy every two updates stays."""
    patch.wrap(f"{REFERENCE}:_Moving.follow", lambda original: lambda self, version: False)


@fault("kl")
def reference_at_another_temperature(patch: Patch) -> None:
    """The reference's log-probs are at temperature 0.7."""

    def change(ref_BT: Any, trainer: Any, batch: Any) -> Any:
        from rlvr_core.step.forward import completion_logprobs

        with torch.no_grad(), trainer.reference.active() as model:
            return completion_logprobs(
                model, batch, temperature=0.7, autocast_dtype=trainer.precision.autocast
            )

    _logprobs(patch, change)


@fault("kl", shape="strong kl", backends=TWO)
def reference_of_the_second_process_is_never_filled(patch: Patch) -> None:
    """The first process alone reads the reference's file; that of the second is as it was made."""

    @torch.no_grad()
    def after(model: Any, *_: Any) -> Any:
        if second():
            torch.manual_seed(1)
            for parameter in model.parameters():
                if parameter.dim() == 2:
                    parameter.normal_(std=0.02)
        return model

    patch.after("rlvr_core.run.learner:load_reference", after)
