"""The terms of a run's loss, and the rows each is taken over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from rlvr_core.api import LossOutput, MicroBatch
from rlvr_core.record.metrics import misuse
from rlvr_core.step.batch import Row

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rlvr_core.algorithm.entropy import EntropyController
    from rlvr_core.algorithm.estimate import Estimator
    from rlvr_core.api import Loss, LossBatch, LossTraits, Normalizer, Problem
    from rlvr_core.step.forward import Predicted


class AnswerRows(Protocol):
    """Given answers to imitate, as rows to train on."""

    def rows(self, step: int) -> list[Row]:
        """The rows of a step, over all processes: a pure function of the step."""

    @property
    def fingerprint(self) -> object:
        """Number of answers, and a hash of them."""


class Teacher(Protocol):
    """A model whose distribution a loss distils."""

    @property
    def top_k(self) -> int:
        """Number of most likely tokens that are used at each position."""

    @property
    def model(self) -> PreTrainedModel | None:
        """A frozen model; None for the policy itself."""

    @property
    def prompt(self) -> Callable[[Problem], tuple[int, ...]] | None:
        """Function from a problem to the teacher's prompt; None where it gets the policy's."""

    @property
    def top_tokens(self) -> Callable[..., tuple[Tensor, Tensor]]:
        """Return the K most likely tokens (N, K) at each loss token, and log-probs (B, T, K)."""

    def view(self, batch: MicroBatch) -> MicroBatch:
        """Return the teacher's micro-batch: the same completions behind its own prompts."""

    def logprobs_of(self, predicted: Predicted, logp_N: Tensor, ids_NK: Tensor) -> Tensor:
        """Return log-probs (N, K) of the given tokens under the policy; differentiable."""


class MakeTeacher(Protocol):
    """Loads a teacher."""

    def __call__(self, device: torch.device, dtype: torch.dtype) -> Teacher:
        """Load it onto a device, to compute in a dtype."""


