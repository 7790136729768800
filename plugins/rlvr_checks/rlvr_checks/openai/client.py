"""A client of servers with OpenAI's HTTP API, with retries."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal

from rlvr_checks.openai.config import Endpoint
from rlvr_core.api import Json, MachineError, Usage

if TYPE_CHECKING:
    import httpx2

Fault = Literal["unreachable", "key", "model", "quota", "too_long", "refused", "gave_up", "timeout"]
PASSING = frozenset({408, 409, 425, 429})
"""HTTP statuses below 500 that are retried."""
CONNECT_TRIES = 4
"""Tries to connect to a server that does not accept connections."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds before the second try, doubled at each further try up to the longest."""
_TOO_LONG = ("context_length_exceeded", "context length", "context window", "too many tokens")
_SHOWN = 300


class RemoteError(Exception):
    """A request failed.

    Attributes:
        fault: Kind of the failure.
        usage: Tokens and requests used.
        everyone: Whether every other request would certainly fail the same way.
    """

    def __init__(self, fault: Fault, text: str, usage: Usage) -> None:
        super().__init__(text)
        self.fault, self.usage = fault, usage
        self.everyone = fault in ("unreachable", "key", "model", "quota")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the server.

    Attributes:
        text: Text of the model.
        finish_reason: Finish reason in the server's words.
        usage: Tokens and requests used.
    """

    text: str
    finish_reason: str
    usage: Usage


class _PassingError(Exception):
    """A failure to retry; ``wait`` is the pause in seconds that the server requested."""

    def __init__(self, text: str, wait: float = 0.0, *, connected: bool = True) -> None:
        super().__init__(text)
        self.wait, self.connected = wait, connected


class _FinalError(Exception):
    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class Client:
    """A client of one server. Every method may be called from any thread.

    Args:
        endpoint: The server.
        model: The model's name there.

    Raises:
        MachineError: If the HTTP library is not installed.
        ConfigError: If the API key is not in the environment.
    """

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        try:
            import httpx2
        except ModuleNotFoundError as error:
            raise MachineError(
                "asking a remote model needs httpx2, which is not installed",
                remedy="pip install 'rlvr-core[openai]'",
            ) from error
        self._httpx = httpx2
        self._endpoint, self._model = endpoint, model
        self._key = endpoint.key()
        headers = {"Content-Type": "application/json", "User-Agent": "rlvr"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        self._http = httpx2.Client(
            headers=headers,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
        )
        self._not_before = 0.0

    def chat(self, messages: list[dict[str, str]], fields: Mapping[str, Json], **kw: Any) -> Reply:
        """Request one answer of ``/chat/completions``; arguments and errors as for ``ask``."""
        return self.ask("/chat/completions", {"messages": messages, **fields}, **kw)

    def ask(self, path: str, fields: Mapping[str, Json], *, deadline: float | None = None) -> Reply:
        """Request one answer.

        Args:
            path: ``/chat/completions`` or ``/completions``.
            fields: The request body, without the model and the configured extra fields.
            deadline: Deadline in ``time.monotonic`` seconds, if earlier than the configured one.

        Raises:
            RemoteError: If no answer is received.
        """
        began = time.monotonic()
        until = min(began + self._endpoint.deadline, deadline or float("inf"))
        body = json.dumps({"model": self._model, **fields, **self._endpoint.extra}).encode()
        tries, last = 0, ""
        while True:
            try:
                self._pause(self._not_before, until, last)
                tries += 1
                reply = self._try(path, body, until)
            except _FinalError as end:
                raise self._error(end.fault, str(end), tries, began) from None
            except _PassingError as fault:
                last = str(fault)
                most = self._endpoint.retries + 1
                most = most if fault.connected else min(most, CONNECT_TRIES)
                if tries >= most:
                    kind: Fault = "gave_up" if fault.connected else "unreachable"
                    text = f"{last}, at each of {tries} tries" if tries > 1 else last
                    raise self._error(kind, text, tries, began) from None
                again = time.monotonic() + max(fault.wait, _backoff(tries))
                if fault.wait:  # the server's pause applies to all requests
                    self._not_before = max(self._not_before, again)
                try:
                    self._pause(again, until, last)
                except _FinalError as end:
                    raise self._error(end.fault, str(end), tries, began) from None
            else:
                seconds = time.monotonic() - began
                usage = replace(reply.usage, requests=tries, seconds=seconds)
                price = self._endpoint.price
                return replace(reply, usage=replace(usage, cost=price.of(usage) if price else None))

    def models(self) -> dict[str, str]:
        """Return the server's models and their owners; empty if it does not list them.

        Raises:
            RemoteError: If it cannot be reached, or refuses the key.
        """
        began = time.monotonic()
        try:
            status, raw, _ = self._send("GET", "/models", b"", began + self._endpoint.timeout)
        except _PassingError as fault:
            if fault.connected:
                return {}
            raise self._error("unreachable", str(fault), 1, began) from None
        if status in (401, 403):
            raise self._error("key", _error_text(status, raw), 1, began)
        try:
            models = json.loads(raw)["data"] if status == 200 else []
            return {str(model["id"]): str(model.get("owned_by")) for model in models}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}

    def close(self) -> None:
        """Close the connections; safe to call twice."""
        self._http.close()

    def _error(self, fault: Fault, text: str, tries: int, began: float) -> RemoteError:
        usage = Usage(tries, seconds=time.monotonic() - began)
        return RemoteError(fault, f"{self._endpoint.base_url}: {text}", usage)

    def _pause(self, resume_at: float, until: float, last: str) -> None:
        """Sleep until ``resume_at``; raise if that is too late."""
        now = time.monotonic()
        if max(resume_at, now) >= until:
            wait = f", and the next may come in {resume_at - now:.0f} s" if resume_at > now else ""
            text = f"no answer within {self._endpoint.deadline:g} s (deadline)"
            raise _FinalError("timeout", f"{text}; the last try: {last}{wait}" if last else text)
        time.sleep(max(0.0, resume_at - now))

    def _try(self, path: str, body: bytes, until: float) -> Reply:
        limit = min(time.monotonic() + self._endpoint.timeout, until)
        status, raw, headers = self._send("POST", path, body, limit)
        if status == 200:
            return _reply(raw)
        text = _error_text(status, raw)
        if status == 429 and "insufficient_quota" in text:
            raise _FinalError("quota", text)
        if status in PASSING or status >= 500:
            raise _PassingError(text, _retry_after(headers))
        if status in (401, 403):
            raise _FinalError("key", text)
        if status == 404:
            raise _FinalError("model", text)
        if any(sign in text.lower() for sign in _TOO_LONG):
            raise _FinalError("too_long", text)
        raise _FinalError("refused", text)

    def _send(
        self, method: str, path: str, body: bytes, limit: float
    ) -> tuple[int, bytes, httpx2.Headers]:
        """Send a request and return status, body and headers, complete before ``limit``."""
        httpx, url = self._httpx, self._endpoint.base_url + path
        seconds = max(0.001, limit - time.monotonic())
        try:
            with self._http.stream(method, url, content=body, timeout=seconds) as response:
                parts = []
                for part in response.iter_bytes():
                    parts.append(part)
                    if time.monotonic() > limit:  # even if the server sends slowly
                        raise httpx.ReadTimeout("")
                return response.status_code, self._hide(b"".join(parts)), response.headers
        except httpx.ConnectTimeout:
            raise _PassingError(f"no connection within {seconds:.3g} s", connected=False) from None
        except httpx.ConnectError as error:
            raise _PassingError(f"no connection: {error}", connected=False) from None
        except httpx.TimeoutException:
            raise _PassingError(f"no answer within {seconds:.3g} s") from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _PassingError(f"the connection broke: {type(error).__name__} {error}") from None

    def _hide(self, raw: bytes) -> bytes:
        """Remove the API key from a response that may echo it."""
        return raw.replace(self._key.encode(), b"***") if self._key else raw


def _error_text(status: int, raw: bytes) -> str:
    """Format the status and the server's message."""
    text: Any = raw.decode("utf-8", "replace")
    try:
        data = json.loads(text)
        inner = data.get("error", data) if isinstance(data, dict) else data
        text = inner.get("message") or inner if isinstance(inner, dict) else inner
        code = inner.get("code") if isinstance(inner, dict) else None
        text = f"{text} ({code})" if isinstance(code, str) else text
    except (ValueError, RecursionError):
        pass  # not JSON: shown as it is
    message = " ".join(str(text).split())
    return f"HTTP {status}: {message[:_SHOWN]}" if message else f"HTTP {status}"


