"""The teacher of a distillation: checked before the run, loaded with its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from rlvr_algos.distillation.gather_logits import gather_logits, top_logprobs
from rlvr_core.api import ConfigError, Loss, Message, MicroBatch, Problem
from rlvr_core.data.rows import fill
from rlvr_core.data.uri import check_model_path, is_uri, local_path
from rlvr_core.step.forward import Predicted, predict
from rlvr_core.step.model import load_reference, load_tokenizer

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rlvr_core.api import TeacherTraits
    from rlvr_core.config.model import ModelSection
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.config.tree import Loc
    from rlvr_core.data.prompts import Renderer
    from rlvr_core.step.objective import MakeTeacher


@dataclass(frozen=True, slots=True)
class Teacher:
    """A teacher.

    Attributes:
        top_k: Its most likely tokens that are taken at each position.
        model: A frozen model; None for the policy itself.
        prompt: Its own prompt for a problem; None where it gets the policy's.
    """

    top_k: int
    model: PreTrainedModel | None = None
    prompt: Callable[[Problem], tuple[int, ...]] | None = None

    def view(self, batch: MicroBatch) -> MicroBatch:
        """The micro-batch as the teacher sees it: the same completions, maybe other prompts."""
        if self.prompt is None:
            return batch
        assert batch.teacher_batch is not None, "rows were made without the teacher's prompts"
        return batch.teacher_batch

    @staticmethod
    def top_tokens(
        model: PreTrainedModel,
        batch: MicroBatch,
        *,
        k: int,
        vocabulary: int,
        temperature: float,
        autocast_dtype: torch.dtype | None = None,
        compiled: Any = None,
    ) -> tuple[Tensor, Tensor]:
        """The ``k`` most likely tokens below ``vocabulary`` at each loss token; no gradient.

        Returns:
            (N, k) ids, and their (B, T, k) log-probs in the whole distribution.
        """
        with torch.no_grad():
            predicted = predict(model, batch, temperature, autocast_dtype, compiled)
            head = predicted.head
            if head is None:
                logp_Nk, ids_Nk = predicted.whole()[:, :vocabulary].topk(k)
            else:
                with predicted.autocast:
                    ids_Nk, logp_Nk = top_logprobs(
                        predicted.states, head.weight, k, vocabulary, temperature, head.bias
                    )
            return ids_Nk, predicted.unpack(logp_Nk)

    @staticmethod
    def logprobs_of(predicted: Predicted, logp_N: Tensor, ids_NK: Tensor) -> Tensor:
        """(N, K) log-probs of the teacher's tokens under the policy; differentiable.

        Args:
            predicted: The policy's distributions.
            logp_N: The log-probs of the sampled tokens.
            ids_NK: The teacher's tokens.
        """
        head = predicted.head
        if head is None:
            return predicted.whole().gather(-1, ids_NK)
        every_NK = torch.cat([predicted.targets[:, None], ids_NK], dim=1)
        with predicted.autocast:
            logits_NK = gather_logits(predicted.states, head.weight, every_NK, head.bias)
        return logp_N[:, None] + (logits_NK[:, 1:] - logits_NK[:, :1]) / predicted.temperature


def prompt_of(template: str, renderer: Renderer) -> Callable[[Problem], tuple[int, ...]]:
    """Renders a problem with its last user turn put into a template, with fields of its spec.

    What it gives raises ``DataError`` for a problem that lacks a field.
    """

    def prompt(problem: Problem) -> tuple[int, ...]:
        turns = problem.prompt
        if isinstance(turns, str):
            text = fill(template, {**problem.spec, "prompt": turns}, problem.id)
            return renderer.render(replace(problem, prompt=text))
        last = max((i for i, turn in enumerate(turns) if turn.role == "user"), default=0)
        text = fill(template, {**problem.spec, "prompt": turns[last].content}, problem.id)
        chat = (*turns[:last], Message("user", text), *turns[last + 1 :])
        return renderer.render(replace(problem, prompt=chat))

    return prompt


def path_of(teacher: str) -> str:
    """Local folder or hub id of what is named as a teacher."""
    return str(local_path(teacher)) if is_uri(teacher) else teacher


def check_vocabulary(
    teacher: PreTrainedTokenizerBase, policy: PreTrainedTokenizerBase, where: str
) -> None:
    """Refuse a teacher whose token ids mean something else.

    Raises:
        ConfigError: If the vocabularies differ.
    """
    theirs, ours = teacher.get_vocab(), policy.get_vocab()
    if theirs != ours:
        odd = sorted(set(theirs.items()) ^ set(ours.items()))[:3]
        raise ConfigError(
            f"the teacher's vocabulary is not the policy's: they differ in {len(odd)} or more "
            f"tokens, such as {odd[0][0]!r}",
            where=where,
            remedy="take a teacher of the same family",
        )


def teachers_of(
    resolved: Resolved,
    losses: Mapping[Loc, Loss],
    tokenizer: PreTrainedTokenizerBase,
    renderer: Renderer,
    problems: Sequence[Problem],
) -> dict[Loc, MakeTeacher]:
    """Check the teacher of each loss that has one.

    Raises:
        ConfigError: If a vocabulary differs, or two teachers have a prompt of their own.
        DataError: If a problem lacks a field of the teacher's prompt.
        MachineError: If a teacher's folder or its tokenizer is missing.
    """
    section = resolved.config.model.model_copy(update={"revision": None})
    made: dict[Loc, MakeTeacher] = {}
    prompted = []
    for loc, loss in losses.items():
        traits = loss.traits.teacher
        if traits is None:
            continue
        if traits.model is not None:
            where = resolved.where((*loc, "with", "teacher"))
            path = path_of(traits.model)
            check_model_path(path, where)
            check_vocabulary(load_tokenizer(path, section, where), tokenizer, where)
        else:
            assert traits.prompt is not None, "a teacher is a model or has a prompt"
            prompted.append(f"{resolved.config.losses[loc].use} ({resolved.where(loc)})")
            prompt = prompt_of(traits.prompt, renderer)
            for problem in problems:
                prompt(problem)
        made[loc] = _maker(traits, section, renderer)
    if len(prompted) > 1:
        raise ConfigError(
            f"{' and '.join(prompted)} both give their teacher a prompt of its own",
            where="loss",
            remedy="keep one of them",
        )
    return made


def _maker(traits: TeacherTraits, section: ModelSection, renderer: Renderer) -> MakeTeacher:
    def make(device: torch.device, dtype: torch.dtype) -> Teacher:
        """A frozen model, or the policy with another prompt."""
        if traits.model is None:
            assert traits.prompt is not None
            return Teacher(traits.top_k, prompt=prompt_of(traits.prompt, renderer))
        model = load_reference(path_of(traits.model), section, device, dtype)
        return Teacher(traits.top_k, model)

    return make
