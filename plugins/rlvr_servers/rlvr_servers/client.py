"""Requests to one vLLM server, each with a deadline: token ids in, token ids and log-probs out.

A ``Probe`` asks every server for the same few tokens, to see which weights it holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import torch

from rlvr_core.api import Generation, GenerationRequest, RunError, SamplingParams
from rlvr_core.engines.vllm.probe import (
    PROBE_TOKENS,
    check_probe,
    probe_prompt,
    shared_prefix,
)
from rlvr_core.engines.vllm.requests import generation, sampling_fields

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SHOWN = 400
_HEALTH = 5.0


class GoneError(Exception):
    """No answer: the server is not there, or does not speak."""


class FaultError(Exception):
    """The server answered that it could not do it.

    Attributes:
        status: Status code of HTTP; 4xx blames the request.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class OtherWeightsError(Exception):
    """An answer was sampled under other weights than the ones given last."""


class ServerClient:
    """HTTP client of one server.

    Args:
        address: A URL, or the Unix socket of a server on this machine.
    """

    def __init__(self, address: str | Path) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=256)
        local = isinstance(address, Path)
        self._http = httpx2.AsyncClient(
            base_url="http://server" if local else str(address).rstrip("/"),
            transport=httpx2.AsyncHTTPTransport(
                uds=str(address) if local else None, limits=limits, trust_env=False
            ),
        )

    async def call(
        self,
        method: str,
        path: str,
        *,
        seconds: float | None,
        body: Mapping[str, Any] | None = None,
        **query: str,
    ) -> Any:
        """The JSON a route answers with; None for an empty answer.

        Args:
            method: Of HTTP.
            path: The route.
            seconds: The answer must be there by then; None to wait as long as the server lives.
            body: What is sent, as JSON.
            query: Parameters of the URL.

        Raises:
            GoneError: If no answer came.
            FaultError: If the answer is an error.
        """

        async def send() -> httpx2.Response:
            timeout = httpx2.Timeout(seconds)
            return await self._http.request(
                method, path, json=body, params=query or None, timeout=timeout
            )

        try:
            async with asyncio.timeout(seconds):
                try:
                    response = await send()
                except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
                    if method != "GET":
                        raise
                    # after an error a server closes the connection, which was kept here
                    response = await send()
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise GoneError(f"no answer to {path} within {seconds or 0:g} s") from error
        except httpx2.TransportError as error:
            reason = str(error) or type(error).__name__
            raise GoneError(f"no connection: {reason}") from error
        if response.status_code != 200:
            raise FaultError(response.status_code, _error_message(response))
        try:
            return response.json() if response.content else None
        except ValueError as error:
            raise GoneError(f"the answer to {path} is no JSON") from error

    async def generate(self, body: Mapping[str, Any], *, seconds: float | None) -> Any:
        """The answer to what ``generate_body`` makes; see ``call``."""
        return await self.call("POST", "/inference/v1/generate", seconds=seconds, body=body)

    async def rpc(self, method: str, *arguments: str, seconds: float) -> list[dict[str, Any]]:
        """Call ``method`` on each worker and return the results.

        Raises:
            GoneError: If no answer came.
            FaultError: If it failed.
        """
        body = {"method": method, "args": list(arguments)}
        reply = await self.call("POST", "/collective_rpc", seconds=seconds, body=body)
        results: list[dict[str, Any]] = reply["results"]
        return results

    async def weight_version(self, *, seconds: float) -> str:
        """The label of its weights, as its engine says, and not only its front.

        Raises:
            GoneError: If no answer came.
            FaultError: If the answer is an error.
        """
        reply = await self.call("GET", "/weight_info", seconds=seconds)
        return str(reply["weight_version"])

    async def answers(self) -> bool:
        """Whether its health route answers with success."""
        try:
            await self.call("GET", "/health", seconds=_HEALTH)
        except (GoneError, FaultError):
            return False
        return True

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def generate_body(request: GenerationRequest, seed: int, stop_ids: Sequence[int]) -> dict[str, Any]:
    """Body of the request for one completion with its own seed."""
    fields = sampling_fields(request.params, seed, stop_ids)
    return {"token_ids": list(request.prompt_ids), "sampling_params": fields}


