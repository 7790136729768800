"""A plain Python function as a verifier.

The names of its parameters decide its arguments:

- ``fn(problem, completion)``: the objects that a verifier class gets. Gives a number, True or
  False, or a ``Verdict``.
- ``fn(prompts, completions, **columns)``: lists over the completions of one group, as TRL calls
  its reward functions; each further parameter, or ``**columns``, is a list of a field of the
  problem's spec. Gives a list of numbers, with None for a completion that it cannot judge.
- ``fn(text, answer)``: the text of the completion; each further parameter is a field of the
  problem's spec. Gives a number, or True or False.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from rlvr_core.api import Completion, ConfigError, DataError, NoConfig, Problem, Verdict
from rlvr_core.plugins.wrapping import class_of, place_of, refuse_coroutine

Form = Literal["problem", "group", "text"]

_FORMS = (
    "fn(problem, completion)",
    "fn(prompts, completions, **columns)",
    "fn(text, answer)",
)
_GROUP = ("prompts", "completions", "completion_ids")


def verifier_of(function: Callable[..., Any]) -> type[Any]:
    """Return a verifier class that calls the function.

    Raises:
        ConfigError: If its parameters are not those of one of the three forms.
    """
    form, parameters = _form(function)
    base = {"problem": _OfProblem, "group": _OfGroup, "text": _OfText}[form]
    return class_of(
        function,
        base,
        fields=_fields(form, parameters),
        every_field=any(p.kind is p.VAR_KEYWORD for p in parameters),
        taken=tuple(p.name for p in parameters),
    )


class _Function:
    """Base of the three forms.

    Attributes:
        function: The user's function.
        fields: Required fields of the spec.
        taken: Names of its parameters.
        every_field: Whether it accepts all fields.
    """

    Config = NoConfig
    function: Callable[..., Any]
    fields: tuple[str, ...]
    taken: tuple[str, ...]
    every_field: bool

    def __init__(self, config: NoConfig) -> None:
        pass

    def check(self, problem: Problem) -> None:
        """Refuse a problem whose spec lacks a field.

        Raises:
            DataError: If a field is missing.
        """
        for name in self.fields:
            if name not in problem.spec:
                raise DataError(
                    f"{problem.id}: the reward function {self.function.__name__} takes '{name}', "
                    f"and the problem has no such field",
                    where=problem.where,
                    remedy=(
                        f"its fields are: {', '.join(problem.spec) or 'none'}; which ones it has "
                        f"is decided by the option 'spec' of its data source",
                        f"if one of them is it by another name: spec: {{{name}: THAT_FIELD}}",
                        f"the function stands at {place_of(self.function)}",
                    ),
                )


class _OfProblem(_Function):
    """``fn(problem, completion)``."""

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one completion."""
        return _verdict(self.function(problem, completion))


class _OfText(_Function):
    """``fn(text, answer)``."""

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one completion."""
        fields = {
            name: value
            for name, value in problem.spec.items()
            if name != "text" and (self.every_field or name in self.taken)
        }
        return _verdict(self.function(text=completion.text, **fields))


class _OfGroup(_Function):
    """``fn(prompts, completions, **columns)``."""

    def verify_group(self, problem: Problem, completions: Sequence[Completion]) -> list[Verdict]:
        """Judge the completions of one problem."""
        n = len(completions)
        arguments: dict[str, list[Any]] = {
            name: [value] * n for name, value in problem.spec.items()
        }
        prompt: Any = problem.prompt
        answers: list[Any] = [answer.text for answer in completions]
        if not isinstance(prompt, str):  # the form in which TRL passes conversations
            prompt = [{"role": turn.role, "content": turn.content} for turn in prompt]
            answers = [[{"role": "assistant", "content": text}] for text in answers]
        arguments |= {
            "prompts": [prompt] * n,
            "completions": answers,
            "completion_ids": [list(answer.token_ids) for answer in completions],
        }
        if not self.every_field:
            arguments = {name: value for name, value in arguments.items() if name in self.taken}
        values = self.function(**arguments)
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise TypeError(f"returned {type(values).__name__}, not a list of numbers")
        values = list(values)  # an array, a tensor or a generator is accepted
        if len(values) != n:
            raise ValueError(f"returned {len(values)} numbers for {n} completions")
        return [
            Verdict(None, "unscorable", detail="the reward function gave None")
            if answer is None
            else _verdict(answer)
            for answer in values
        ]


def _verdict(value: Any) -> Verdict:
    """Convert a returned value to a verdict."""
    if isinstance(value, Verdict):
        return value
    if type(value).__name__ in ("bool", "bool_"):  # NumPy's too
        return Verdict(float(value), passed=bool(value))
    if value is None or isinstance(value, str):
        raise TypeError(f"returned {type(value).__name__}, not a number")
    return Verdict(value)  # like every verdict, it is checked to be a finite number


def _form(function: Callable[..., Any]) -> tuple[Form, list[inspect.Parameter]]:
    refuse_coroutine("reward", function)
    where = place_of(function)
    parameters = list(inspect.signature(function).parameters.values())
    names = {p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    fits: list[Form] = []
    if {"problem", "completion"} <= names:
        fits.append("problem")
    if "completions" in names:
        fits.append("group")
    if "text" in names:
        fits.append("text")
    forms = f"write it in one of these forms: {'; '.join(_FORMS)}"
    written = f"{function.__name__}{inspect.signature(function)}"
    if len(fits) != 1:
        why = "fits several forms" if fits else "has the parameters of no form"
        raise ConfigError(f"the reward function {written} {why}", where=where, remedy=forms)
    odd = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)]
    if fits[0] == "problem":
        more = {"problem", "completion"}
        odd += [p.name for p in parameters if p.name not in more and p.default is p.empty]
    if odd:
        raise ConfigError(
            f"the reward function {written} has parameters that cannot be given by name: "
            f"{', '.join(dict.fromkeys(odd))}",
            where=where,
            remedy=forms,
        )
    return fits[0], parameters


def _fields(form: Form, parameters: Sequence[inspect.Parameter]) -> tuple[str, ...]:
    """Return the fields of the spec that a function requires."""
    if form == "problem":
        return ()
    given = _GROUP if form == "group" else ("text",)
    return tuple(
        p.name
        for p in parameters
        if p.name not in given and p.default is p.empty and p.kind is not p.VAR_KEYWORD
    )
