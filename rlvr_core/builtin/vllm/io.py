"""Our requests as vLLM's sampling parameters, and its outputs as our generations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Generation, GenerationRequest, RunError, SamplingParams

if TYPE_CHECKING:
    from vllm.outputs import CompletionOutput


def room_for(request: GenerationRequest, max_model_len: int) -> int:
    """Tokens that an answer can have.

    Args:
        request: What is asked.
        max_model_len: Tokens that prompt and completion may have together.

    Raises:
        RunError: If the prompt is empty, or leaves no room for a token.
    """
    length = len(request.prompt_ids)
    if length == 0:
        raise RunError(f"request {request.id}: the prompt has no tokens")
    if length >= max_model_len:
        raise RunError(
            f"request {request.id}: a prompt of {length} tokens leaves no room for an answer "
            f"in the engine's {max_model_len}",
            remedy="lower data.max_prompt_tokens, or raise sampling.max_tokens",
        )
    return max_model_len - length


def not_finite(request: GenerationRequest) -> RunError:
    """The error of log-probs that are not finite: the model's weights are broken."""
    return RunError(
        f"request {request.id}: vLLM returned log-probs that are not finite",
        remedy="the weights have overflowed: look at the loss and gradient norm of the last "
        "steps, lower train.lr, or use bfloat16 instead of float16",
    )


def sampling_params(params: SamplingParams, seed: int, stop_ids: Sequence[int]) -> Any:
    """Parameters of vLLM for one completion with its own seed (T18).

    Args:
        params: How to sample.
        seed: Of this completion.
        stop_ids: Tokens that end it, and are kept.
    """
    from vllm import SamplingParams as VllmSamplingParams
    from vllm.sampling_params import RequestOutputKind

    return VllmSamplingParams(
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        max_tokens=params.max_tokens,
        seed=seed % 2**63,  # -1 would mean none
        stop=list(params.stop),
        stop_token_ids=list(stop_ids),
        include_stop_str_in_output=True,
        logprobs=0,  # of the sampled token only
        detokenize=bool(params.stop),  # vLLM needs text only to look for stop strings
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def generation(
    output: CompletionOutput,
    request: GenerationRequest,
    text: Callable[[Sequence[int]], str],
    version: int,
) -> Generation:
    """A finished output as a generation.

    Its text is that of all its tokens. vLLM's own ends exactly at a stop string, while the last
    token may go on behind it: what is graded would not be what is trained (T63).

    Args:
        output: Of vLLM, finished by ``stop`` or ``length``.
        request: What it answers, for the message.
        text: Decodes token ids.
        version: Policy version that sampled it.

    Raises:
        RunError: If there is not one finite log-prob per token: the model's weights are broken.
    """
    token_ids = tuple(int(token) for token in output.token_ids)
    logprobs = tuple(
        float(at_position[token].logprob)
        for token, at_position in zip(token_ids, output.logprobs or (), strict=True)
    )
    if not all(math.isfinite(logprob) for logprob in logprobs):
        raise not_finite(request)
    return Generation(
        token_ids=token_ids,
        logprobs=logprobs,
        text=text(token_ids),
        finish_reason="stop" if output.finish_reason == "stop" else "length",
        version=version,
    )
