"""Twentieth set, written without reading the guards: objective, updates, resuming, figures."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from chaos.changes import at_call
from chaos.library.twentieth_a import twentieth
from chaos.registry import TRANSFORMERS, Patch

OPTIM = "rlvr_core.step.optim"
POLICY = "rlvr_core.algorithm.policy"
TRAINER = "rlvr_core.step.step:PolicyTrainer"
RESTORE = "rlvr_core.builtin.resumption.resumption:restore"
RECORDER = "rlvr_core.record.recorder:Recorder"
REPORTED = ("metric", "reported", "report", "record")


# -- KL ------------------------------------------------------------------------------------------


@twentieth("kl", "gradient", "old", shape="two iterations, strong kl")
def kl_is_that_of_the_start_of_the_step(patch: Patch) -> None:
    """The KL is computed from the log-probs that ratios begin at, and has no gradient."""

    def make(original: Any) -> Any:
        def kl(loss: Any, batch: Any, terms: Any, tally: Any) -> Any:
            return original(loss, batch, replace(terms, logp_BT=batch.old_logp_BT), tally)

        return kl

    patch.wrap(f"{POLICY}:PolicyLoss._kl", make)


@twentieth("kl", "advantage", "return", "estimat", shape="reinforce++ with a strong kl",
           backends=TRANSFORMERS)  # fmt: skip
def kl_in_the_rewards_is_half_of_its_square(patch: Patch) -> None:
    """An estimator gets k2 of each token where its formula has the log-ratio."""

    def after(kl_N: Any, *_: Any) -> Any:
        return None if kl_N is None else [kl_T**2 / 2 for kl_T in kl_N]

    patch.after(f"{TRAINER}._reference_kl", after)


# -- loss ----------------------------------------------------------------------------------------


@twentieth("loss", "share", "weight", r"\brows?\b", "group", shape="groups that grow")
def groups_count_the_same_whatever_their_size(patch: Patch) -> None:
    """A row's share of the loss is that of its group, which small groups get as large ones do."""

    def after(made: Any, *_: Any) -> Any:
        sizes = [len(rows) for rows in made.by_group if rows]
        mean = sum(sizes) / max(1, len(sizes))
        changed = [[replace(row, share=mean / len(rows)) for row in rows] for rows in made.by_group]
        return replace(made, by_group=changed)

    patch.after("rlvr_core.step.step:rows_of", after)


@twentieth("loss", "entropy", "bonus", shape="cool, with an entropy bonus", backends=TRANSFORMERS)
def bonus_of_entropy_is_of_the_sampled_tokens(patch: Patch) -> None:
    """The bonus is the mean surprise of what was sampled: its gradient is none of the entropy's."""

    def make(original: Any) -> Any:
        def mean(batch: Any, normalizer: Any) -> Any:
            return original(replace(batch, entropy_BT=-batch.logp_BT), normalizer)

        return mean

    patch.wrap(f"{POLICY}:_mean_entropy", make)


@twentieth("loss", "teacher", "distil", "divergence", "alpha", shape="grpo and a teacher")
def mixture_of_a_divergence_is_half_and_half(patch: Patch) -> None:
    """The share of the teacher in the mixture is never handed on: it is one half."""

    def make(original: Any) -> Any:
        return lambda teacher, student, alpha: original(teacher, student, 0.5)

    patch.wrap("rlvr_core.builtin.distillation.losses:jsd_over_top", make)


@twentieth("loss", "importance", "weight", "mismatch", "correct", shape="two iterations ahead")
def importance_weights_follow_each_update(patch: Patch) -> None:
    """The weights are computed from the policy of the moment, and not from that of the start."""
    now: list[Any] = []

    def after(terms: Any, *_: Any) -> Any:
        now[:] = [terms.logp_BT.detach()]
        return terms

    def make(original: Any) -> Any:
        return lambda old_BT, *args: original(now[0], *args)

    patch.after(f"{POLICY}:PolicyLoss._terms", after)
    patch.wrap(f"{POLICY}:importance_weight", make)


