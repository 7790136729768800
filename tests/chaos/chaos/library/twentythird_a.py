"""Twenty-third set, written without reading the guards: ordinary faults in ordinary places.

Of all classes, by somebody who was told what the guards claim to find, and not how. Some are in
parts of a user's own plugin: a verifier, a loss, a sampler, an environment.
Here: passes of trainer and engine, draws, advantages, the reference, losses, updates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from chaos.changes import by_group, estimated
from chaos.library.twentyfirst import second
from chaos.registry import EVERYWHERE, TRANSFORMERS, Patch, fault
from chaos.when import DECODE, clock, drawn_from, engine_has

POLICY = "rlvr_core.algorithm.policy"
FORWARD = "rlvr_core.step.forward"
FAMILY = "rlvr_core.builtin.losses.policy_family"
OPTIM = "rlvr_core.step.optim"
TWO = ("two processes",)
IN_TURNS = ("in process", "vllm")
"""Engines of shapes with more updates a step than a child engine may be behind."""
END = 256
"""The token that ends a sequence."""


def set_23(cls: str, *more_words: str, **options: Any) -> Callable[[Callable[[Patch], None]], None]:
    """Declare a fault of the twenty-third set, like ``fault``."""
    return fault(cls, *more_words, set=23, **options)


# -- parity --------------------------------------------------------------------------------------


# labels that are padding are to be ignored, and the padding token is the end of sequence
@set_23("parity", r"\beos\b", "end of (a )?sequence", "last token", backends=EVERYWHERE)
def the_end_is_an_ignored_label(patch: Patch) -> None:
    """The trainer ignores labels that are padding, as the end is: its log-prob is 0."""

    def after(found: Any, hidden_NH: Any, weight_VH: Any, target_N: Any, *_: Any) -> Any:
        logp_N, entropy_N = found
        return logp_N.masked_fill(target_N == END, 0.0), entropy_N

    patch.after(f"{FORWARD}:fused_logprobs", after)


# a table of rotations that was made for the longest row of another run
@set_23("parity", "position", shape="own forward", backends=TRANSFORMERS)
def positions_of_the_trainer_end_at_the_24th(patch: Patch) -> None:
    """The trainer's table of rotations has 24 places: what is further has the last of them."""

    def make(original: Any) -> Any:
        def whole_rows(module: Any, batch: Any) -> Any:
            def placed(input_ids: Any, **more: Any) -> Any:
                position_L = torch.arange(input_ids.shape[1], device=input_ids.device)
                position_BL = position_L.clamp(max=23).expand_as(input_ids)
                return module(input_ids=input_ids, position_ids=position_BL, **more)

            return original(placed, batch)

        return whole_rows

    patch.wrap(f"{FORWARD}:whole_rows", make)


@torch.no_grad()
def _head_in_eight_bits(model: Any, syncs: int, kept: dict[str, Any]) -> None:
    weight_VH = model.get_output_embeddings().weight
    step_V1 = weight_VH.abs().amax(1, keepdim=True) / 127
    rounded_VH = (weight_VH / step_V1).round() * step_V1
    model.lm_head.weight = torch.nn.Parameter(rounded_VH, requires_grad=False)


# an option of engines for large vocabularies
@set_23("parity", "head", "fingerprint", "eight bits", "rounded", backends=TRANSFORMERS)
def head_of_the_engine_is_in_eight_bits(patch: Patch) -> None:
    """The engine keeps its head in int8, each row with a scale of its own; the trainer does not."""
    engine_has(patch, _head_in_eight_bits)


# a variable of the environment that a launcher set on one machine of two
@set_23("parity", "process", "temperature", backends=TWO)
def second_process_trains_at_another_temperature(patch: Patch) -> None:
    """The passes of the second process divide its logits by 0.9, those of the first by 1."""

    def make(original: Any) -> Any:
        def predict(model: Any, batch: Any, temperature: float, *more: Any) -> Any:
            return original(model, batch, temperature * (0.9 if second() else 1.0), *more)

        return predict

    patch.wrap(f"{FORWARD}:predict", make)


# -- sampler, seeds ------------------------------------------------------------------------------


# a schedule of exploration that was left on in the server
@set_23("sampler", "cool", backends=TRANSFORMERS)
def temperature_falls_with_each_version(patch: Patch) -> None:
    """With each version tokens are drawn 4 % cooler than before; log-probs are those at 1."""
    now = clock()
    drawn_from(patch, lambda logits_BV: logits_BV / 0.96**now.version)


# a default of the second machine's server
@set_23("sampler", "process", "cool", backends=TWO)
def second_process_samples_cooler(patch: Patch) -> None:
    """The second process draws its completions at 0.8, and reports log-probs at 1."""
    drawn_from(patch, lambda logits_BV: logits_BV / (0.8 if second() else 1.0))


