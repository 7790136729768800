"""Settings to reach a server with OpenAI's HTTP API, shared by the judge and the engine."""

from __future__ import annotations

import os
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from rlvr_core.api import ComponentConfig, ConfigError, Json, Usage

Seconds = Annotated[float, Field(gt=0)]
_SAMPLING = {"max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "seed", "stop"}
OURS = _SAMPLING | {"model", "messages", "prompt", "n", "stream"}
"""Fields of a request body that other parts of the configuration set."""


class Price(ComponentConfig):
    """Price of a million tokens, in any one currency."""

    input: Annotated[float, Field(ge=0)]
    """Price of a million prompt tokens."""
    output: Annotated[float, Field(ge=0)]
    """Price of a million completion tokens."""

    def of(self, usage: Usage) -> float | None:
        """Return the cost of the tokens used; None if they were not counted."""
        if usage.prompt_tokens is None or usage.completion_tokens is None:
            return None
        both = usage.prompt_tokens * self.input + usage.completion_tokens * self.output
        return both / 1e6


class Endpoint(ComponentConfig):
    """A server, with timeouts and retries."""

    base_url: str
    """Base URL of the API including its version, such as ``http://localhost:8000/v1``."""
    api_key_env: str | None = None
    """Environment variable with the API key, which is never recorded; null if none is needed."""
    timeout: Seconds = 600.0
    """Seconds one try may take."""
    deadline: Seconds = 1800.0
    """Seconds one answer may take, including all tries and the pauses between them."""
    retries: Annotated[int, Field(ge=0)] = 8
    """Retries after failures that may pass: 408, 409, 425, 429, 5xx, a broken connection, a
    malformed answer. ``Retry-After`` is honoured."""
    price: Price | None = None
    """Price of tokens; without it no cost is reported."""
    max_tokens_field: Annotated[str, Field(pattern="^max_(completion_)?tokens$")] = "max_tokens"
    """Name of the token cap in a request; some newer models take only ``max_completion_tokens``."""
    extra: dict[str, Json] = {}
    """Further fields of each request body, sent unchanged: ``{reasoning_effort: low}``."""

    @field_validator("base_url")
    @classmethod
    def _root(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError("a URL that begins with http:// or https:// is needed")
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError("put the key into an environment variable: api_key_env")
        return value.rstrip("/")

    @field_validator("extra")
    @classmethod
    def _only_further_fields(cls, value: dict[str, Json]) -> dict[str, Json]:
        taken = sorted(OURS & value.keys())
        if taken:
            raise ValueError(f"{', '.join(taken)}: set elsewhere, and recorded with the results")
        return value

    @model_validator(mode="after")
    def _a_try_fits(self) -> Any:
        if self.timeout > self.deadline:
            raise ValueError(
                f"one try may take {self.timeout:g} s (timeout), and all together only "
                f"{self.deadline:g} s (deadline)"
            )
        return self

    def key(self) -> str | None:
        """Read the API key from the environment; None if none is needed.

        Raises:
            ConfigError: If the variable is not set, or its value cannot be sent in a header.
        """
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise ConfigError(
                f"environment variable {self.api_key_env} is to hold the API key for "
                f"{self.base_url}, and is not set",
                where="api_key_env",
                remedy=f"export {self.api_key_env}=…, or api_key_env: null if none is needed",
            )
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise ConfigError(
                f"environment variable {self.api_key_env} holds what is no API key: it has "
                f"characters that cannot be sent in a header",
                where="api_key_env",
            )
        return key
