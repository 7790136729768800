"""Whether a vLLM server is fit for a run, and whether it has the right weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import (
    ConfigError,
    EngineContext,
    Generation,
    GenerationRequest,
    SamplingParams,
)
from rlvr_core.api.services import PROBE_TOKENS, check_probe, eos_ids, probe_prompt, shared_prefix
from rlvr_core.builtin.vllm.client import (
    FaultError,
    OtherWeightsError,
    ServerClient,
    generate_body,
    read_generation,
)
from rlvr_core.builtin.vllm.pool import Server

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


def check_server(
    context: EngineContext, probe: Probe, nccl: bool, server: Server, facts: Mapping[str, Any]
) -> None:
    """Refuse a server that could not do this run's work exactly; fit the probe to one that can.

    Args:
        context: What the run needs.
        probe: Of the servers.
        nccl: Whether weights are to go over NCCL.
        server: The server.
        facts: What ``worker.Extension.rlvr_describe`` says of it.

    Raises:
        ConfigError: With every flag it lacks.
    """
    dtype = str(context.dtype).removeprefix("torch.")
    wanted: dict[str, tuple[Any, str]] = {
        "backend": ("rlvr", '--weight-transfer-config \'{"backend": "rlvr"}\''),
        "dtype": (dtype, f"--dtype {dtype}"),
        "logprobs_mode": ("processed_logprobs", "--logprobs-mode processed_logprobs"),
    }
    if facts["device"] == "cpu":
        wanted["chunked_prefill"] = (False, "--no-enable-chunked-prefill")
    wrong = [
        f"its {name} is {facts[name]}: start it with {flag}"
        for name, (value, flag) in wanted.items()
        if facts[name] != value
    ]
    if facts["max_model_len"] < context.max_model_len:
        wrong.append(
            f"it takes sequences of {facts['max_model_len']} tokens: start it with "
            f"--max-model-len {context.max_model_len}"
        )
    if nccl and facts["device"] == "cpu":
        wrong.append("it is on a CPU, where NCCL does not reach: set engine.transport: files")
    if wrong:
        raise ConfigError(
            f"vLLM server {server.name} does not fit this run",
            where="engine",
            remedy=wrong,
        )
    probe.fit(
        vocabulary=facts["vocab_size"],
        block_size=facts["block_size"],
        device=facts["device"],
    )


def declared_eos(context: EngineContext) -> tuple[int, ...]:
    """Tokens that end a completion; the model itself is elsewhere, its folder is here."""
    if context.model is not None:
        return eos_ids(context.model, context.tokenizer)
    from transformers import AutoConfig, GenerationConfig

    options = {"trust_remote_code": context.trust_remote_code}
    config = AutoConfig.from_pretrained(context.model_path, **options)
    try:
        generation = GenerationConfig.from_pretrained(context.model_path)
    except OSError:  # not every model has one
        generation = None
    stand_in: Any = SimpleNamespace(config=config, generation_config=generation)
    return eos_ids(stand_in, context.tokenizer)
