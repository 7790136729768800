"""The smallest task for the tools of ``bs4/web``: a tiny model learns it on a CPU in minutes.

One page of a few numbers, another one in every conversation, and a question about one of them: the
answer cannot be known, only read off by a program that is run in the sandbox. Tools, sandbox and
grade are those of ``bs4/web``; the prompt is the question alone, as the model was shown how to
work before.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rlvr_bs4.schema import INTEGER
from rlvr_bs4.task import Task
from rlvr_bs4.web.environment import Web
from rlvr_bs4.web.record import Conversation
from rlvr_bs4.web.tools import RUN
from rlvr_core import (
    ComponentConfig,
    DataError,
    EvalReport,
    Group,
    NoConfig,
    Problem,
    SamplingParams,
    ToolCall,
    tool_format,
)
from rlvr_core.types import Json

DATASET = ENVIRONMENT = "bs4/tiny"
URL = "https://site.example/"
MAX_TOKENS = 160
"""Cap on a conversation: room for a program, what it prints and the answer, and a slip."""
CAREFUL = 0.25
"""Share of demonstrations in the second half that look at the page; the others there guess."""
SLIP = 0.05
"""How often such a demonstration reads another element."""
ITEMS = 4
_FORMAT = tool_format("hermes")
_STOP = "</tool_call>"
_KINDS = "red big old shy sad new dry hot wet raw odd tan bad tiny"
_THINGS = "cats dogs cows hens bees ants bats owls rats pigs jars cups"


class Tiny:
    """Questions ``How many red cats?`` about a page, and conversations that answer them.

    A kind and a thing belong to one split together, by a hash of both.
    """

    class Config(ComponentConfig):
        """Options of ``bs4/tiny``."""

        split: Literal["train", "heldout"] = "train"
        """``train`` has about four fifths of the questions, ``heldout`` the rest."""
        n: Annotated[int, Field(gt=0)] | None = None
        """How many problems; null gives all of the split."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems of the split, in a fixed order."""
        names = _names(heldout=self.config.split == "heldout")
        random.Random("order").shuffle(names)
        yield from map(_problem, names[: self.config.n])

    def demonstrations(self, n: int, seed: int) -> Iterator[tuple[Problem, str]]:
        """Yield ``n`` training problems, each with a conversation as one text.

        The first half runs a program, the second half mostly guesses: a model trained on them in
        order knows how to use the page and seldom does.
        """
        names = _names(heldout=False)
        rng = random.Random(f"demonstrations {seed}")
        for index in range(n):
            name = rng.choice(names)
            careful = index < n // 2 or rng.random() < CAREFUL
            number = rng.randint(10, 99)
            asked = rng.choice(names) if rng.random() < SLIP else name
            before = f"{program(asked)}{_response(str(number))}" if careful else ""
            yield _problem(name), f"\n{before}{answer(number)}"


class TinyWeb(Web):
    """The tools of ``bs4/web`` on a page that is drawn anew for every conversation."""

    class Config(Web.Config):
        """Options of ``bs4/tiny``, those of ``bs4/web``."""

        format: Literal["hermes"] = "hermes"
        """How calls are written."""
        prompt: Literal["text"] = "text"
        """Text without a chat template."""
        max_calls: Annotated[int, Field(gt=0)] = 4
        """Programs, moves and unreadable calls that are carried out; as many free ones."""

    def task(self, spec: Mapping[str, Json], where: str) -> Task:
        """The page of a conversation, and what is asked about it.

        Raises:
            DataError: If ``of`` or the seed is missing.
        """
        of, seed = spec.get("of"), spec.get("seed")
        if not (isinstance(of, str) and isinstance(seed, int)):
            raise DataError(f"{where}: bs4/tiny needs a text in field 'of' and a number in 'seed'")
        return _task(of, seed)

    def present(self, problem: Problem) -> Problem:
        """The problem with what ends a turn: a call is answered before anything is added to it."""
        return replace(problem, stop=(*problem.stop, _STOP))

    def start(self, problem: Problem, seed: int) -> Conversation:
        """See ``Environment.start``; the numbers on the page are the seed's."""
        return Conversation({**problem.spec, "seed": seed}, [URL], [URL])


class TinyHeldout:
    """Questions that are never trained on, sampled at temperature 1 as in training."""

    Config: ClassVar = NoConfig
    n = 4
    sampling = SamplingParams(temperature=1.0, max_tokens=MAX_TOKENS)

    def __init__(self, config: NoConfig) -> None:
        del config

    def problems(self) -> list[Problem]:
        """The problems, the same ones at every call."""
        return list(Tiny(Tiny.Config(split="heldout")).load())

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Share of right answers, and of conversations in which a program looked at the page."""
        members = [member for group in groups for member in group.members]
        passed = [member.passed for member in members if member.passed is not None]
        parts = [verdict.parts for member in members for verdict in member.verdicts.values()]
        looked = [part["looked"] for part in parts if "looked" in part]
        metrics = {"accuracy": fmean(passed)} if passed else {}
        return EvalReport(metrics | ({"looked": fmean(looked)} if looked else {}), len(groups))


def program(name: str) -> str:
    """The call that reads a number off the page."""
    code = f"print(make_soup().find(id='{name.replace(' ', '-')}').text)"
    return _FORMAT.render(ToolCall(RUN.name, {"code": code}))


def answer(number: int) -> str:
    """The final answer."""
    return json.dumps({"status": "ok", "answer": number})


def _names(*, heldout: bool) -> list[str]:
    names = [f"{kind} {thing}" for kind in _KINDS.split() for thing in _THINGS.split()]
    return [
        name for name in names if (hashlib.sha256(name.encode()).digest()[0] % 5 == 0) == heldout
    ]


def _task(name: str, seed: int) -> Task:
    rng = random.Random(f"{seed} {name}")
    others = [one for heldout in (False, True) for one in _names(heldout=heldout) if one != name]
    shown = rng.sample(others, ITEMS - 1)
    shown.insert(rng.randrange(ITEMS), name)
    numbers = rng.sample(range(10, 100), ITEMS)
    items = [
        f'<b id="{one.replace(" ", "-")}">{n}</b>' for one, n in zip(shown, numbers, strict=True)
    ]
    return Task(
        archetype="tiny",
        seed=seed,
        size="bare",
        question=_question(name),
        schema=INTEGER,
        answer=numbers[shown.index(name)],
        limit=None,
        pages={URL: f"<p>{' '.join(items)}</p>\n"},
        start=URL,
    )


def _question(name: str) -> str:
    return f"How many {name}?"


def _problem(name: str) -> Problem:
    return Problem(
        id=f"tiny_{name.replace(' ', '_')}",
        prompt=_question(name),
        verifier="core/environment",
        spec={"of": name, "seed": 0},
        dataset=DATASET,
        max_tokens=MAX_TOKENS,
        environment=ENVIRONMENT,
    )


def _response(text: str) -> str:
    return f"\n<tool_response>\n{text}\n</tool_response>\n"
