"""A probe of an engine that computes with the trainer's model, as the trainer does.

Such an engine and the trainer put a prompt through the same code in the same shapes, so the
log-prob of the token behind it is the same to the bit, in half precision too, where two kernels or
two shapes differ by some hundredths. Whether the two really do is measured before the first sync
of the process. It shows what weights do not: an adapter that
is added with another scale, or keys and values of prompts that are older than the sync.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import BackgroundEngine, GenerationRequest, RunError, SamplingParams
from rlvr_core.builtin.invariants.check import Trainer, compute_dtype
from rlvr_core.builtin.invariants.fingerprints import is_sharded
from rlvr_core.builtin.invariants.moments import fresh_groups

if TYPE_CHECKING:
    from rlvr_core.api import Engine, GroupsScored

PROMPTS, TOKENS = 4, 2048
"""Prompts of a probe, at most, and tokens in them beyond the first."""

CLOSE = {torch.float32: 1e-4, torch.bfloat16: 2e-3, torch.float16: 1e-3}
"""Nats that are nothing: float32 may go other paths. Half of it, over two prompts at least, shows
before the first sync that engine and trainer do compute alike; others are left alone."""

DEADLINE = 600.0

Wrong = tuple[str, ...]


class Twin:
    """Compares engine and trainer on prompts of the step, one token each.

    Args:
        engine: The engine of this process; one that works in the background is left alone.
        trainer: The policy's trainer.
    """

    def __init__(self, engine: Engine, trainer: Trainer) -> None:
        self._engine = None if isinstance(engine, BackgroundEngine) else engine
        self._trainer = trainer
        self._prompts: list[tuple[int, ...]] = []
        self._alike: bool | None = None

    def prepare(self, event: GroupsScored) -> None:
        """Take prompts of a step; at first see whether engine and trainer compute alike."""
        self._prompts = []
        if (
            self._alike is False
            or self._engine is None
            or any(map(is_sharded, self._trainer.model.parameters()))
        ):
            return
        for group in fresh_groups(event):
            ids = group.members[0].completion.prompt_ids if group.members else ()
            n = len(self._prompts)
            # of one length: padding would be another shape
            same = not n or len(ids) == len(self._prompts[0])
            if ids and same and n < PROMPTS and (not n or (n + 1) * len(ids) <= TOKENS):
                self._prompts.append(ids)
        if self._alike is None and len(self._prompts) > 1:
            distance, _ = self._compare(event.version)
            self._alike = distance <= CLOSE[compute_dtype(self._trainer)] / 2

    def judged(self, version: int) -> Wrong:
        """What is wrong with the engine after a sync, and the likely cause; empty if nothing is."""
        if not self._prompts or not self._alike:
            self._alike = bool(self._alike)  # after a sync it is too late to find out
            return ()
        distance, label = self._compare(version)
        if label != version:
            return (
                f"after the sync to version {version} the engine labels what it samples {label}",
                "load_weights(version) has to label what is sampled from then on; the age of "
                "every completion is read from it",
            )
        band = CLOSE[compute_dtype(self._trainer)]
        if distance <= band:
            return ()
        return (
            f"after the sync to version {version} engine and trainer disagree by {distance:.3g} "
            f"nats on the token behind a prompt (band {band:g}, and before the first sync less "
            "than half of it)",
            "the engine's weights do not show it or are right: keys and values of the prompt come "
            "from a cache of older weights, or the engine adds the adapter with another scale, "
            "with dropout, or not at all",
        )

    def _compare(self, version: int) -> tuple[float, int]:
        """Return the largest distance in nats over the prompts, and the engine's label."""
        engine: Any = self._engine
        one = SamplingParams(max_tokens=1)
        futures = [
            engine.submit(GenerationRequest(f"sync-{place}@{version}", ids, one, (place,)))
            for place, ids in enumerate(self._prompts)
        ]
        engine.drain(DEADLINE)
        if lost := sum(not future.done() for future in futures):
            raise RunError(
                f"guard sync: the engine did not answer {lost} of {len(futures)} requests for one "
                "token, though drain came back",
                where=f"policy version {version}",
                remedy="the engine forgets requests: every future that submit returns has to be "
                "resolved when drain returns",
            )
        answers = [future.result(0)[0] for future in futures]
        labels = {answer.version for answer in answers} - {version}
        if not all(answer.token_ids for answer in answers):  # a prompt that fills the context
            return 0.0, min(labels, default=version)
        ours = self._logprobs([answer.token_ids[0] for answer in answers])
        apart = [abs(a - b.logprobs[0]) for a, b in zip(ours, answers, strict=True)]
        finite = [one if math.isfinite(one) else math.inf for one in apart]
        return max(finite), min(labels, default=version)

    @torch.no_grad()
    def _logprobs(self, tokens: list[int]) -> list[float]:
        """The trainer's log-prob of a token behind each prompt."""
        model, dtype = self._trainer.model, compute_dtype(self._trainer)
        device = next(model.parameters()).device
        ids_BP = torch.tensor(self._prompts, device=device)
        training = [module for module in model.modules() if module.training]
        for module in training:
            module.training = False
        try:
            with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
                logits_BV = model(
                    input_ids=ids_BP,
                    attention_mask=torch.ones_like(ids_BP),
                    position_ids=torch.arange(ids_BP.shape[1], device=device).expand_as(ids_BP),
                    use_cache=True,
                    logits_to_keep=1,
                ).logits[:, -1]
        finally:
            for module in training:
                module.training = True
        token_B1 = torch.tensor(tokens, device=device)[:, None]
        logprobs: list[float] = logits_BV.float().log_softmax(-1).gather(1, token_B1)[:, 0].tolist()
        return logprobs
