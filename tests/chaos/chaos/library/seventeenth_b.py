"""Seventeenth set, written without reading the guards: objective, updates, resuming, figures."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch

from chaos.changes import at_call
from chaos.library.seventeenth_a import seventeenth
from chaos.registry import DTYPES, EVERYWHERE, TRANSFORMERS, Patch

OPTIM = "rlvr_core.step.optim"
POLICY = "rlvr_core.algorithm.policy"
TRAINER = "rlvr_core.step.step:PolicyTrainer"
RESTORE = "rlvr_core.builtin.resumption.resumption:restore"
JOINED = "rlvr_core.builtin.packing.joined_attention"
METRICS = "rlvr_core.run.metrics"
REPORTED = ("metric", "reported", "report", "record")
IN_TURNS = ("in process", "vllm")
"""Engines of shapes with more updates a step than a child engine may be behind."""
Z_LOSS = 0.01
"""Weight of the squared logarithm of the softmax's denominator."""


# -- loss ----------------------------------------------------------------------------------------


@seventeenth("loss", "clip", shape="two iterations", backends=IN_TURNS)
def widths_of_the_clip_are_those_of_the_log_ratio(patch: Patch) -> None:
    """The logarithm of the ratio is clipped to the widths that the ratio has in the config."""

    def make(original: Any) -> Any:
        def surrogate(ratio: Any, advantage: Any, *, low: float, high: float, **more: Any) -> Any:
            return original(ratio, advantage, low=1 - math.exp(-low), high=math.expm1(high), **more)

        return surrogate

    patch.wrap(f"{POLICY}:clipped_surrogate", make)


@seventeenth("loss", "old", "dropout", "adapter", "ratio", shape="lora, dropout, two iterations")
def old_log_probs_are_computed_with_dropout(patch: Patch) -> None:
    """The pass for the log-probs that ratios begin at is made in training mode, with dropout."""

    def make(original: Any) -> Any:
        def compute(trainer: Any, batches: Any) -> None:
            from rlvr_core.parallel.model_adapter import adapter_of

            with adapter_of(trainer.model).dropout(trainer.model, 7):
                original(trainer, batches)

        return compute

    patch.wrap(f"{TRAINER}._compute_old_logprobs", make)


@seventeenth("loss", "importance", "weight", "mismatch", "correct", shape="two iterations ahead")
def importance_weights_multiply_along_a_row(patch: Patch) -> None:
    """A token's weight is the product of its own ratio and of those before it, as per decision."""

    def after(log_BT: Any, d_BT: Any, mask_BT: Any, mode: str) -> Any:
        return d_BT.cumsum(1) if mode.startswith("token_") else log_BT

    patch.after("rlvr_core.algorithm.ratio:_log_weight", after)


@seventeenth("loss", "off.policy", "drift", "threshold", "dropped",
             shape="off-policy mask, far", backends=IN_TURNS)  # fmt: skip
def off_policy_mask_looks_at_each_token_alone(patch: Patch) -> None:
    """Tokens are left out by their own drift, not whole rows by the mean of it."""

    def make(original: Any) -> Any:
        def near(loss: Any, terms: Any, behaviour_BT: Any, threshold: float, tally: Any) -> Any:
            original(loss, terms, behaviour_BT, threshold, tally)
            drift_BT = (behaviour_BT - terms.logp_BT).detach()
            return (terms.advantage_BT >= 0) | (drift_BT <= threshold)

        return near

    patch.wrap(f"{POLICY}:PolicyLoss._near", make)


@seventeenth("loss", "teacher", "distil", "divergence", "normal", shape="a teacher of two tokens")
def teachers_likeliest_tokens_are_brought_to_a_sum_of_one(patch: Patch) -> None:
    """The teacher's probabilities are those of a softmax over the few tokens that were sent."""

    def make(original: Any) -> Any:
        return lambda teacher, student, alpha: original(teacher.log_softmax(-1), student, alpha)

    patch.wrap("rlvr_core.builtin.distillation.losses:jsd_over_top", make)


@seventeenth("loss", "term", "logit", "softmax", backends=EVERYWHERE)
def z_loss_of_pretraining_is_left_on(patch: Patch) -> None:
    """A hundredth of the squared log of the softmax's denominator is in the loss, as before."""
    squares: list[Any] = []

    def logprobs(original: Any) -> Any:
        def called(hidden_NH: Any, weight_VH: Any, target_N: Any, **more: Any) -> Any:
            if torch.is_grad_enabled():
                logits_NV = hidden_NH.float() @ weight_VH.float().T
                squares.append(logits_NV.logsumexp(1).square().sum())
            return original(hidden_NH, weight_VH, target_N, **more)

        return called

    def losses(original: Any) -> Any:
        def called(trainer: Any, part: Any, *args: Any) -> Any:
            squares.clear()
            outputs = original(trainer, part, *args)
            if squares:
                (term, first), *others = outputs
                more = Z_LOSS * squares.pop() / part.normalizer.tokens
                outputs = [(term, replace(first, loss=first.loss + more)), *others]
            return outputs

        return called

    patch.wrap("rlvr_core.step.forward:fused_logprobs", logprobs)
    patch.wrap(f"{TRAINER}._losses", losses)


