"""Log-probs of given text from a vLLM engine: those it computes of its prompts."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlvr_core.api import RunError, ScoreRequest, Scores

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest


def score(
    llm: Any, requests: Sequence[ScoreRequest], timeout: float | None, adapter: LoRARequest | None
) -> list[Scores]:
    """Score each request's tokens behind its prompt.

    Args:
        llm: vLLM's ``LLMEngine``, with nothing else to do.
        requests: What to score.
        timeout: Seconds.
        adapter: To be computed beside the base model, if any.

    Returns:
        One result a request, in order.

    Raises:
        RunError: If it took too long, or vLLM left an answer out.
        Exception: Whatever vLLM raised.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    deadline = math.inf if timeout is None else time.monotonic() + timeout
    params = SamplingParams(
        temperature=0.0,
        max_tokens=1,
        prompt_logprobs=0,  # of the prompt's own tokens only
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    names = [f"score-{index}" for index in range(len(requests))]
    for name, request in zip(names, requests, strict=True):
        ids = [*request.prompt_ids, *request.token_ids]
        llm.add_request(
            name, {"type": "token", "prompt_token_ids": ids}, params, lora_request=adapter
        )
    found: dict[str, Scores] = {}
    wanted = dict(zip(names, requests, strict=True))
    while llm.has_unfinished_requests():
        if time.monotonic() > deadline:
            llm.abort_request([name for name in names if name not in found])
            raise RunError(
                f"scoring was not finished within {timeout:g} s; "
                f"{len(names) - len(found)} of {len(names)} texts were left",
                remedy="raise the deadline",
            )
        for output in llm.step():
            if output.request_id in wanted and output.finished:
                found[output.request_id] = _read(output, wanted[output.request_id])
    if len(found) != len(names):
        raise RunError(f"vLLM scored {len(found)} of {len(names)} texts")
    return [found[name] for name in names]


def _read(output: Any, request: ScoreRequest) -> Scores:
    """The entries of the scored tokens; rank 1 is the most likely token."""
    n = len(request.token_ids)
    entries = [
        at_position[token]
        for token, at_position in zip(request.token_ids, output.prompt_logprobs[-n:], strict=True)
    ]
    return Scores(
        tuple(float(entry.logprob) for entry in entries),
        tuple(entry.rank == 1 for entry in entries),
    )