def label_of(run: str, version: int) -> str:
    """Return a server's label of a weights version; another run's have another label."""
    return f"{run}/{version}"


def read_generation(
    reply: Any,
    request: GenerationRequest,
    text: Callable[[Sequence[int]], str],
    run: str,
    versions: range,
) -> Generation | None:
    """An answer as a generation; None for an aborted one, which is no answer.

    Its version is that of its first token. Later ones may be of later versions, if new weights
    came while it was being sampled; each log-prob is that of the weights its token was sampled by.

    Args:
        reply: The JSON of ``/inference/v1/generate``.
        request: What it answers, for messages.
        text: Decodes token ids.
        run: Whose weights it should have been sampled under.
        versions: Of which versions of them.

    Raises:
        OtherWeightsError: If it was sampled under others.
        RunError: If there is not one finite log-prob per token.
    """
    choice = reply["choices"][0]
    if choice["finish_reason"] not in ("stop", "length"):
        return None
    token_ids = [int(token) for token in choice["token_ids"]]
    spans = _spans(choice["weight_versions"] or (), len(token_ids), run, versions)
    entries = choice["logprobs"]["content"]
    if [int(entry["token_id"]) for entry in entries] != token_ids:
        raise RunError(f"request {request.id}: vLLM gave log-probs of other tokens than it sampled")
    logprobs = [float(entry["logprob"]) for entry in entries]
    reason = choice["finish_reason"]
    return generation(request, token_ids, logprobs, spans, reason, text, versions[0])


def _spans(
    spans: Sequence[Mapping[str, Any]], length: int, run: str, versions: range
) -> list[tuple[int, int, int]]:
    """Version, start and end of each span, once they were all found in order and without a gap.

    Raises:
        OtherWeightsError: If they are not.
    """
    known = {label_of(run, version): version for version in versions}
    of_spans = [known.get(str(span["version"]), -1) for span in spans]
    starts, ends = [span["start"] for span in spans], [span["end"] for span in spans]
    whole = bool(spans) and [*starts, length] == [0, *ends]
    if not whole or -1 in of_spans or of_spans != sorted(of_spans):
        raise OtherWeightsError(", ".join(str(span["version"]) for span in spans) or "none")
    return list(zip(of_spans, starts, ends, strict=True))


def _error_message(response: httpx2.Response) -> str:
    """The message of an error, on one line."""
    try:
        content: Any = response.json()
        for key in ("error", "message", "detail"):
            content = content.get(key, content) if isinstance(content, dict) else content
    except ValueError:
        content = response.text
    line = " ".join(str(content).split())
    return f"HTTP {response.status_code}: {line[:_SHOWN]}"


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
        self._tokenizer, self._dtype, self._max_model_len = tokenizer, dtype, max_model_len
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
            length = max(1, min(2 * block_size + 1, self._max_model_len - PROBE_TOKENS))
            self._prompt = probe_prompt(self._tokenizer, vocabulary, length)
            self.device = torch.device(device)

    async def ask(self, client: ServerClient, label: str, seconds: float) -> Generation:
        """Return a server's completion of the probe's prompt.

        Raises:
            GoneError: If the server does not answer.
            FaultError: If it was sampled under other weights.
        """
        params = SamplingParams(max_tokens=PROBE_TOKENS)
        request = GenerationRequest("probe", self._prompt, params, (0,))
        body = generate_body(request, 0, ())
        reply = await client.generate(body, seconds=seconds)
        try:
            run, _, version = label.rpartition("/")
            versions = range(int(version), int(version) + 1)
            answer = read_generation(reply, request, lambda _: "", run, versions)
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
