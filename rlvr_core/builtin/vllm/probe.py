"""The probe of vLLM servers: a few sampled tokens show whose weights a server has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from rlvr_core.api import Generation, GenerationRequest, SamplingParams
from rlvr_core.builtin.vllm.client import (
    FaultError,
    OtherWeightsError,
    ServerClient,
    generate_body,
    read_generation,
)
from rlvr_core.engines.sync import PROBE_TOKENS, check_probe, probe_prompt, shared_prefix

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Logprobs = Callable[[Sequence[int], Sequence[int]], Sequence[float]]
"""The trainer's log-probs of tokens after a prompt."""


class Probe:
    """Asks each server for the same few tokens and compares their log-probs.

    At a sync they are held against the trainer's; a server that comes back later, when the trainer
    may be in the middle of an update, against what was found then.

    Args:
        tokenizer: The run's.
        dtype: Precision of the run.
        max_model_len: Longest sequence of the servers.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, dtype: torch.dtype, max_model_len: int
    ) -> None:
        self._tokenizer, self._dtype, self._room = tokenizer, dtype, max_model_len
        self._prompt: tuple[int, ...] = ()
        self._known: dict[tuple[int, ...], Sequence[float]] = {}
        self._version = 0
        self.device = torch.device("cpu")

    def fit(self, *, vocabulary: int, block_size: int, device: str) -> None:
        """Make the prompt, longer than two cache blocks; the first server tells how long that is.

        Args:
            vocabulary: Rows of the embedding.
            block_size: Tokens of a cache block.
            device: Where servers compute: ``cpu`` or ``cuda``.
        """
        if not self._prompt:
            length = max(1, min(2 * block_size + 1, self._room - PROBE_TOKENS))
            self._prompt = probe_prompt(self._tokenizer, vocabulary, length)
            self.device = torch.device(device)

    async def ask(self, client: ServerClient, label: str, seconds: float) -> Generation:
        """A server's answer.

        Raises:
            GoneError: If there is none.
            FaultError: If it is of other weights.
        """
        params = SamplingParams(max_tokens=PROBE_TOKENS)
        request = GenerationRequest("probe", self._prompt, params, (0,))
        body = generate_body(request, 0, ())
        found = await client.generate(body, seconds=seconds)
        try:
            run, _, version = label.rpartition("/")
            versions = range(int(version), int(version) + 1)
            answer = read_generation(found, request, lambda _: "", run, versions)
        except OtherWeightsError as error:
            raise FaultError(500, f"it answered the probe under weights '{error}'") from error
        if answer is None:
            raise FaultError(500, "it aborted the probe")
        return answer

    def compare(
        self, answers: Mapping[str, Generation], version: int, trainer: Logprobs | None
    ) -> None:
        """Compare the answers of a sync with the trainer, or without one with each other.

        Raises:
            RunError: If one cannot come from these weights.
        """
        self._known, self._version = {}, version
        for name, answer in answers.items():
            if trainer is not None and answer.token_ids not in self._known:
                self._known[answer.token_ids] = trainer(self._prompt, answer.token_ids)
            self.compare_known(name, answer)
            self._known.setdefault(answer.token_ids, answer.logprobs)

    def compare_known(self, name: str, answer: Generation) -> None:
        """Compare an answer with what is known, as far as the tokens are the same.

        Raises:
            RunError: If it cannot come from the same weights.
        """
        n, known = max(
            (
                (shared_prefix(answer.token_ids, ids), logprobs)
                for ids, logprobs in self._known.items()
            ),
            key=lambda pair: pair[0],
            default=(0, ()),
        )
        if n:
            ours = answer.logprobs[:n]
            check_probe(ours, known[:n], self._dtype, self.device, self._version, name=name)
