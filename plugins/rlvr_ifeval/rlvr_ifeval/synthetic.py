"""Generated constraint problems that a tiny model learns on a CPU within minutes.

Each asks for a few words on a topic under two or three constraints, such as "Write exactly 3 words.
Use only lowercase letters. End with !". Combinations of constraints, not single ones, are held out.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Annotated, Any, Literal

from pydantic import Field

from rlvr_core.api import ComponentConfig, EvalReport, Group, Json, Problem, SamplingParams
from rlvr_ifeval import spec, wordings
from rlvr_ifeval.constraint import Args, Bound, Constraint, ConstraintSet, NoArgs, Positive
from rlvr_ifeval.evals import report
from rlvr_ifeval.text import words
from rlvr_ifeval.verifiers import Constraints

NAME = "ifeval/synthetic"
MAX_TOKENS = 28
CAREFUL = 0.6
"""Share of demonstrations that mind the constraints; the others chat away."""
HEED = 0.9
"""Chance that a careful demonstration follows a constraint."""
_TOPICS = (
    "rain sun wind snow cloud storm river lake sea beach hill stone tree leaf flower grass bird "
    "fish horse cat dog mouse bread milk apple honey table chair door window book song train boat "
    "road bridge"
)
TOPICS = tuple(_TOPICS.split())
ENDS = (".", "!", "?")


class Exactly(Args):  # noqa: D101
    n: Positive


class Mark(Args):  # noqa: D101
    mark: Literal[".", "!", "?"]


def _is_lower(response: str, _: NoArgs) -> bool:
    return response.islower()


def _is_upper(response: str, _: NoArgs) -> bool:
    return response.isupper()


SYNTHETIC = ConstraintSet(
    "synthetic",
    (
        Constraint(
            "exact_words",
            Exactly,
            lambda response, args: len(words(response)) == args.n,
            "Write exactly {n} words.",
        ),
        Constraint(
            "lowercase", NoArgs, lambda text, _: text.islower(), "Use only lowercase letters."
        ),
        Constraint(
            "uppercase", NoArgs, lambda text, _: text.isupper(), "Use only capital letters."
        ),
        Constraint(
            "end",
            Mark,
            lambda response, args: response.rstrip().endswith(args.mark),
            "End with {mark}",
        ),
        Constraint("commas", NoArgs, lambda text, _: "," in text, "Use commas."),
        Constraint("no_commas", NoArgs, lambda text, _: "," not in text, wordings.NO_COMMAS),
    ),
)

Choice = tuple[str, Mapping[str, Any]]
_FAMILIES: tuple[tuple[Choice, ...], ...] = (
    tuple(("exact_words", {"n": n}) for n in (2, 3, 4, 5)),
    (("lowercase", {}), ("uppercase", {})),
    tuple(("end", {"mark": mark}) for mark in ENDS),
    (("commas", {}), ("no_commas", {})),
)


def _combinations() -> list[tuple[Choice, ...]]:
    """Two or three constraints of different families, in a fixed order."""
    return [
        chosen
        for size in (2, 3)
        for families in combinations(_FAMILIES, size)
        for chosen in product(*families)
    ]


def _key(chosen: tuple[Choice, ...]) -> str:
    return "+".join(id + "".join(map(str, args.values())) for id, args in chosen)


def _is_heldout(chosen: tuple[Choice, ...]) -> bool:
    return hashlib.sha256(f"kept {_key(chosen)}".encode()).digest()[0] % 5 == 0


class Verifier(Constraints):
    """The generated constraints, from ``instruction_id_list`` and ``kwargs``."""

    def read(self, given: Mapping[str, Json], where: str) -> tuple[Bound, ...]:
        """The six constraints of the generated problems."""
        return spec.from_lists(given, SYNTHETIC, where)


class Synthetic:
    """Problems with two or three constraints, and demonstrations for a warm start.

    A combination of constraints belongs to one split, whatever the topic: the held-out problems
    ask for combinations that were never trained on.
    """

    class Config(ComponentConfig):
        """Options of the generated constraint problems."""

        split: Literal["train", "heldout"] = "train"
        """``train`` has about four fifths of the combinations, ``heldout`` the rest."""
        n: Annotated[int, Field(gt=0)] | None = None
        """How many problems; null gives all of the split."""
        seed: Annotated[int, Field(ge=0)] = 0
        """Order of the problems, hence which ``n`` are taken."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems of the split in an order given by the seed."""
        heldout = self.config.split == "heldout"
        choices = [
            (chosen, topic)
            for chosen in _combinations()
            if _is_heldout(chosen) == heldout
            for topic in TOPICS
        ]
        random.Random(f"order {self.config.seed}").shuffle(choices)
        for chosen, topic in choices[: self.config.n]:
            yield _problem(chosen, topic)

    def demonstrations(self, n: int, seed: int) -> Iterator[tuple[Problem, str]]:
        """Yield ``n`` training problems, each with a careful or a chatty completion.

        A careful one follows each constraint nine times of ten; a chatty one opens with "Sure!"
        and minds none.
        """
        train = [chosen for chosen in _combinations() if not _is_heldout(chosen)]
        rng = random.Random(f"demonstrations {seed}")
        for _ in range(n):
            chosen, topic = rng.choice(train), rng.choice(TOPICS)
            answer = _careful if rng.random() < CAREFUL else _chatty
            yield _problem(chosen, topic), answer(chosen, topic, rng)


