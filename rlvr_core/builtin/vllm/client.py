"""Requests to one vLLM server, each with a deadline: token ids in, token ids and log-probs out."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Generation, GenerationRequest, MachineError, RunError
from rlvr_core.builtin.vllm.requests import not_finite

if TYPE_CHECKING:
    import httpx2

_SHOWN = 400
_HEALTH = 5.0
_FLOOR = -9999.0  # what a server says instead of minus infinity and NaN


class GoneError(Exception):
    """No answer: the server is not there, or does not speak."""


class FaultError(Exception):
    """The server answered that it could not do it.

    Attributes:
        status: HTTP's word for it; 4xx blames the request.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class OtherWeightsError(Exception):
    """An answer was sampled under other weights than the ones given last."""


class ServerClient:
    """Speaks to a server.

    Args:
        address: A URL, or the socket of a server on this machine.
        key: What it wants in the header; None for nothing.
        model: What it calls the model that completions are of; None for the one it serves.
    """

    def __init__(
        self, address: str | Path, key: str | None = None, model: str | None = None
    ) -> None:
        self._model = {} if model is None else {"model": model}
        try:
            import httpx2
        except ModuleNotFoundError as error:
            raise MachineError(
                "engine vllm-server needs httpx2, which is not installed",
                remedy="pip install httpx2",
            ) from error
        self._httpx = httpx2
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=256)
        local = isinstance(address, Path)
        self._http = httpx2.AsyncClient(
            base_url="http://server" if local else str(address).rstrip("/"),
            transport=httpx2.AsyncHTTPTransport(
                uds=str(address) if local else None, limits=limits, trust_env=False
            ),
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
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
            body: Sent as JSON.
            query: Parameters of the URL.

        Raises:
            GoneError: If no answer came.
            FaultError: If the answer is an error.
        """
        httpx = self._httpx

        async def send() -> httpx2.Response:
            timeout = httpx.Timeout(seconds)
            return await self._http.request(
                method, path, json=body, params=query or None, timeout=timeout
            )

        try:
            async with asyncio.timeout(seconds):
                try:
                    response = await send()
                except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                    if method != "GET":
                        raise
                    # after an error a server closes the connection, which was kept here
                    response = await send()
        except (TimeoutError, httpx.TimeoutException) as error:
            raise GoneError(f"no answer to {path} within {seconds or 0:g} s") from error
        except httpx.TransportError as error:
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
        path = "/inference/v1/generate"
        return await self.call("POST", path, seconds=seconds, body={**body, **self._model})

    async def rpc(self, method: str, *arguments: str, seconds: float) -> list[dict[str, Any]]:
        """What each worker's ``method`` returns.

        Raises:
            GoneError: If no answer came.
            FaultError: If it failed.
        """
        body = {"method": method, "args": list(arguments)}
        found = await self.call("POST", "/collective_rpc", seconds=seconds, body=body)
        results: list[dict[str, Any]] = found["results"]
        return results

    async def weight_version(self, *, seconds: float) -> str:
        """The label of its weights, as its engine says, and not only its front.

        Raises:
            GoneError: If no answer came.
            FaultError: If the answer is an error.
        """
        found = await self.call("GET", "/weight_info", seconds=seconds)
        return str(found["weight_version"])

    async def answers(self) -> bool:
        """Whether it says of itself that it is well."""
        try:
            await self.call("GET", "/health", seconds=_HEALTH)
        except (GoneError, FaultError):
            return False
        return True

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def generate_body(request: GenerationRequest, seed: int, stop_ids: Sequence[int]) -> dict[str, Any]:
    """What asks for one completion with its own seed (T18); see ``requests.sampling_params``."""
    params = request.params
    return {
        "token_ids": list(request.prompt_ids),
        "sampling_params": {
            "n": 1,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k,
            "max_tokens": params.max_tokens,
            "seed": seed % 2**63,  # -1 would mean none
            "stop": list(params.stop),
            "stop_token_ids": list(stop_ids),
            "include_stop_str_in_output": True,
            "logprobs": 0,  # of the sampled token only
            "detokenize": bool(params.stop),  # vLLM needs text only to look for stop strings
        },
    }


def label_of(run: str, version: int) -> str:
    """What a server calls the weights of a version: another run's have another label."""
    return f"{run}/{version}"


def read_generation(
    found: Any,
    request: GenerationRequest,
    text: Callable[[Sequence[int]], str],
    run: str,
    versions: range,
) -> Generation | None:
    """An answer as a generation; None for an aborted one, which is no answer (T20).

    Its version is the one it began under. Later tokens of it may be of later ones, if new weights
    came while it was being sampled; each log-prob is that of the weights its token was sampled by.

    Args:
        found: The JSON of ``/inference/v1/generate``.
        request: What it answers, for messages.
        text: Decodes token ids.
        run: Whose weights it should have been sampled under.
        versions: Of which versions of them.

    Raises:
        OtherWeightsError: If it was sampled under others.
        RunError: If there is not one finite log-prob per token.
    """
    choice = found["choices"][0]
    if choice["finish_reason"] not in ("stop", "length"):
        return None
    token_ids = tuple(int(token) for token in choice["token_ids"])
    version = _first_version(choice["weight_versions"] or (), len(token_ids), run, versions)
    entries = choice["logprobs"]["content"]
    scored = tuple(int(entry["token_id"]) for entry in entries)
    if scored != token_ids:
        raise RunError(f"request {request.id}: vLLM gave log-probs of other tokens than it sampled")
    logprobs = tuple(float(entry["logprob"]) for entry in entries)
    if not all(math.isfinite(logprob) and logprob > _FLOOR for logprob in logprobs):
        raise not_finite(request)
    return Generation(
        token_ids=token_ids,
        logprobs=logprobs,
        text=text(token_ids),
        finish_reason="stop" if choice["finish_reason"] == "stop" else "length",
        version=version,
    )


def _first_version(
    spans: Sequence[Mapping[str, Any]], length: int, run: str, versions: range
) -> int:
    """The version of the first span, once they were all found in order and without a gap.

    Raises:
        OtherWeightsError: If they are not.
    """
    known = {label_of(run, version): version for version in versions}
    found = [known.get(str(one["version"]), -1) for one in spans]
    starts, ends = [one["start"] for one in spans], [one["end"] for one in spans]
    whole = bool(spans) and [*starts, length] == [0, *ends]
    if not whole or -1 in found or found != sorted(found):
        raise OtherWeightsError(", ".join(str(one["version"]) for one in spans) or "none")
    return found[0]


def _error_message(response: httpx2.Response) -> str:
    """The message of an error, on one line."""
    try:
        found: Any = response.json()
        for key in ("error", "message", "detail"):
            found = found.get(key, found) if isinstance(found, dict) else found
    except ValueError:
        found = response.text
    line = " ".join(str(found).split())
    return f"HTTP {response.status_code}: {line[:_SHOWN]}"
