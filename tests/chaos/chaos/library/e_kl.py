"""The KL term, or the reference it compares with, is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from chaos.registry import IN_PROCESS, Patch, fault

POLICY = "rlvr_core.algorithm.policy"


def reference_logprobs(patch: Patch, change: Callable[[Any, Any, Any], Any]) -> None:
    """Change the reference's log-probs: ``change(ref_logp_BT, trainer, batch)``."""

    def make(original: Any) -> Any:
        def aux(self: Any, part: Any, batch: Any) -> Any:
            found = original(self, part, batch)
            if found.ref_logp_BT is None:
                return found
            return replace(found, ref_logp_BT=change(found.ref_logp_BT, self, batch))

        return aux

    patch.wrap("rlvr_core.step.step:PolicyTrainer._aux_logprobs", make)


def reference_model(patch: Patch, change: Callable[[Any], None]) -> None:
    """Change the reference model after it is loaded."""

    @torch.no_grad()
    def changed(model: Any, *_: Any) -> Any:
        change(model)
        return model

    patch.after("rlvr_core.run.learner:load_reference", changed)


@fault("kl", "sign", backends=("in process", "child"))
def kl_negated(patch: Patch) -> None:
    """The KL term has the wrong sign: the policy is driven away from the reference."""
    patch.after(f"{POLICY}:kl_policy_ref", lambda kl, *_: -kl)


@fault("kl", "direction")
def kl_other_direction(patch: Patch) -> None:
    """k3 is taken of the ratio the wrong way round."""

    def make(original: Any) -> Any:
        return lambda logp, ref_logp, kind="k3": original(ref_logp, logp, kind)

    patch.wrap(f"{POLICY}:kl_policy_ref", make)


@fault("kl", shape="strong kl")
def kl_hundredfold(patch: Patch) -> None:
    """The KL term counts a hundred times as much as the config says."""
    patch.after(f"{POLICY}:kl_policy_ref", lambda kl, *_: 100 * kl)


@fault("kl", shape="strong kl")
def kl_left_out(patch: Patch) -> None:
    """The KL is measured and never added to the loss."""

    def make(original: Any) -> Any:
        def kl(self: Any, *args: Any) -> Any:
            return 0.0 * original(self, *args)

        return kl

    patch.wrap(f"{POLICY}:PolicyLoss._kl", make)


@fault("kl", "gradient", shape="strong kl")
def kl_without_gradient(patch: Patch) -> None:
    """The KL term has no gradient."""
    patch.after(f"{POLICY}:PolicyLoss._kl", lambda kl, *_: kl.detach())


@fault("kl", "estimator", shape="strong kl")
def kl_absolute_difference(patch: Patch) -> None:
    """The absolute difference of the log-probs stands for k3."""

    def make(original: Any) -> Any:
        return lambda logp, ref_logp, kind="k3": (logp - ref_logp).abs()

    patch.wrap(f"{POLICY}:kl_policy_ref", make)


@fault("kl")
def reference_of_other_weights(patch: Patch) -> None:
    """The reference is the model with noise of a tenth on its weights."""

    def noisy(model: Any) -> None:
        torch.manual_seed(9)
        for p in model.parameters():
            p.add_(0.1 * p.std() * torch.randn_like(p))

    reference_model(patch, noisy)


@fault("kl")
def reference_slightly_other(patch: Patch) -> None:
    """One layer of the reference is 2 % too large, as from a neighbouring checkpoint."""
    reference_model(patch, lambda m: m.model.layers[0].mlp.down_proj.weight.mul_(1.02))


@fault("kl")
def reference_random(patch: Patch) -> None:
    """The reference has random weights."""

    def random(model: Any) -> None:
        torch.manual_seed(9)
        for p in model.parameters():
            if p.ndim == 2:
                p.copy_(torch.randn_like(p) * p.std())

    reference_model(patch, random)


@fault("kl", "policy")
def reference_is_the_policy(patch: Patch) -> None:
    """The reference is the policy itself: the KL is 0 for ever."""
    patch.after("rlvr_core.step.step:PolicyTrainer._aux_logprobs", lambda found, *_: found)

    def make(original: Any) -> Any:
        def made(self: Any, model: Any, policy: Any, section: Any) -> None:
            original(self, policy, policy, section)

        return made

    patch.wrap("rlvr_core.step.reference:SeparateModel.__init__", make)


@fault("kl", "moved", "follow")
def reference_follows_each_update(patch: Patch) -> None:
    """The reference is replaced by the policy after every update, though it should never move."""

    def make(original: Any) -> Any:
        @torch.no_grad()
        def follow(self: Any, version: int) -> bool:
            for own, new in self._pairs():
                own.copy_(new)
            return original(self, version)

        return follow

    patch.wrap("rlvr_core.step.reference:SeparateModel.follow", make)


@fault("kl", "moved", "follow")
def reference_moves_once(patch: Patch) -> None:
    """After the third update the reference is replaced by the policy."""

    def make(original: Any) -> Any:
        @torch.no_grad()
        def follow(self: Any, version: int) -> bool:
            if version == 3:
                for own, new in self._pairs():
                    own.copy_(new)
            return original(self, version)

        return follow

    patch.wrap("rlvr_core.step.reference:SeparateModel.follow", make)


@fault("kl", "moved", "follow", "ema", shape="moving reference")
def reference_stays_though_it_should_move(patch: Patch) -> None:
    """A reference that should follow the policy every two updates stays."""
    patch.wrap(
        "rlvr_core.step.reference:_Moving.follow", lambda original: lambda self, version: False
    )


@fault("kl", "temperature")
def reference_at_other_temperature(patch: Patch) -> None:
    """The reference's log-probs are at temperature 0.7."""

    def change(ref_BT: Any, trainer: Any, batch: Any) -> Any:
        from rlvr_core.step.forward import completion_logprobs

        with torch.no_grad(), trainer.reference.active() as model:
            return completion_logprobs(
                model, batch, temperature=0.7, autocast_dtype=trainer.precision.autocast
            )

    reference_logprobs(patch, change)


@fault("kl", "row")
def reference_rows_swapped(patch: Patch) -> None:
    """Each row is compared with the reference's log-probs of its neighbour."""
    reference_logprobs(patch, lambda ref_BT, *_: ref_BT.roll(1, 0))


@fault("kl")
def reference_logprobs_of_sampling(patch: Patch) -> None:
    """The engine's log-probs stand for the reference's."""
    reference_logprobs(patch, lambda ref_BT, _, batch: batch.behaviour_logp_BT.to(ref_BT))


@fault("kl", "shift", backends=IN_PROCESS)
def reference_shifted(patch: Patch) -> None:
    """The reference's log-probs are one token late."""
    reference_logprobs(patch, lambda ref_BT, *_: ref_BT.roll(1, 1))