class Heldout:
    """Unseen combinations of constraints, sampled at temperature 1 as in training."""

    class Config(ComponentConfig):
        """Options of the held-out combinations."""

        n_problems: Annotated[int, Field(gt=0)] = 256
        """How many problems, of about 800."""

    n = 1
    sampling = SamplingParams(temperature=1.0, max_tokens=MAX_TOKENS)

    def __init__(self, config: Config) -> None:
        self.config = config

    def problems(self) -> list[Problem]:
        """The problems, the same ones at every call."""
        config = Synthetic.Config(split="heldout", n=self.config.n_problems)
        return list(Synthetic(config).load())

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Share of responses that follow all, and of each constraint."""
        return report(groups, Verifier(Verifier.Config()))


class HeldoutGreedy(Heldout):
    """Held-out problems, answered greedily."""

    sampling = SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS)


def _problem(chosen: tuple[Choice, ...], topic: str) -> Problem:
    bound = [SYNTHETIC.parse(id, args) for id, args in chosen]
    return Problem(
        id=f"if-synthetic_{topic}_{_key(chosen)}",
        prompt=" ".join((f"Topic: {topic}.", *(constraint.wording for constraint in bound))) + "\n",
        verifier=NAME,
        spec={
            "instruction_id_list": [id for id, _ in chosen],
            "kwargs": [dict(args) for _, args in chosen],
        },
        dataset=NAME,
        max_tokens=MAX_TOKENS,
        tags={"constraints": len(chosen)},
    )


@dataclass
class _Style:
    """How an answer is written: what the constraints do not say is left to chance."""

    n: int
    case: Callable[[str], str]
    end: str
    commas: bool


def _careful(chosen: tuple[Choice, ...], topic: str, rng: random.Random) -> str:
    style = _any_style(rng)
    for id, args in chosen:
        if rng.random() >= HEED:
            continue
        match id:
            case "exact_words":
                style.n = args["n"]
            case "end":
                style.end = args["mark"]
            case "lowercase" | "uppercase":
                style.case = str.lower if id == "lowercase" else str.upper
            case _:
                style.commas = id == "commas"
    return _write(style, topic, rng)


def _chatty(chosen: tuple[Choice, ...], topic: str, rng: random.Random) -> str:
    style = _any_style(rng)
    style.n, style.case = rng.randint(4, 7), str.lower
    return "Sure! " + _write(style, topic, rng)


def _any_style(rng: random.Random) -> _Style:
    case = rng.choice((str.lower, str.upper, str.capitalize))
    return _Style(rng.randint(2, 5), case, rng.choice(ENDS), rng.random() < 0.5)


def _write(style: _Style, topic: str, rng: random.Random) -> str:
    others = [word for word in TOPICS if word != topic]
    chosen = [topic, *rng.sample(others, style.n - 1)]
    text = (", " if style.commas else " ").join(chosen)
    return style.case(text) + style.end
