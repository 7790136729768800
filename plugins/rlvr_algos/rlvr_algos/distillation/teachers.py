"""The teachers of a run's losses: checked before it starts, and loaded with its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rlvr_algos.distillation.teacher import Teacher, check_vocabulary, path_of, prompt_of
from rlvr_core.api import ConfigError, Loss, Problem
from rlvr_core.data.uri import check_model_path
from rlvr_core.step.model import load_reference, load_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from rlvr_core.api import TeacherTraits
    from rlvr_core.config.model import ModelSection
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.config.tree import Loc
    from rlvr_core.data.prompts import Renderer
    from rlvr_core.step.objective import MakeTeacher


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
    found: dict[Loc, MakeTeacher] = {}
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
        found[loc] = _maker(traits, section, renderer)
    if len(prompted) > 1:
        raise ConfigError(
            f"{' and '.join(prompted)} both give their teacher a prompt of its own",
            where="loss",
            remedy="keep one of them",
        )
    return found


def _maker(traits: TeacherTraits, section: ModelSection, renderer: Renderer) -> MakeTeacher:
    def make(device: torch.device, dtype: torch.dtype) -> Teacher:
        """A frozen model, or the policy with another prompt."""
        if traits.model is None:
            assert traits.prompt is not None
            return Teacher(traits.top_k, prompt=prompt_of(traits.prompt, renderer))
        model = load_reference(path_of(traits.model), section, device, dtype)
        return Teacher(traits.top_k, model)

    return make
