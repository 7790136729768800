"""Tenth set, written without reading the guards: objective, updates, resuming, reports."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from chaos.changes import by_group, estimated
from chaos.library.tenth_a import tenth
from chaos.registry import Patch

OPTIM = "rlvr_core.step.optim"
PLUS_PLUS = "rlvr_core.builtin.advantages.reinforce_plus_plus:ReinforcePlusPlus"
MINI_BATCHES = "rlvr_core.step.mini_batches"
ENTROPY = "rlvr_core.algorithm.entropy:EntropyController"

# -- advantages ----------------------------------------------------------------------------------


def _scaled_by_size(patch: Patch, factor: Any) -> None:
    def change(row_N: Any, step: Any) -> Any:
        for places, rewards in by_group(step):
            row_N[places] *= factor(int(np.isfinite(rewards).sum()))
        return row_N

    estimated(patch, change)


@tenth("advantages", "deviation", "std", "bessel")
def deviation_by_the_librarys_default(patch: Patch) -> None:
    """The deviation of a group is torch's default, that of a sample, not that of a population."""
    _scaled_by_size(patch, lambda n: math.sqrt((n - 1) / n) if n > 1 else 0.0)


@tenth("advantages", "baseline", "leave", shape="reinforce, rloo")
def baseline_of_rloo_has_the_completion_itself(patch: Patch) -> None:
    """The baseline of RLOO, the mean of the others, is the mean of all."""
    _scaled_by_size(patch, lambda n: (n - 1) / n if n > 1 else 0.0)


@tenth("advantages", "missing", "mean", "size", shape="some verdicts are missing")
def missing_rewards_count_in_the_size_of_their_group(patch: Patch) -> None:
    """Completions without a reward are left out of a group's sums, and not out of its size."""

    def change(row_N: Any, step: Any) -> Any:
        for places, rewards in by_group(step):
            known, n = np.isfinite(rewards), len(rewards)
            if known.sum() < 2:
                continue
            centred = np.where(known, rewards - np.nansum(rewards) / n, 0.0)
            std = max(math.sqrt((centred**2).sum() / n), 1e-6)
            row_N[places] = centred / std
        return row_N

    estimated(patch, change)


@tenth("advantages", "return", r"\bkl\b", shape="reinforce++ with a strong kl")
def returns_summed_from_the_wrong_end(patch: Patch) -> None:
    """The KL in a token's return is that of the tokens before it, not of those that follow."""

    def make(original: Any) -> Any:
        def returns(estimator: Any, step: Any) -> Any:
            # numbers whose sums from the end are the sums from the start
            turned = [np.append(-kl_T[1:], kl_T.sum()) for kl_T in step.kl_N]
            return original(estimator, replace(step, kl_N=tuple(turned)))

        return returns

    patch.wrap(f"{PLUS_PLUS}.__call__", make)


# -- loss ----------------------------------------------------------------------------------------


@tenth("loss", "entropy", "bonus", "coefficient", "control", shape="entropy steered")
def control_of_the_entropy_goes_the_wrong_way(patch: Patch) -> None:
    """Where the entropy is below its target, the weight of the bonus goes down, and up above it."""

    def make(original: Any) -> Any:
        def observe(controller: Any, entropy: float) -> None:
            original(controller, 2 * controller.control.target - entropy)
            controller.entropy = entropy

        return observe

    patch.wrap(f"{ENTROPY}.observe", make)


@tenth("loss", "length", "mean", "pad", "sequence", shape="gspo, two iterations")
def sequence_ratio_over_the_padded_length(patch: Patch) -> None:
    """The mean log-ratio of a row is divided by the length that it is padded to."""

    def make(original: Any) -> Any:
        def mean(log_ratio_BT: Any, mask_BT: Any) -> Any:
            return log_ratio_BT.sum(dim=1, keepdim=True) / mask_BT.shape[1]

        return mean

    patch.wrap("rlvr_core.algorithm.policy:row_mean_log_ratio", make)


@tenth("loss", "constant", "length", "denominator", "normali[sz]", shape="dr grpo")
def constant_length_is_the_longest_of_the_batch(patch: Patch) -> None:
    """Dr. GRPO divides by the longest completion of a micro-batch, not by a constant."""

    def make(original: Any) -> Any:
        def constant(loss_BT: Any, mask_BT: Any, normalizer: Any, tokens: Any = None) -> Any:
            return original(loss_BT, mask_BT, normalizer, mask_BT.shape[1])

        return constant

    patch.wrap("rlvr_core.builtin.losses.policy_family:constant", make)


