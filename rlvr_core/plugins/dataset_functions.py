"""A plain Python function as a dataset loader.

It gives problems one by one, each a ``Problem`` or a mapping: ``prompt``, and if they are there
``id``, ``verifier`` and ``environment``, mean what they do in a problem. The verifier gets the
whole mapping. The function's parameters are the loader's options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pydantic import create_model

from rlvr_core.api import ComponentConfig, ConfigError, DataError, Message, Problem
from rlvr_core.api.problems import NO_VERIFIER, content_id
from rlvr_core.plugins.wrapping import class_of, place_of, refuse_coroutine


def dataset_of(function: Callable[..., Iterable[Any]]) -> type[Any]:
    """A dataset loader class that calls the function.

    Raises:
        ConfigError: If a parameter of it cannot be given by name, or it is a coroutine.
    """
    refuse_coroutine("data", function)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(
                f"the data function {function.__name__} has a parameter {parameter} that no "
                f"option can fill",
                where=place_of(function),
                remedy="give it named parameters alone; they are its options",
            )
        kind = Any if parameter.annotation is parameter.empty else parameter.annotation
        fields[parameter.name] = (
            kind,
            ... if parameter.default is parameter.empty else parameter.default,
        )
    config = create_model("Config", __base__=ComponentConfig, **fields)
    file = inspect.unwrap(function).__code__.co_filename
    return class_of(function, _Function, Config=config, file=file)


class _Function:
    """Calls the function.

    Attributes:
        function: What the user wrote.
        file: Where it stands.
    """

    function: Callable[..., Iterable[Any]]
    file: str

    def __init__(self, config: ComponentConfig) -> None:
        self._options = {name: getattr(config, name) for name in type(config).model_fields}

    def load(self) -> Iterator[Problem]:
        """Yield the problems.

        Raises:
            DataError: If it gives no problems, or one of them is none.
        """
        name = self.function.__name__
        rows: Any = self.function(**self._options)
        if not isinstance(rows, Iterable):
            raise DataError(
                f"the function gave a {type(rows).__name__}, not problems",
                where=f"{self.file} ({name})",
                remedy="yield them one by one, or return a list",
            )
        for number, row in enumerate(rows, 1):
            yield row if isinstance(row, Problem) else _problem(row, name, number, self.file)


def _problem(row: Any, name: str, number: int, file: str) -> Problem:
    where = f"{file} ({name}, row {number})"
    if not isinstance(row, Mapping):
        raise DataError(
            f"the function gave a {type(row).__name__}, not a problem",
            where=where,
            remedy="yield a dict with a prompt, or a rlvr_core.api.Problem",
        )
    if "prompt" not in row:
        raise DataError(
            "the row has no field 'prompt'",
            where=where,
            remedy=f"fields there are: {', '.join(map(str, row)) or 'none'}",
        )
    prompt = row["prompt"]
    if isinstance(prompt, list | tuple):
        try:
            prompt = tuple(
                turn if isinstance(turn, Message) else Message(turn["role"], turn["content"])
                for turn in prompt
            )
        except (TypeError, KeyError):
            raise DataError(
                "the prompt must be text or a list of {role, content}", where=where
            ) from None
    spec = {key: value for key, value in row.items() if key != "prompt"}
    try:
        plain = content_id(name, dict(row))
    except TypeError as error:
        raise DataError(f"the row is not JSON: {error}", where=where) from error
    return Problem(
        id=str(row.get("id", plain)),
        prompt=prompt,
        verifier=str(row.get("verifier", NO_VERIFIER)),
        spec=spec,
        dataset=name,
        environment=row.get("environment"),
        where=f"{name}, row {number}",
    )
