"""The step, top to bottom: groups -> advantages -> mini-batches -> losses -> updates.

groups        judged completions, each group sampled under one policy version
rows          one per completion that has a reward, with its advantage or those of its tokens;
              of a conversation with branches one per branch
parts         those rows and the losses taken over them; given answers are a part of their own
mini-batches  a share of the groups each; every one makes an update, in every iteration
              (given answers are split in the same way, even if groups are fewer)
micro-batches rows packed under the token budget, each prompt once
loss          summed over losses and micro-batches; denominators were counted before the first
update        clipped, applied at the step's learning rate, or skipped if not finite
entropy       of an update that was applied; it steers the next one's bonus where a loss asks for it

One mini-batch and one iteration, the default, are one update a step. With more, the trainer's
log-probs are computed before the first update. Every ratio starts from the policy at the start of
the step, whatever version sampled a row (decoupled PPO); what lies between the sampling policy and
that one is the importance correction's (``rlvr_core.algorithm.ratio``).

With several processes, all of them have all groups and so all rows; each packs its part of the rows
(``shard_rows``), ``ParallelModel`` sums the gradient, and everything else is the same in each.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlvr_core.api import (
    LossBatch,
    LossOutput,
    MicroBatch,
    Normalizer,
    StepObserver,
)
from rlvr_core.api.learning import LossComputed
from rlvr_core.parallel.model_adapter import adapter_of
from rlvr_core.parallel.ranks import Ranks
from rlvr_core.step.batch import LocalMicroBatch, Row, idle_micro_batches, micro_batches, shard_rows
from rlvr_core.step.forward import completion_logprobs, completion_scores
from rlvr_core.step.mini_batches import (
    AuxLogprobs,
    MiniBatch,
    MiniBatchPart,
    Totals,
    count_rows,
    count_updates,
    split_into_mini_batches,
    summarize_updates,
)
from rlvr_core.step.model import Precision
from rlvr_core.step.objective import LossTerm, Objective, TrainingRows
from rlvr_core.step.optim import Optimizer, Update
from rlvr_core.step.rows import rows_of
from rlvr_core.step.timing import PhaseTimer

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedModel

    from rlvr_core.algorithm.entropy import EntropyController
    from rlvr_core.api import Completion, Group
    from rlvr_core.config.model import TrainSection
    from rlvr_core.parallel.model import ParallelModel
    from rlvr_core.step.reference import Reference

T = TypeVar("T")


@dataclass(slots=True)
class StepReport:
    """The result of one step.

    Attributes:
        updates: The optimizer's word on each, in order; none when there was no row to train on.
        metrics: Numbers for the step's line.
        advantages: Per group, in the order given, one per member; None where it was left out.
        thrown_away: Per group, whether every update that was made of it was skipped.
        seconds: Seconds by phase; of a GPU, those that it took.
    """

    updates: list[Update]
    metrics: dict[str, float]
    advantages: list[list[float | None]]
    thrown_away: list[bool]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def applied(self) -> int:
        """Number of updates that changed the weights, each of which makes a policy version."""
        return sum(update.applied for update in self.updates)


@dataclass(slots=True)
class PolicyTrainer:
    """Trains the policy on groups.

    Attributes:
        model: The policy; float32 master weights.
        reference: What a loss holds the policy to, when one asks for it.
        objective: The losses.
        optimizer: The guarded update.
        precision: Compute dtype.
        train: The config's train section.
        temperature: Of sampling, applied to every log-prob.
        max_completion_tokens: The run's cap.
        reward_weights: The weight of each reward at a step.
        advantage_scale: Factor on advantages by problem id; 1 where there is none.
        compiled: The policy's compiled body, when it is to be used.
        seed: Of the run.
        ranks: The processes that train together.
        parallel: The models as they compute them; None in a process that is alone.
        observer: Sees what a step computes.
        entropy: What steers the entropy bonus of each loss that has it steered, by term.
    """

    model: PreTrainedModel
    reference: Reference | None
    objective: Objective
    optimizer: Optimizer
    precision: Precision
    train: TrainSection
    temperature: float
    max_completion_tokens: int
    reward_weights: Callable[[int], Sequence[float]]
    advantage_scale: Mapping[str, float] = field(default_factory=dict)
    compiled: Any = None
    seed: int = 0
    ranks: Ranks = field(default_factory=Ranks)
    parallel: ParallelModel | None = None
    observer: StepObserver = field(default_factory=StepObserver)
    entropy: dict[str, EntropyController] = field(init=False)

    def __post_init__(self) -> None:
        made = {term.name: term.entropy_controller() for term in self.objective.terms}
        self.entropy = {name: bonus for name, bonus in made.items() if bonus is not None}

    def update(self, groups: Sequence[Group], step: int, version: int) -> StepReport:
        """Do the updates of one step; the reference follows each.

        Args:
            groups: What to train on.
            step: The step, for the learning rate.
            version: The policy's.
        """
        timed = PhaseTimer(self.model.device)
        self.observer.step_begins(groups, step, version)
        with timed("forward"):
            kl_N = self._reference_kl(groups)
        with timed("pack"):
            made = rows_of(
                groups,
                self.objective,
                weights=self.reward_weights(step),
                scale=self.advantage_scale,
                mask_truncated=self.train.mask_truncated,
                kl_N=kl_N,
            )
            parts = self.objective.parts(made.by_group, step, self.temperature)
            metrics = count_rows(parts, self._normalizer)
            if self.objective.on_completions:
                metrics |= made.metrics
            batches = split_into_mini_batches(
                parts, self.train.mini_batches, self._normalizer, self._pack
            )
        with timed("forward"):
            self._compute_old_logprobs(batches)
        updates: list[Update] = []
        totals: list[Totals] = []
        lost = {place for batch in batches for place in batch.groups}
        for _ in range(self.train.num_iterations):
            for batch in batches:
                totals.append(Totals(self.objective.terms))
                self._accumulate(batch, step, len(updates), totals[-1], timed)
                self.observer.update_begins()
                with timed("optimizer"):
                    updates.append(self.optimizer.step(step))
                self.observer.update_ended(updates[-1].grad_norm, applied=updates[-1].applied)
                totals[-1].gather(self.ranks)
                if updates[-1].applied:
                    lost.difference_update(batch.groups)
                    self._update_entropy_coefficients(totals[-1])
                    version += 1
                    if self.reference is not None:
                        self.reference.follow(version)
        if updates:
            metrics |= summarize_updates(totals, updates, self.train.num_iterations)
        for place, (name, controller) in enumerate(self.entropy.items()):
            prefix = f"loss/{name}/" if place else ""
            metrics[f"{prefix}entropy/coefficient"] = controller.coefficient
        if self.train.updates_per_step > 1:
            metrics |= count_updates(batches, updates, self.train)
        metrics |= self.observer.step_ends()
        thrown_away = [place in lost for place in range(len(groups))]
        return StepReport(updates, metrics, made.advantages, thrown_away, timed.seconds())

    def logprobs(self, groups: Sequence[Group]) -> tuple[Tensor, Tensor]:
        """Return the trainer's and the engine's log-probs of every sampled token, both (N,)."""
        scores_NK = self.token_scores(groups, completion_scores)
        return scores_NK[:, 0], scores_NK[:, -1]

    @torch.no_grad()
    def token_scores(
        self, groups: Sequence[Group], compute: Callable[..., tuple[Tensor, ...]]
    ) -> Tensor:
        """Return what ``compute`` gives of every sampled token of these groups.

        Args:
            groups: All completions of them, scored or not, without further branches; tokens of an
                environment are nobody's sample.
            compute: A function like those of ``rlvr_core.step.forward``, of K (B, T) tensors.

        Returns:
            Float32 of shape (N, K + 1); the last column holds the engine's log-probs.
        """
        parts: list[Tensor] = []
        for micro in self._pack(_bare_rows(_completions(groups))):
            scores = self._compute(compute, self.model, micro.batch, temperature=self.temperature)
            if micro.counts:
                columns = (*scores, micro.batch.behaviour_logp_BT)
                parts.append(
                    torch.stack([c[micro.batch.mask_BT].float() for c in columns], 1).cpu()
                )
        parts = [part for gathered in self.ranks.gather(parts) for part in gathered]
        return torch.cat(parts) if parts else torch.zeros(0, 1)

    @torch.no_grad()
    def _reference_kl(self, groups: Sequence[Group]) -> list[NDArray[np.float64]] | None:
        """The policy's log-probs minus the reference's, if the advantage estimator needs them.

        Returns:
            Per completion, in the order of the groups, one number a token, those of its branches
            behind its own; 0 outside the loss mask.
        """
        estimator = self.objective.estimator
        if estimator is None or not estimator.component.traits.needs_reference_kl:
            return None
        assert self.reference is not None, "the objective asked for a reference"
        rows = _bare_rows(completion for whole in _completions(groups) for completion in whole.rows)
        # ``_bare_rows`` numbers rows by ``group``, which survives the packing
        places: list[int] = []
        kl_parts: list[Tensor] = []
        for micro in self._pack(rows):
            batch = micro.batch
            logp_BT = self._logprobs(self.model, batch)
            with self.reference.active() as reference:
                ref_BT = self._logprobs(reference, batch)
            if micro.counts:
                places += batch.host.group_B.tolist()
                kl_parts.extend(torch.where(batch.mask_BT, (logp_BT - ref_BT).double(), 0.0))
        # one transfer: each by itself would wait for the device
        whole = pad_sequence(kl_parts, batch_first=True).tolist() if kl_parts else []
        kl = dict(chain(*self.ranks.gather([*zip(places, whole, strict=True)])))
        lengths = [len(row.token_ids) for row in rows]
        # a row without a loss token is not packed
        kl_rows = (np.array(kl[n][:m] if n in kl else [0.0] * m) for n, m in enumerate(lengths))
        return [
            np.concatenate([next(kl_rows) for _ in completion.rows])
            for completion in _completions(groups)
        ]

    def _normalizer(self, part: TrainingRows) -> Normalizer:
        rows = part.rows
        return Normalizer(
            rows=round(sum(row.share for row in rows if any(row.loss_mask))),
            tokens=sum(sum(row.loss_mask) for row in rows),
            max_completion_tokens=self.max_completion_tokens,
            world_size=self.ranks.world,
        )

    @torch.no_grad()
    def _compute_old_logprobs(self, batches: Sequence[MiniBatch]) -> None:
        """Compute the log-probs at the start of the step for every update but the first.

        The first update needs none: the policy has not changed, so its log-probs are the old ones.
        """
        later = batches[1:] if self.train.num_iterations == 1 else batches
        for part in (part for batch in later for part in batch.parts if part.training.needs_old):
            part.old_logprobs = [self._logprobs(self.model, m.batch) for m in part.micro_batches]

    def _accumulate(
        self, batch: MiniBatch, step: int, update: int, total: Totals, timed: PhaseTimer
    ) -> None:
        """Accumulate the gradient of one update."""
        adapter = adapter_of(self.model)
        for number, part in enumerate(batch.parts):
            training = part.training
            with timed("forward"):
                least, entropy_masks = self._entropy_masks(training, part.micro_batches)
            total.thresholds += least.values()
            for place, (micro, masks) in enumerate(
                zip(part.micro_batches, entropy_masks, strict=True)
            ):
                with timed("forward"):
                    # before the policy's pass: under LoRA the reference is the same model
                    aux = part.aux.get(place) or self._aux_logprobs(training, micro.batch)
                if self._others_stay:
                    part.aux[place] = aux
                draw = update * len(self.objective.terms) + number
                key = (self.seed, step, self.ranks.index, draw, place)
                old_BT = part.old_logprobs[place] if part.old_logprobs and update > 0 else None
                last = micro is batch.parts[-1].micro_batches[-1]
                with adapter.dropout(self.model, *key), self._accumulating(last=last):
                    with timed("forward"):
                        outputs = self._losses(part, micro, masks, aux, old_BT)
                        loss = torch.stack([t.weight * output.loss for t, output in outputs]).sum()
                    with timed("backward"):
                        self.optimizer.backward(loss if micro.counts else 0.0 * loss)
                if micro.counts:
                    total.add(outputs)

    def _update_entropy_coefficients(self, total: Totals) -> None:
        """Adjust each entropy bonus to the mean entropy of the update, over all processes."""
        for name, controller in self.entropy.items():
            entropy = total.mean(name, "entropy/mean")
            if entropy is not None:
                controller.observe(entropy)

    @property
    def _others_stay(self) -> bool:
        """Whether log-probs of other models can be reused in later iterations of the step."""
        teachers = [term.teacher for term in self.objective.terms if term.teacher is not None]
        return (
            self.train.num_iterations > 1
            and (self.reference is None or not self.reference.named())
            and all(teacher.model is not None for teacher in teachers)
        )

    def _pack(self, rows: Sequence[Row]) -> list[LocalMicroBatch]:
        """Pack this process's part of the rows into micro-batches."""
        size, budget = self.train.context_parallel, self.train.tokens_per_micro_batch
        mine = shard_rows(rows, self.ranks.world // size)[self.ranks.index // size]
        counts = self.ranks.index % size == 0  # of processes that share a micro-batch, in the first
        batches = micro_batches(mine, tokens_per_micro_batch=budget)
        work = [LocalMicroBatch(batch, counts) for batch in batches]
        if self.parallel is not None:
            idle = self.parallel.idle(len(work))
            work += idle_micro_batches(rows, idle) if idle else []
        vocabulary = self.model.config.get_text_config().vocab_size
        for batch in (micro.batch for micro in work):
            most = max(int(batch.prompt_ids_SP.max()), int(batch.completion_ids_BT.max()))
            if most >= vocabulary:  # on a GPU: an assert without a message
                raise ValueError(f"token {most} is not in the model's vocabulary of {vocabulary}")
        return [LocalMicroBatch(micro.batch.to(self.model.device), micro.counts) for micro in work]

    def _accumulating(self, *, last: bool) -> contextlib.AbstractContextManager[None]:
        if self.parallel is None:
            return contextlib.nullcontext()
        return self.parallel.accumulating(self.model, last=last)

    @torch.no_grad()
    def _entropy_masks(
        self, part: TrainingRows, work: Sequence[LocalMicroBatch]
    ) -> tuple[dict[float, float], list[dict[float, Tensor]]]:
        """The tokens of highest entropy, for each share of tokens that a loss wants chosen.

        It takes a forward pass of its own, as the threshold is one of the whole update: the choice
        must not depend on micro-batches or processes, nor on the rounding of a second pass.

        Returns:
            Least entropy of a chosen token, by share, and the chosen tokens of each micro-batch.
        """
        shares = {t.traits.top_entropy for t in part.terms if t.traits.top_entropy < 1}
        if not shares:
            return {}, [{} for _ in work]
        from rlvr_core.algorithm.entropy import TIE, entropy_threshold

        entropies = [
            self._scores(micro.batch, temperature=part.temperature)[1].double() for micro in work
        ]
        known = [torch.zeros(0, dtype=torch.float64)]
        known += [
            e[w.batch.mask_BT].cpu() for e, w in zip(entropies, work, strict=True) if w.counts
        ]
        known_N = torch.cat(self.ranks.gather(torch.cat(known)))
        least = {share: entropy_threshold(known_N, share) for share in shares}
        return least, [
            {share: micro.batch.mask_BT & (entropy_BT >= least[share] - TIE) for share in shares}
            for micro, entropy_BT in zip(work, entropies, strict=True)
        ]

    def _losses(
        self,
        part: MiniBatchPart,
        micro: LocalMicroBatch,
        entropy_masks: Mapping[float, Tensor],
        aux: AuxLogprobs,
        old_BT: Tensor | None,
    ) -> list[tuple[LossTerm, LossOutput]]:
        """Compute every loss of a part with one forward pass of the policy.

        ``old_BT`` is None where the policy still is that of the start of the step.
        """
        training, batch = part.training, micro.batch
        ids_NK = [ids for ids, _ in aux.teacher_logprobs.values()]
        teacher = next((term.teacher for term in training.terms if term.teacher is not None), None)
        extra = teacher and partial(teacher.logprobs_of, ids_NK=torch.cat(ids_NK, dim=1))
        logp_BT, entropy_BT, *other = self._scores(
            batch, temperature=training.temperature, extra=extra
        )
        sizes = [ids.shape[1] for ids in ids_NK]
        student = iter(torch.split(other[0], sizes, dim=2) if other else ())
        seen = LossBatch(
            logp_BT=logp_BT,
            old_logp_BT=logp_BT.detach() if old_BT is None else old_BT.to(logp_BT.dtype),
            behaviour_logp_BT=batch.behaviour_logp_BT,
            ref_logp_BT=aux.ref_logp_BT,
            mask_BT=batch.mask_BT,
            advantage_B=batch.advantage_B,
            entropy_BT=entropy_BT,
            advantage_BT=batch.advantage_BT,
            group_B=batch.group_B,
        )
        outputs, shown_to = [], []
        normalizer = replace(part.normalizer, share_B=batch.share_B)
        for term in training.terms:
            shown = seen
            if term.traits.top_entropy < 1:
                shown = replace(shown, entropy_mask_BT=entropy_masks[term.traits.top_entropy])
            if term.name in self.entropy:
                shown = replace(shown, entropy_bonus=self.entropy[term.name].bonus)
            if term.name in aux.teacher_logprobs:
                shown = replace(
                    shown,
                    teacher_logp_BTK=aux.teacher_logprobs[term.name][1],
                    student_logp_BTK=next(student),
                )
            outputs.append((term, term.of(shown, normalizer)))
            shown_to.append((term.loss, shown, outputs[-1][1]))
        if micro.counts:
            seen_by = LossComputed(batch, normalizer, shown_to, training.given)
            self.observer.loss_computed(seen_by)
        return outputs

    @torch.no_grad()
    def _aux_logprobs(self, part: TrainingRows, batch: MicroBatch) -> AuxLogprobs:
        vocabulary: int = self.model.config.get_text_config().vocab_size
        teacher_logprobs = {
            term.name: self._compute(
                term.teacher.top_tokens,
                term.teacher.model or self.model,
                term.teacher.view(batch),
                temperature=part.temperature,
                k=min(term.teacher.top_k, vocabulary),
                vocabulary=vocabulary,
            )
            for term in part.terms
            if term.teacher is not None
        }
        ref_logp_BT = None
        if self.reference is not None and any(term.traits.needs_reference for term in part.terms):
            with self.reference.active() as reference:
                ref_logp_BT = self._logprobs(reference, batch)
        return AuxLogprobs(teacher_logprobs, ref_logp_BT)

    def _logprobs(self, model: PreTrainedModel, batch: MicroBatch) -> Tensor:
        return self._compute(completion_logprobs, model, batch, temperature=self.temperature)

    def _scores(self, batch: MicroBatch, **more: Any) -> tuple[Tensor, ...]:
        return self._compute(completion_scores, self.model, batch, **more)

    def _compute(
        self, compute: Callable[..., T], model: PreTrainedModel, batch: MicroBatch, **more: Any
    ) -> T:
        """One of the functions of ``rlvr_core.step.forward``, on several processes or on one."""
        if self.parallel is not None:
            return self.parallel.compute(compute, model, batch, **more)
        return compute(
            model,
            batch,
            autocast_dtype=self.precision.autocast,
            compiled=self.compiled if model is self.model else None,
            **more,
        )


def _completions(groups: Sequence[Group]) -> Iterator[Completion]:
    return (member.completion for group in groups for member in group.members)


def _bare_rows(sequences: Iterable[Completion]) -> list[Row]:
    """Rows without advantages; ``group`` is the place of each sequence."""
    return [
        Row(
            completion.prompt_ids,
            completion.token_ids,
            completion.loss_mask,
            completion.logprobs,
            0.0,
            group=place,
        )
        for place, completion in enumerate(sequences)
    ]