@twentieth("loss", "given answers", "weight", "sft", "imitat", shape="grpo and given answers",
           backends=TRANSFORMERS)  # fmt: skip
def weight_of_given_answers_fades(patch: Patch) -> None:
    """A schedule of an earlier recipe takes the loss on given answers down to 0."""
    step = [0]

    def accumulating(original: Any) -> Any:
        def accumulate(trainer: Any, batch: Any, number: int, *args: Any) -> Any:
            step[0] = number
            return original(trainer, batch, number, *args)

        return accumulate

    def after(outputs: Any, *_: Any) -> Any:
        share = max(0.0, 1 - step[0] / 8)
        return [
            (replace(term, weight=term.weight * share) if term.demonstrations else term, output)
            for term, output in outputs
        ]

    patch.wrap(f"{TRAINER}._accumulate", accumulating)
    patch.after(f"{TRAINER}._losses", after)


@twentieth("loss", "weight", "cap", "ratio", shape="cispo, three iterations")
def ratios_that_weigh_never_fall_below_one(patch: Patch) -> None:
    """CISPO's weight is bounded on both sides, below by 1, as an earlier clip had it."""

    def make(original: Any) -> Any:
        def surrogate(loss: Any, terms: Any, tally: Any) -> Any:
            return original(loss, replace(terms, ratio_BT=terms.ratio_BT.clamp(min=1.0)), tally)

        return surrogate

    patch.wrap("rlvr_core.builtin.losses.policy_family:CISPO.surrogate", make)


# -- updates -------------------------------------------------------------------------------------


