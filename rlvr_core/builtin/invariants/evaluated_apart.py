"""What ``rlvr eval`` and ``rlvr passk`` sampled, checked by the model's files before it counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api.services import (
    DTYPES,
    ParitySection,
    Row,
    completion_seed,
    evaluating,
    micro_batches,
)
from rlvr_core.builtin.invariants.evaluated import Evaluated, moments_at
from rlvr_core.builtin.invariants.model_files import ModelFiles
from rlvr_core.builtin.invariants.rounding import ON_GPU, on_gpu
from rlvr_core.builtin.invariants.texts import Texts, others_than_asked

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import EngineTraits, Group, Guard, SamplingParams
    from rlvr_core.api.services import Conversations, ModelSection

TOKENS = 8192
"""Positions of a forward pass."""

Wrong = tuple[str, str]
"""What is wrong, and what to do."""


class EvaluatedApart:
    """The service ``core/evaluated``: checks completions by the model that they are said to be of.

    Args:
        path: Folder or hub id of the model.
        section: The config's ``model``.
        conversations: Present problems.
        seed: The evaluation's seed.
        traits: The engine's.
        repeats: Makes what compares how often completions repeat with their log-probs.
        turn_cap: The most tokens of one turn of a conversation.
    """

    def __init__(
        self,
        path: str,
        section: ModelSection,
        conversations: Conversations,
        seed: int,
        traits: EngineTraits,
        repeats: Callable[[], Guard],
        turn_cap: int | None,
    ) -> None:
        self._files, self._dtype = ModelFiles(path, section), DTYPES[section.dtype]
        self._conversations, self._seed, self._turn_cap = conversations, seed, turn_cap
        self._repeats = None if traits.inverts_stream else repeats

    def wrong_model(self, model: Any) -> Wrong | None:
        """Return how a loaded model is not that of its files, with a remedy; None if it is."""
        wrong = self._files.other_weights(model)
        if not wrong:
            return None
        return (
            f"the model that was evaluated is not that of its files: {len(wrong)} tensors are "
            f"others, such as {wrong[0]} (band: none)",
            "something changed the weights when they were loaded, or they are of another "
            "checkpoint: look at what finds, casts or patches them",
        )

    def wrong_texts(
        self, groups: Sequence[Group], params: SamplingParams, n: int, room: int
    ) -> Wrong | None:
        """Return how completions contradict their own tokens, with a remedy.

        Args:
            groups: What was sampled.
            params: How it was to be.
            n: Completions of a problem.
            room: Tokens of prompt and completion that the engine was told to make room for.
        """
        texts = Texts(
            self._files,
            self._conversations,
            stop=params.stop,
            max_tokens=params.max_tokens,
            room=room,
            turn_cap=self._turn_cap,
        )
        places = [(group, number) for group in groups for number in range(len(group.members))]
        asked = [group.problem for group in groups]
        return others_than_asked(groups, asked, n) or texts.wrong(groups, places)

    def wrong_tokens(
        self,
        model: Any,
        groups: Sequence[Group],
        params: SamplingParams,
        draws: Mapping[str, int],
    ) -> Wrong | None:
        """Return how tokens are not those that the model and the seeds draw, with a remedy.

        Args:
            model: The model.
            groups: What was sampled.
            params: How it was to be.
            draws: Place of each problem in its task, by id.
        """
        evaluated = Evaluated(
            self._dtype,
            # any model, whatever the scale of its logits, and an engine with kernels of its own
            ON_GPU[self._dtype],
            ParitySection(),
            None if self._repeats is None else self._repeats(),
            on_gpu=on_gpu(model),
        )

        def seed(group: Group, sample: int) -> int:
            draw = draws[group.problem.id]
            return completion_seed(self._seed, group.problem.id, 0, draw, sample)

        return evaluated.wrong(groups, params, self._scores(model, groups, params), seed)

    @torch.no_grad()
    def _scores(self, model: Any, groups: Sequence[Group], params: SamplingParams) -> Tensor:
        """Return ``token_moments`` of all sampled tokens, and the engine's log-probs, (N, K)."""
        whole = [member.completion for group in groups for member in group.members]
        rows = [
            Row(one.prompt_ids, one.token_ids, one.loss_mask, one.logprobs, 0.0, group=place)
            for place, one in enumerate(whole)
        ]
        compute, parts = moments_at(params, self._dtype), list[torch.Tensor]()
        autocast = None if self._dtype == torch.float32 else self._dtype
        with evaluating(model):
            for batch in micro_batches(rows, tokens_per_micro_batch=TOKENS, device=model.device):
                columns = (*compute(model, batch, autocast_dtype=autocast), batch.behaviour_logp_BT)
                inside_BT = batch.mask_BT
                parts.append(torch.stack([one[inside_BT].float() for one in columns], 1).cpu())
        return torch.cat(parts) if parts else torch.zeros(0, 8)