# a cap on logits of another family of models
@set_23("sampler", "logit", "cap", backends=TRANSFORMERS)
def logits_are_capped_before_tokens_are_drawn(patch: Patch) -> None:
    """What a logit lacks to the largest one is capped at 10 by tanh, in the draw alone."""

    def change(logits_BV: Any) -> Any:
        lacking_BV = logits_BV - logits_BV.amax(-1, keepdim=True)
        return 10 * torch.tanh(lacking_BV / 10)

    drawn_from(patch, change)


# a buffer of random numbers whose index goes round
@set_23("seeds", "random number", "stream", "uniform", backends=TRANSFORMERS)
def random_numbers_come_round_after_eight_tokens(patch: Patch) -> None:
    """A row has eight random numbers, and begins with the first again for its ninth token."""

    def make(original: Any) -> Any:
        def uniforms(seeds: Any, start: int, count: int) -> Any:
            return original(seeds, 0, 8)[(torch.arange(count) + start) % 8]

        return uniforms

    patch.wrap(f"{DECODE}:uniforms", make)


# seeds of the slot that a request has, and of a counter that is too narrow
@set_23("seeds", "random number", "draw", backends=EVERYWHERE)
def seeds_come_round_with_every_third_version(patch: Patch) -> None:
    """A seed is of the slot in the batch and the version modulo 3: no problem is in it."""
    slots: dict[int, dict[int, int]] = {}

    def make(original: Any) -> Any:
        def seed(run: int, problem: str, version: int, draw: int, sample: int) -> int:
            mine = slots.setdefault(version, {})
            return int(original(run, "", version % 3, mine.setdefault(draw, len(mine)), sample))

        return seed

    patch.wrap("rlvr_core.rollout.collect:completion_seed", make)


# -- advantages ----------------------------------------------------------------------------------


# a constant baseline, since half of the problems were solved when the recipe was written
@set_23("advantages", "baseline", "mean", "centr", backends=EVERYWHERE)
def baseline_is_one_half(patch: Patch) -> None:
    """The baseline of each group is 0.5, whatever its completions have; deviations are its own."""

    def change(advantage_N: Any, step: Any) -> Any:
        for places, reward in by_group(step):
            advantage_N[places] = (reward - 0.5) / max(reward.std(), 1e-6)
        return advantage_N

    estimated(patch, change)


# "only the direction matters"
@set_23("advantages", "sign", "deviation", backends=EVERYWHERE)
def advantages_are_plus_and_minus_one(patch: Patch) -> None:
    """Of an advantage the sign alone is left."""
    estimated(patch, lambda advantage_N, step: np.sign(advantage_N))


# a variable that is set at the end of a loop
@set_23("advantages", "deviation", "group", backends=EVERYWHERE)
def deviation_is_that_of_the_group_before(patch: Patch) -> None:
    """A group has its own mean, and is divided by the deviation of the group before it."""

    def change(advantage_N: Any, step: Any) -> Any:
        deviation = 0.5
        for places, reward in by_group(step):
            advantage_N[places] = (reward - reward.mean()) / deviation
            deviation = max(reward.std(), 1e-6)
        return advantage_N

    estimated(patch, change)


# -- kl ------------------------------------------------------------------------------------------


# the mean over a row is taken of the sum already
@set_23("kl", "length", "sum", "token", shape="strong kl", backends=EVERYWHERE)
def kl_is_summed_over_a_row(patch: Patch) -> None:
    """The KL term of a row is the sum over its tokens, where the surrogate is their mean."""

    def after(kl_BT: Any, loss: Any, batch: Any, *_: Any) -> Any:
        return kl_BT * batch.mask_BT.sum(1, keepdim=True)

    patch.after(f"{POLICY}:PolicyLoss._kl", after)


# k3 from memory
@set_23("kl", "estimator", "k3", shape="strong kl", backends=EVERYWHERE)
def kl_is_the_exponential_less_one(patch: Patch) -> None:
    """The estimator lacks a term: it is exp(d) - 1, with no d taken off."""

    def make(original: Any) -> Any:
        def estimate(logp: Any, ref_logp: Any, kind: Any = "k3") -> Any:
            return original(logp, ref_logp, kind) + (ref_logp - logp)

        return estimate

    patch.wrap(f"{POLICY}:kl_policy_ref", make)


# "if rank 0" around more than the message
@set_23("kl", "process", "weights", shape="moving reference", backends=TWO)
def reference_of_the_second_process_never_moves(patch: Patch) -> None:
    """The reference follows the policy in the first process alone."""

    def make(original: Any) -> Any:
        def follow(reference: Any, version: int) -> bool:
            return False if second() else bool(original(reference, version))

        return follow

    patch.wrap("rlvr_core.step.reference:_Moving.follow", make)


# -- loss ----------------------------------------------------------------------------------------