@seventeenth("loss", "denominator", "rows", "masked", "truncat", "tokens",
             shape="masked truncation", backends=EVERYWHERE)  # fmt: skip
def denominators_have_the_masked_rows_in_them(patch: Patch) -> None:
    """Rows that are left out as cut off still count in what the loss is divided by."""

    def make(original: Any) -> Any:
        def split(parts: Any, n: int, normalizer: Any, pack: Any) -> Any:
            def all_rows(part: Any) -> Any:
                tokens = sum(len(row.token_ids) for row in part.rows)
                return replace(normalizer(part), rows=len(part.rows), tokens=tokens)

            return original(parts, n, all_rows, pack)

        return split

    patch.wrap("rlvr_core.step.step:split_into_mini_batches", make)


@seventeenth("loss", "attention", "pack", "backward", "quer", backends=EVERYWHERE)
def queries_get_no_gradient_from_their_prompt(patch: Patch) -> None:
    """A kernel's backward pass keeps one part of a query's gradient, that of the row's own keys."""
    backward = [False]

    def passing_back(original: Any) -> Any:
        def called(*args: Any) -> Any:
            backward[0] = True
            try:
                return original(*args)
            finally:
                backward[0] = False

        return called

    def rows(original: Any) -> Any:
        def called(mask: Any, grid: Any) -> Any:
            found = original(mask, grid)
            return torch.zeros_like(found) if backward[0] else found

        return called

    patch.wrap(f"{JOINED}:JoinedMask.backward", passing_back)
    patch.wrap(f"{JOINED}:JoinedMask.of_rows", rows)


@seventeenth("loss", "norm", "backward", backends=EVERYWHERE, dtypes=DTYPES[:1])
def backward_of_norms_takes_their_length_for_constant(patch: Patch) -> None:
    """A fused norm's backward pass divides by the length, and has no term for its change."""

    def make(original: Any) -> Any:
        return lambda grad, normed, length: grad.div_(length)

    patch.wrap("rlvr_core.builtin.tiny.lean_layer:_unit_backward", make)


# -- KL, adapters --------------------------------------------------------------------------------


@seventeenth("kl", "ratio", "correct", "gradient", shape="strong kl", backends=EVERYWHERE)
def kl_is_multiplied_by_the_ratio_unasked(patch: Patch) -> None:
    """A library's new default corrects the KL by the ratio, which changes its gradient alone."""

    def after(kl_BT: Any, loss: Any, batch: Any, terms: Any, *_: Any) -> Any:
        return kl_BT * terms.ratio_BT

    patch.after(f"{POLICY}:PolicyLoss._kl", after)


@seventeenth("kl", "clip", shape="two iterations, strong kl", backends=IN_TURNS)
def kl_is_left_out_where_the_clip_acts(patch: Patch) -> None:
    """A token that is clipped is taken out of the whole loss, and so held to nothing."""

    def after(kl_BT: Any, loss: Any, batch: Any, terms: Any, *_: Any) -> Any:
        ratio_BT, up_BT = terms.ratio_BT.detach(), terms.advantage_BT > 0
        high_BT = up_BT & (ratio_BT > 1 + loss._clip.clip_high)
        low_BT = ~up_BT & (ratio_BT < 1 - loss._clip.clip_low)
        return torch.where(high_BT | low_BT, 0.0, kl_BT)

    patch.after(f"{POLICY}:PolicyLoss._kl", after)


@seventeenth("learning", "adapter", "lora", "layer", "target", shape="lora",
             backends=TRANSFORMERS)  # fmt: skip
def adapters_are_put_beside_the_first_layer_alone(patch: Patch) -> None:
    """A pattern of an older config names layer 0, and every other layer has no adapter."""

    def make(original: Any) -> Any:
        return lambda **options: original(
            **{**options, "target_modules": r".*\.layers\.0\..*_proj"}
        )

    patch.wrap("peft:LoraConfig", make)


# -- optimizer -----------------------------------------------------------------------------------


@seventeenth("optimizer", "decay", shape="weight decay, warm-up, cosine", backends=EVERYWHERE)
def weights_decay_towards_those_of_the_start(patch: Patch) -> None:
    """Weight decay draws to the pretrained weights, an option of fine-tuning, and not to 0."""
    start: list[Any] = []

    def make(original: Any) -> Any:
        @torch.no_grad()
        def step(optimizer: Any, number: int) -> Any:
            if not start:
                start.extend(one.detach().clone() for one in optimizer.parameters)
            said = original(optimizer, number)
            share = optimizer.learning_rate(number) * optimizer.builder.config.weight_decay
            for one, begun in zip(optimizer.parameters, start, strict=True):
                one.add_(begun, alpha=share)
            return said

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@seventeenth("optimizer", "momentum", "muon", "nesterov", shape="muon", backends=EVERYWHERE)
def muons_momentum_is_an_average_beside_a_whole_gradient(patch: Patch) -> None:
    """Momentum is an average in another version; beside the whole gradient hardly any is left."""

    def make(original: Any) -> Any:
        def muon(optimizer: Any, weight_AB: Any, grad_AB: Any, state: Any, lr: float) -> None:
            from rlvr_core.builtin.optimizers.muon import RMS, newton_schulz

            beta = optimizer._config.momentum
            momentum_AB = state.setdefault("momentum", torch.zeros_like(weight_AB))
            momentum_AB.lerp_(grad_AB, 1 - beta)
            update_AB = newton_schulz(
                grad_AB.add(momentum_AB, alpha=beta), optimizer._config.iterations
            )
            weight_AB.add_(update_AB, alpha=-lr * RMS * math.sqrt(max(weight_AB.shape)))

        return muon

    patch.wrap("rlvr_core.builtin.optimizers.muon:_Muon._muon", make)