# -- optimizer -----------------------------------------------------------------------------------


@tenth("optimizer", "nesterov", "momentum", "muon", shape="muon")
def muon_without_nesterov(patch: Patch) -> None:
    """Muon moves matrices by their momentum, without the step ahead that is Nesterov's."""

    def make(original: Any) -> Any:
        def muon(inner: Any, weight: Any, grad: Any, state: Any, lr: float) -> None:
            from rlvr_core.builtin.optimizers.muon import newton_schulz

            if not state:
                state["momentum"] = torch.zeros_like(weight)
            momentum = state["momentum"].mul_(inner._config.momentum).add_(grad)
            scale = 0.2 * math.sqrt(max(weight.shape))
            step = newton_schulz(momentum, inner._config.iterations)
            weight.add_(step, alpha=-lr * scale)

        return muon

    patch.wrap("rlvr_core.builtin.optimizers.muon:_Muon._muon", make)


def _grouped(patch: Patch, apart: Any, **options: Any) -> None:
    """Let AdamW have the tensors of which ``apart`` is true in a group with other options."""

    def make(original: Any) -> Any:
        def build(builder: Any, parameters: Any, lr: float) -> Any:
            config = builder.config
            own = [one.tensor for one in parameters if apart(one)]
            rest = [one.tensor for one in parameters if not apart(one)]
            return torch.optim.AdamW(
                [{"params": own, **options}, {"params": rest}],
                lr=lr,
                betas=config.betas,
                eps=config.eps,
                weight_decay=config.weight_decay,
                fused=True,
            )

        return build

    patch.wrap(f"{OPTIM}:AdamW.build", make)


@tenth("optimizer", "adapter", "lora", "rate", shape="lora")
def lora_plus_left_on(patch: Patch) -> None:
    """The second matrices of adapters learn at 16 times the rate, as LoRA+ has it."""
    _grouped(patch, lambda one: "lora_B" in one.name, lr_scale=16.0)


@tenth("optimizer", "decay", "norm", shape="weight decay, warm-up, cosine")
def scales_of_norms_do_not_decay(patch: Patch) -> None:
    """Norms are left out of weight decay, as a trainer before had it and the config does not."""
    _grouped(patch, lambda one: one.tensor.ndim == 1, weight_decay=0.0)


@tenth("optimizer", "norm", "clip", "tied", "embedding", shape="tight norm")
def tied_embedding_twice_in_the_norm(patch: Patch) -> None:
    """The norm is taken over names, and an embedding that is the head, too, has two of them."""

    def make(original: Any) -> Any:
        def clip(parameters: Any, most: float, *args: Any, **more: Any) -> Any:
            parameters = list(parameters)
            plain = original(parameters, math.inf)
            twice = parameters[0].grad.norm()
            norm = (plain.square() + twice.square()).sqrt()
            share = min(1.0, most / (float(norm) + 1e-6))
            for one in parameters:
                if one.grad is not None and share < 1:
                    one.grad.mul_(share)
            return norm

        return clip

    patch.wrap("torch.nn.utils:clip_grad_norm_", make)


# -- learning rate -------------------------------------------------------------------------------


@tenth("learning", "warm-?up", "schedule", r"\blr\b", shape="linear warm-up and decay")
def warm_up_begins_at_zero(patch: Patch) -> None:
    """The warm-up counts from 0: the first step has a rate of 0, all others that of one before."""

    def make(original: Any) -> Any:
        def rate(train: Any, schedule: Any, step: int) -> float:
            if step < train.warmup_steps:
                return float(train.lr * step / train.warmup_steps)
            return float(original(train, schedule, step))

        return rate

    patch.wrap(f"{OPTIM}:learning_rate", make)


@tenth("optimizer", "schedule", "floor", "least", shape="weight decay, warm-up, cosine")
def least_rate_of_the_cosine_forgotten(patch: Patch) -> None:
    """The schedule goes down to 0, where the config has a tenth of the peak as the least rate."""

    def make(original: Any) -> Any:
        def init(schedule: Any, config: Any) -> None:
            original(schedule, config)
            schedule._least = 0.0

        return init

    patch.wrap("rlvr_core.builtin.schedules.decay:_Decay.__init__", make)