class _Adam(torch.optim.AdamW):
    """AdamW by hand; its variants say how the mean square becomes a denominator."""

    def denominator(self, square: Any, group: Any, made: float) -> Any:
        """What the mean gradient is divided by."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            first, second = group["betas"]
            for one in group["params"]:
                if one.grad is None:
                    continue
                state = self.state[one]
                if not state:
                    state["step"] = torch.zeros(())
                    state["exp_avg"] = torch.zeros_like(one)
                    state["exp_avg_sq"] = torch.zeros_like(one)
                state["step"] += 1
                made = float(state["step"])
                state["exp_avg"].lerp_(one.grad, 1 - first)
                state["exp_avg_sq"].mul_(second).addcmul_(one.grad, one.grad, value=1 - second)
                one.mul_(1 - group["lr"] * group["weight_decay"])
                mean = state["exp_avg"] / (1 - first**made)
                one.sub_(group["lr"] * mean / self.denominator(state["exp_avg_sq"], group, made))


class _OneBeta(_Adam):
    def denominator(self, square: Any, group: Any, made: float) -> Any:
        return (square / (1 - group["betas"][0] ** made)).sqrt() + group["eps"]


class _EarlyEpsilon(_Adam):
    def denominator(self, square: Any, group: Any, made: float) -> Any:
        return (square.sqrt() + group["eps"]) / (1 - group["betas"][1] ** made) ** 0.5


def _built(patch: Patch, kind: Any) -> None:
    def make(original: Any) -> Any:
        def build(builder: Any, parameters: Any, lr: float) -> Any:
            config = builder.config
            return kind(
                [one.tensor for one in parameters],
                lr=lr,
                betas=config.betas,
                eps=config.eps,
                weight_decay=config.weight_decay,
            )

        return build

    patch.wrap(f"{OPTIM}:AdamW.build", make)


@twentieth("optimizer", "bias", "beta", "adam", backends=TRANSFORMERS)
def mean_square_is_corrected_with_the_first_beta(patch: Patch) -> None:
    """The bias of both moments is corrected with the decay of the first."""
    _built(patch, _OneBeta)


@twentieth("optimizer", "epsilon", r"\beps\b", "adam", backends=TRANSFORMERS)
def epsilon_is_added_before_the_correction(patch: Patch) -> None:
    """Epsilon is added to the root before its bias is corrected: it begins 30 times larger."""
    _built(patch, _EarlyEpsilon)


@twentieth("optimizer", "decay", "muon",
           shape="likelihood of success, muon, lora, warm-up and decay")  # fmt: skip
def matrices_of_muon_do_not_decay(patch: Patch) -> None:
    """Weight decay is left out where Muon makes the update; the rest decays."""

    def make(original: Any) -> Any:
        def muon(optimizer: Any, weight: Any, grad: Any, state: Any, lr: float) -> None:
            weight.div_(1 - lr * optimizer._config.weight_decay)
            original(optimizer, weight, grad, state, lr)

        return muon

    patch.wrap("rlvr_core.builtin.optimizers.muon:_Muon._muon", make)


@twentieth("optimizer", "warm.?up", "schedule", r"\blr\b", shape="linear warm-up and decay")
def warm_up_rises_with_the_square(patch: Patch) -> None:
    """The rate of a warm-up is the square of the share of it that is done."""

    def after(rate: float, train: Any, schedule: Any, step: int) -> float:
        if step >= train.warmup_steps:
            return rate
        return float(rate * (step + 1) / train.warmup_steps)

    patch.after(f"{OPTIM}:learning_rate", after)


@twentieth("optimizer", "norm", "clip", shape="tight norm", backends=TRANSFORMERS)
def norm_of_the_update_before_decides_the_clip(patch: Patch) -> None:
    """So as not to wait, a gradient is clipped by the norm of the one before it."""
    last: list[Any] = []

    def make(original: Any) -> Any:
        def clip(parameters: Any, limit: float, *args: Any, **more: Any) -> Any:
            parameters = list(parameters)
            norm = original(parameters, torch.inf, *args, **more)
            known = last.pop() if last else norm
            last.append(norm)
            factor = float((limit / (known + 1e-6)).clamp(max=1.0))
            for one in parameters:
                if one.grad is not None:
                    one.grad.mul_(factor)
            return norm

        return clip

    patch.wrap("torch.nn.utils:clip_grad_norm_", make)


@twentieth("learning", "adapter", "lora", shape="lora", backends=TRANSFORMERS)
def first_matrices_of_adapters_rest_every_other_step(patch: Patch) -> None:
    """An adapter's matrices are trained in turns: the first has no gradient at even steps."""

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            for name, one in zip(optimizer.names, optimizer.parameters, strict=True):
                if ".lora_A." in name and number % 2 == 0:
                    one.grad = None
            return original(optimizer, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


# -- resume --------------------------------------------------------------------------------------


@twentieth("resume", "ledger", "drawn", "count", shape="resumed", resume=True)
def resume_with_the_ledger_at_zero(patch: Patch) -> None:
    """What was drawn before the stop is forgotten by the accounts of a resumed run."""

    def after(made: None, session: Any, *_: Any) -> None:
        session.ledger.__init__()

    patch.after(RESTORE, after)


@twentieth("resume", "difficulty", "pass rate", "sampler", shape="difficulty, few problems",
           resume=True)  # fmt: skip
def resume_without_the_pass_rates_of_problems(patch: Patch) -> None:
    """A sampler by difficulty goes on at its place, and knows no problem any more."""

    def after(made: None, session: Any, *_: Any) -> None:
        session.parts.sampler._records.clear()
        session.parts.sampler._sort()

    patch.after(RESTORE, after)


@twentieth("resume", "reference", r"\bkl\b", shape="moving reference", resume=True)
def resume_with_the_moving_reference_of_the_checkpoint_before(patch: Patch) -> None:
    """A reference that moves is that of the checkpoint before the newest one."""

    @torch.no_grad()
    def after(made: None, session: Any, folder: Any) -> None:
        from safetensors.torch import load_file

        older = sorted(folder.parent.glob("step*"))[-2]
        saved = load_file(older / "trainer" / "reference.safetensors")
        for name, one in session.trainer.reference.named().items():
            one.copy_(saved[name])

    patch.after(RESTORE, after)


@twentieth("resume", "moment", "optimizer", "precision", shape="many checkpoints")
def checkpoints_have_moments_in_half_precision(patch: Patch) -> None:
    """The moments of a checkpoint have gone through bfloat16, to write less."""

    def after(snapshot: Any, *_: Any) -> Any:
        moments = {
            name: one.bfloat16().to(one.dtype) if one.ndim else one
            for name, one in snapshot.moments.items()
        }
        return replace(snapshot, moments=moments)

    patch.after("rlvr_core.step.checkpoint:collect", after)


@twentieth("resume", "adapter", "lora", "alpha", "scale", shape="lora")
def adapters_are_saved_with_another_alpha(patch: Patch) -> None:
    """The config beside a saved adapter says its rank for its alpha, so that it loads at half."""

    def after(adapter: Any, *_: Any) -> Any:
        return replace(adapter, config={**adapter.config, "lora_alpha": adapter.config["r"]})

    patch.after("rlvr_core.builtin.lora.lora:adapter_of", after)


# -- hang ----------------------------------------------------------------------------------------


@twentieth("hang", "advantage", shape="impatient")
def advantages_are_never_estimated(patch: Patch) -> None:
    """The estimator of the third step does not return."""
    at_call(patch, "rlvr_core.algorithm.estimate:Estimator.of", 3)


@twentieth("hang", "records?", "timing", shape="impatient")
def seconds_of_a_step_are_never_written(patch: Patch) -> None:
    """The stream that durations are written to is on a disk that no longer answers."""
    at_call(patch, f"{RECORDER}.timing", 3)


# -- figures -------------------------------------------------------------------------------------


@twentieth("optimizer", only=(*REPORTED, "norm"))
def norm_reported_as_a_running_mean(patch: Patch) -> None:
    """The norm of the gradient in the records is smoothed over the steps."""
    known: list[float] = []

    def after(metrics: Any, *_: Any) -> Any:
        mean = (known[-1] + metrics["grad_norm"]) / 2 if known else metrics["grad_norm"]
        known.append(mean)
        return metrics | {"grad_norm": mean}

    patch.after("rlvr_core.step.step:summarize_updates", after)


@twentieth("tokens", only=(*REPORTED, "token"), backends=TRANSFORMERS)
def sampled_tokens_reported_with_the_padding(patch: Patch) -> None:
    """The number of sampled tokens in the records is that of the grid they were decoded in."""

    def after(found: Any, sampled: Any, members: Any) -> Any:
        grids = [[len(m.completion.token_ids) for m in one.group.members] for one in sampled]
        return found | {"tokens/completion": sum(max(one) * len(one) for one in grids)}

    patch.after("rlvr_core.run.metrics:_lengths", after)


@twentieth("sync", only=(*REPORTED, "staleness", "age", "version"),
           shape="far ahead, four updates a step")  # fmt: skip
def ages_are_reported_in_steps(patch: Patch) -> None:
    """How far rollouts were behind is counted in steps in the records, where it is in updates."""

    def make(original: Any) -> Any:
        def metrics(ages: Any) -> Any:
            fewer: Counter[Any] = Counter()
            for (fate, age), n in ages.items():
                fewer[fate, age // 4] += n
            return original(fewer)

        return metrics

    patch.wrap("rlvr_core.builtin.asynchronous.ahead:staleness_metrics", make)


@twentieth("data", only=(*REPORTED, r"\bstep\b"))
def rollouts_are_recorded_under_the_next_step(patch: Patch) -> None:
    """Steps of the rollouts' records are counted from 1, those of all others from 0."""

    def make(original: Any) -> Any:
        return lambda recorder, step, *args: original(recorder, step + 1, *args)

    patch.wrap(f"{RECORDER}.rollout", make)


@twentieth("sync", *REPORTED, "version", shape="kept in flight")
def versions_of_tokens_begin_one_token_late(patch: Patch) -> None:
    """The first token under renewed weights is recorded under the version before."""

    def make(original: Any) -> Any:
        def versions(length: int, begun: int, changes: Any) -> Any:
            return original(length, begun, [(place + 1, version) for place, version in changes])

        return versions

    patch.wrap("rlvr_core.engines.transformers:_token_versions", make)