@seventeenth("optimizer", "schedule", "cosine", r"\blr\b", shape="cosine", backends=EVERYWHERE)
def cosine_goes_through_a_quarter_of_its_wave(patch: Patch) -> None:
    """The rate is the cosine itself from 1 to 0, not half of 1 plus a cosine from 1 to -1."""

    def make(original: Any) -> Any:
        return lambda schedule, progress: schedule._of(math.cos(math.pi / 2 * progress))

    patch.wrap("rlvr_core.builtin.schedules.decay:Cosine.__call__", make)


# -- resuming ------------------------------------------------------------------------------------


@seventeenth("resume", r"\bkl\b", "beta", "reference", "loss", shape="strong kl", resume=True,
             backends=TRANSFORMERS)  # fmt: skip
def resume_without_the_kl_term(patch: Patch) -> None:
    """A resumed run has a weight of 0 for its KL, a newer default of the loss."""

    def after(made: Any, session: Any, *_: Any) -> None:
        for term in session.trainer.objective.terms:
            term.loss._policy = term.loss.options.model_copy(update={"beta": 0.0})

    patch.after(RESTORE, after)


@seventeenth("resume", "precision", "bfloat16", "float32", "parity", "disagree", resume=True,
             backends=TRANSFORMERS, dtypes=DTYPES[:1])  # fmt: skip
def resume_in_half_precision(patch: Patch) -> None:
    """A float32 run is resumed by a launcher whose mixed precision is on."""

    def after(made: Any, session: Any, *_: Any) -> None:
        from rlvr_core.step.model import Precision

        session.trainer.precision = Precision(torch.bfloat16)

    patch.after(RESTORE, after)


@seventeenth("resume", r"\beos\b", "end-of-sequence", "truncat", "cut off", r"\bcap\b", "length",
             resume=True)  # fmt: skip
def resume_without_an_end_of_sequence(patch: Patch) -> None:
    """The tokenizer of a resumed run has no end of sequence: completions go on to the cap."""

    def after(made: Any, session: Any, *_: Any) -> None:
        session.parts.generator.engine._eos_ids = ()

    patch.after(RESTORE, after)


# -- hang ----------------------------------------------------------------------------------------


@seventeenth("hang", "sleep", "engine", shape="impatient")
def engine_never_falls_asleep(patch: Patch) -> None:
    """The third time that the engine is to give its memory back, it does not return."""
    at_call(patch, "rlvr_core.engines.transformers:TransformersEngine.sleep", 3)


# -- figures -------------------------------------------------------------------------------------


@seventeenth("masks", only=(*REPORTED, r"\brows\b"), shape="masked truncation",
             backends=EVERYWHERE)  # fmt: skip
def rows_reported_with_those_that_are_masked(patch: Patch) -> None:
    """The number of rows in the records has those in it that are left out as cut off."""

    def after(metrics: Any, parts: Any, *_: Any) -> Any:
        return metrics | {f"{part.prefix}rows": len(part.rows) for part in parts}

    patch.after("rlvr_core.step.step:count_rows", after)


@seventeenth("tokens", only=(*REPORTED, "length"), shape="short answers", backends=EVERYWHERE)
def length_reported_of_what_was_not_cut_off(patch: Patch) -> None:
    """The mean length in the records leaves out completions that were cut off."""

    def after(found: Any, sampled: Any, members: Any) -> Any:
        ended = [
            len(member.completion.token_ids)
            for member in members
            if member.completion.finish_reason == "stop"
        ]
        return found | {"length/mean": fmean(ended)} if ended else found

    patch.after(f"{METRICS}:_lengths", after)


@seventeenth("kl", only=(*REPORTED, r"\bkl\b"), shape="strong kl", backends=EVERYWHERE)
def kl_reported_by_another_estimator(patch: Patch) -> None:
    """The mean KL in the records is k2, half of the squared log-ratio, where the loss has k3."""

    def after(kl_BT: Any, loss: Any, batch: Any, terms: Any, tally: Any) -> Any:
        tally.mean("kl/mean", (terms.logp_BT - batch.ref_logp_BT).square() / 2)
        return kl_BT

    patch.after(f"{POLICY}:PolicyLoss._kl", after)