# -- reference -----------------------------------------------------------------------------------


@tenth("kl", "precision", "dtype", dtypes=("float32",))
def reference_computed_in_half_precision(patch: Patch) -> None:
    """The reference's pass is in bfloat16 to be quicker, and the policy's in float32."""
    from rlvr_core.step.forward import completion_logprobs

    def make(original: Any) -> Any:
        def logprobs(trainer: Any, model: Any, batch: Any) -> Any:
            if model is trainer.model:
                return original(trainer, model, batch)
            return completion_logprobs(
                model,
                batch,
                autocast_dtype=torch.bfloat16,
                compiled=None,
                temperature=trainer.temperature,
            )

        return logprobs

    patch.wrap("rlvr_core.step.step:PolicyTrainer._logprobs", make)


@tenth("kl", "follow", "moved", "update", "version", shape="moving reference")
def reference_takes_the_weights_before_the_update(patch: Patch) -> None:
    """The hook that moves the reference comes before the optimizer: it has the weights before."""
    kept: dict[str, Any] = {}

    def make(original: Any) -> Any:
        @torch.no_grad()
        def follow(reference: Any, version: int) -> bool:
            own = list(reference.policy.parameters())
            now = [one.detach().clone() for one in own]
            for one, before in zip(own, kept.get("before", now), strict=True):
                one.copy_(before)
            said = bool(original(reference, version))
            for one, after in zip(own, now, strict=True):
                one.copy_(after)
            kept["before"] = now
            return said

        return follow

    patch.wrap("rlvr_core.step.reference:SeparateModel.follow", make)


# -- resume --------------------------------------------------------------------------------------


@tenth("resume", "entropy", "bonus", "coefficient", shape="entropy steered", resume=True)
def resume_with_the_entropy_bonus_at_its_start(patch: Patch) -> None:
    """The weight of the entropy bonus begins again where the config has it."""
    patch.wrap(f"{ENTROPY}.load_state_dict", lambda original: lambda controller, state: None)


@tenth("resume", "adapter", "lora", "scal", shape="lora", resume=True)
def resume_with_the_adapter_scaled_by_a_root(patch: Patch) -> None:
    """A resumed run scales its adapter by alpha over the root of its rank, a newer default."""

    def make(original: Any) -> Any:
        def load(folder: Any, *, model: Any, **more: Any) -> Any:
            state = original(folder, model=model, **more)
            for module in model.modules():
                scaling = getattr(module, "scaling", None)
                for name in scaling if isinstance(scaling, dict) else ():
                    scaling[name] *= math.sqrt(module.r[name])
            return state

        return load

    patch.wrap("rlvr_core.step.checkpoint:load", make)


# -- reported numbers ----------------------------------------------------------------------------

REPORTED = ("metric", "reported", "report")


@tenth("loss", only=(*REPORTED, r"\bloss\b"), shape="micro batches")
def loss_reported_of_the_last_micro_batch(patch: Patch) -> None:
    """The loss in the records is that of an update's last micro-batch, not of all of them."""

    def after(losses: Any, totals: Any) -> Any:
        return {name: float(parts[-1]) for name, parts in totals._losses.items()}

    patch.after(f"{MINI_BATCHES}:Totals.losses", after)


@tenth("loss", only=(*REPORTED, "kl/mean", "mean"), shape="micro batches")
def means_reported_over_micro_batches(patch: Patch) -> None:
    """Means in the records are means of the micro-batches' means, however long these are."""

    def after(pair: Any, pairs: Any) -> Any:
        shares = [float(total) / float(count) for total, count in pairs if count]
        return (sum(shares), float(len(shares))) if shares else pair

    patch.after(f"{MINI_BATCHES}:_pair", after)


@tenth("tokens", only=(*REPORTED, "length"))
def length_reported_with_the_prompt(patch: Patch) -> None:
    """The mean length in the records is that of prompt and completion."""

    def after(found: Any, rollouts: Any) -> Any:
        prompts = [len(one.group.members[0].completion.prompt_ids) for one in rollouts.all]
        if "length/mean" in found and prompts:
            found["length/mean"] += sum(prompts) / len(prompts)
        return found

    patch.after("rlvr_core.run.session:rollout_metrics", after)