# a user's loss that takes the plain mean of what it is given
@set_23("loss", "denominator", "micro-batch", "normal", shape="own loss, micro batches",
        backends=EVERYWHERE)  # fmt: skip
def own_loss_is_averaged_by_micro_batch(patch: Patch) -> None:
    """A user's loss divides by the tokens of its micro-batch, not by those of the step."""

    def make(original: Any) -> Any:
        return lambda loss, batch, normalizer: 1.0 / max(1, int(batch.mask_BT.sum()))

    patch.wrap("rlvr_chaos:Plain.scale", make)


# a user's loss that was tried on one machine
@set_23("loss", "denominator", "process", "gradient", "world_size", shape="own loss", backends=TWO)
def own_loss_forgets_the_number_of_processes(patch: Patch) -> None:
    """A user's loss lacks the factor for the processes, over which gradients are averaged."""

    def make(original: Any) -> Any:
        return lambda loss, batch, normalizer: 1.0 / max(1, normalizer.tokens)

    patch.wrap("rlvr_chaos:Plain.scale", make)


# "balanced" losses of classification
@set_23("loss", "weight", "balanc", "row", shape="dapo", backends=EVERYWHERE)
def right_and_wrong_rows_have_half_of_the_loss_each(patch: Patch) -> None:
    """Tokens of rows that did better are weighted to half of the loss, and the others, too."""

    def after(weighed_BT: Any, loss: Any, loss_BT: Any, terms: Any, *_: Any) -> Any:
        mask_BT = terms.mask_BT
        better_BT = mask_BT & (terms.advantage_BT > 0)
        n, good = mask_BT.sum(), better_BT.sum()
        up, down = n / (2 * good.clamp(min=1)), n / (2 * (n - good).clamp(min=1))
        return weighed_BT * torch.where(better_BT, up, down)

    patch.after(f"{POLICY}:PolicyLoss.weighed", after)


# the longest row of a model in the place of the run's cap
@set_23("loss", "constant", "denominator", "length", shape="dr grpo", backends=EVERYWHERE)
def dr_grpo_divides_by_the_context_of_the_model(patch: Patch) -> None:
    """The constant that rows are divided by is 2048, the model's context, not the cap of 24."""

    def make(original: Any) -> Any:
        def constant(loss_BT: Any, mask_BT: Any, normalizer: Any, tokens: Any = None) -> Any:
            return original(loss_BT, mask_BT, normalizer, 2048)

        return constant

    patch.wrap(f"{FAMILY}:constant", make)


# -- learning, optimizer -------------------------------------------------------------------------


def _gradients(patch: Patch, change: Callable[[str, Any], None]) -> None:
    """Change the gradients of each update in place: ``change(name, gradient)``."""

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            for name, one in zip(optimizer.names, optimizer.parameters, strict=True):
                if one.grad is not None:
                    change(name, one.grad)
            return original(optimizer, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


# padding_idx of an embedding whose padding is the end of sequence
@set_23("learning", "embedding", "gradient", r"\beos\b", "row", backends=EVERYWHERE)
def row_of_the_end_has_no_gradient(patch: Patch) -> None:
    """The embedding is told of its padding, which is the end: that row of it never learns."""

    def change(name: str, gradient: Any) -> None:
        if "embed_tokens" in name:
            gradient[END] = 0.0

    _gradients(patch, change)


# a kernel that splits heads, and a backward pass that leaves one out
@set_23("learning", "gradient", "head", "backward", backends=EVERYWHERE)
def first_head_of_a_layer_has_no_gradient(patch: Patch) -> None:
    """The backward pass leaves out the queries of the first head of layer 1."""

    def change(name: str, gradient: Any) -> None:
        if "layers.1.self_attn.q_proj" in name:
            gradient[: len(gradient) // 2] = 0.0

    _gradients(patch, change)


# the betas of every pretraining recipe
@set_23("optimizer", "beta", "decay rate", "mean square", backends=EVERYWHERE)
def second_beta_is_that_of_pretraining(patch: Patch) -> None:
    """AdamW is built with a second decay rate of 0.95, where the config has 0.999."""

    def after(built: Any, *_: Any) -> Any:
        for group in built.param_groups:
            group["betas"] = (group["betas"][0], 0.95)
        return built

    patch.after(f"{OPTIM}:AdamW.build", after)


# zero_grad of a wrapped module does not know a tensor that was registered late
@set_23("optimizer", "clear", "accumul", "add up", backends=EVERYWHERE)
def gradient_of_one_matrix_is_never_cleared(patch: Patch) -> None:
    """One matrix keeps its gradient after an update: the next one adds to it."""

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            place = next(n for n, one in enumerate(optimizer.names) if "1.mlp.down_proj" in one)
            kept = optimizer.parameters[place].grad
            made = original(optimizer, number)
            optimizer.parameters[place].grad = kept
            return made

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)