@dataclass(frozen=True, slots=True)
class LossTerm:
    """One loss of the weighted sum.

    Attributes:
        name: Its short name, ``#2`` and so on added where it is used again.
        loss: The loss.
        weight: Its factor.
        demonstrations: Its own rows; None for a loss on completions.
        teacher: Whose distribution it distils, if it does.
    """

    name: str
    loss: Loss
    weight: float = 1.0
    demonstrations: AnswerRows | None = None
    teacher: Teacher | None = None

    @property
    def traits(self) -> LossTraits:
        """The needs of the loss in its batch."""
        return self.loss.traits

    def of(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Compute the loss of a micro-batch.

        Raises:
            PluginError: The loss gives something that cannot be trained on or summed.
        """
        output = self.loss(batch, normalizer)
        if fault := _fault(output):
            raise misuse(self.loss, fault, "give what rlvr docs losses says of LossOutput")
        if torch.is_grad_enabled() and not output.loss.requires_grad:
            # a constant 0; attached to the graph because backward() is called in any case (for DDP)
            nothing = 0.0 * torch.where(batch.mask_BT, batch.logp_BT, 0.0).sum()
            output = replace(output, loss=output.loss + nothing)
        return output

    def entropy_controller(self) -> EntropyController | None:
        """Return a new controller of the loss's entropy bonus; None where it is constant."""
        steered = self.traits.entropy
        if steered is None:
            return None
        from rlvr_core.algorithm.entropy import EntropyController

        return EntropyController(steered, steered.initial)


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """Rows of one step, or of one of its mini-batches, and the losses taken over all of them.

    Attributes:
        terms: The losses.
        groups: The rows, those that must stay together in one list.
        temperature: Of the log-probs.
    """

    terms: tuple[LossTerm, ...]
    groups: Sequence[Sequence[Row]]
    temperature: float

    @property
    def rows(self) -> list[Row]:
        """The rows of all groups, in order."""
        return [row for group in self.groups for row in group]

    @property
    def needs_old(self) -> bool:
        """Whether a loss compares with the trainer's log-probs at the start of the step."""
        sampled = [term for term in self.terms if term.demonstrations is None]
        return any(term.traits.needs_old for term in sampled)

    @property
    def trained(self) -> list[int]:
        """Indices of the groups that have a loss token."""
        return [i for i, g in enumerate(self.groups) if any(any(row.loss_mask) for row in g)]

    def only(self, places: Sequence[int]) -> TrainingRows:
        """Return the same losses over the groups at these indices."""
        return replace(self, groups=[self.groups[place] for place in places])

    @property
    def given(self) -> bool:
        """Whether its rows are given answers, not completions."""
        return self.terms[0].demonstrations is not None

    @property
    def prefix(self) -> str:
        """Prefix of its metrics: empty for completions, else the loss's name."""
        return f"{self.terms[0].name}/" if self.given else ""


@dataclass(frozen=True, slots=True)
class Objective:
    """The weighted sum of losses.

    Attributes:
        terms: At least one.
        estimator: Makes advantages of rewards; None if no loss uses them. ``config.rules`` has
            checked that it and the losses go together.
    """

    terms: tuple[LossTerm, ...]
    estimator: Estimator | None = None

    @property
    def on_completions(self) -> tuple[LossTerm, ...]:
        """The losses that need rollouts."""
        return tuple(term for term in self.terms if term.demonstrations is None)

    @property
    def needs_reference(self) -> bool:
        """Whether a loss or the advantage estimator compares with the reference."""
        estimator = self.estimator
        return any(term.traits.needs_reference for term in self.terms) or (
            estimator is not None and estimator.component.traits.needs_reference_kl
        )

    @property
    def teachers(self) -> list[PreTrainedModel]:
        """Teachers with a frozen model of their own."""
        return [t.teacher.model for t in self.terms if t.teacher and t.teacher.model is not None]

    def teacher_prompt(self, problem: Problem) -> tuple[int, ...] | None:
        """Prompt function of the teacher that has one; else None."""
        prompts = [t.teacher.prompt for t in self.terms if t.teacher and t.teacher.prompt]
        return prompts[0](problem) if prompts else None

    def parts(
        self, groups: Sequence[Sequence[Row]], step: int, temperature: float
    ) -> list[TrainingRows]:
        """Return the step's rows: of the completions, then of each loss on given answers."""
        parts = [TrainingRows(self.on_completions, groups, temperature)]
        for term in self.terms:
            if term.demonstrations is not None:
                given = term.demonstrations.rows(step)
                answers = [[replace(row, group=place)] for place, row in enumerate(given)]
                parts.append(TrainingRows((term,), answers, 1.0))
        return [part for part in parts if part.terms]


def _fault(output: object) -> str:
    """Return what is wrong with a loss's output; a vector, say, would be summed silently."""
    if not isinstance(output, LossOutput):
        return f"gave {type(output).__name__}, not a LossOutput"
    numbers: dict[str, object] = {"loss": output.loss}
    sums: Any = output.sums  # a plugin is held to no types
    maxima: Any = output.maxima
    for what, given in (("sums", sums), ("maxima", maxima)):
        if not isinstance(given, Mapping):
            return f"must give {what} as a mapping by metric, not {type(given).__name__}"
    for name, pair in sums.items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            return f"must give sums[{name!r}] as a pair of tensors, sum and count"
        numbers |= {f"sums[{name!r}][{place}]": value for place, value in enumerate(pair)}
    numbers |= {f"maxima[{name!r}]": value for name, value in maxima.items()}
    for what, value in numbers.items():
        if not isinstance(value, torch.Tensor):
            return f"must give {what} as a tensor, not {type(value).__name__}"
        if value.dim():
            return f"must give {what} as a scalar, not of shape {tuple(value.shape)}"
    if torch.is_grad_enabled() and not output.loss.requires_grad and output.loss != 0:
        return "gave a loss without a gradient: nothing in it comes from logp_BT"
    return ""
