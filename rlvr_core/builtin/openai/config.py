"""How to reach a server that speaks OpenAI's HTTP interface; the judge and the engine share it."""

from __future__ import annotations

import os
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from rlvr_core.api import ComponentConfig, ConfigError, Json, Usage

Seconds = Annotated[float, Field(gt=0)]
_SAMPLING = {"max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "seed", "stop"}
OURS = _SAMPLING | {"model", "messages", "prompt", "n", "stream"}
"""Fields of a request's body that come from elsewhere in the configuration."""


class Price(ComponentConfig):
    """What a million tokens cost, in any one currency."""

    input: Annotated[float, Field(ge=0)]
    """A million prompt tokens."""
    output: Annotated[float, Field(ge=0)]
    """A million completion tokens."""

    def of(self, usage: Usage) -> float | None:
        """The cost of some tokens; None if they were not counted."""
        if usage.prompt_tokens is None or usage.completion_tokens is None:
            return None
        both = usage.prompt_tokens * self.input + usage.completion_tokens * self.output
        return both / 1e6


class Endpoint(ComponentConfig):
    """A server, and how patient to be with it."""

    base_url: str
    """Root of the interface with its version, as in ``http://localhost:8000/v1``."""
    api_key_env: str | None = None
    """Environment variable with the API key, which is never written down; null where none is
    needed."""
    timeout: Seconds = 600.0
    """Seconds one try may take."""
    deadline: Seconds = 1800.0
    """Seconds an answer may take, all tries and the waits between them together."""
    retries: Annotated[int, Field(ge=0)] = 8
    """Tries after the first, where the fault may pass: 408, 409, 425, 429, 5xx, a broken
    connection, an answer that is none. ``Retry-After`` is honoured."""
    price: Price | None = None
    """What tokens cost; without it no cost is given."""
    max_tokens_field: Annotated[str, Field(pattern="^max_(completion_)?tokens$")] = "max_tokens"
    """Name of the token cap in a request; some newer models take only ``max_completion_tokens``."""
    extra: dict[str, Json] = {}
    """Further fields of each request's body, as they are: ``{reasoning_effort: low}``."""

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
        """The API key.

        Raises:
            ConfigError: If it is to be in the environment and is not, or cannot be sent.
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