def _backoff(tries: int) -> float:
    """Return seconds before the next try: doubling, half of it random so that tries spread out."""
    wait = min(FIRST_WAIT * 2.0 ** min(tries - 1, 30), LONGEST_WAIT)
    return wait * random.Random().uniform(0.5, 1.0)


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds the server asks to wait; 0 if it does not."""
    for name, factor in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * factor
        except ValueError:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - time.time()
            except (ValueError, TypeError, OverflowError):
                continue
        if 0.0 < seconds < 1e9:
            return seconds
    return 0.0


def _reply(raw: bytes) -> Reply:
    """Parse a response; a malformed one, perhaps damaged in transit, is retried."""
    try:
        data = json.loads(raw)
        choice = data["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        reason = choice["finish_reason"]
    except (ValueError, RecursionError):
        shown = " ".join(raw[:80].decode("utf-8", "replace").split())
        raise _PassingError(f"the answer is no JSON: {shown!r}") from None
    except (KeyError, TypeError, IndexError):
        shown = " ".join(raw[:160].decode("utf-8", "replace").split())
        raise _PassingError(f"the answer has no choices with a text: {shown!r}") from None
    if not (text is None or isinstance(text, str)) or not isinstance(reason, str):
        raise _PassingError(f"text {text!r:.40} and finish_reason {reason!r:.40} are no answer")
    usage = data.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    return Reply(
        text or "",  # a model that only reasoned up to the cap has no answer text
        reason,
        Usage(1, _count(counts.get("prompt_tokens")), _count(counts.get("completion_tokens"))),
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
