"""The smallest task for the tools of ``bs4/web``: a tiny model learns it on a CPU in minutes.

One page of a few numbers, another one in every conversation, and a question about one of them: the
answer cannot be known, only read off by a program that is run in the sandbox. Tools, sandbox and
grade are those of ``bs4/web``; the prompt is the question alone, as the model was shown how to
work before.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rlvr_bs4.schema import INTEGER
from rlvr_bs4.task import Task
from rlvr_bs4.web.environment import Web
from rlvr_bs4.web.record import Conversation
from rlvr_bs4.web.tools import RUN
from rlvr_core.api import (
    DataError,
    EvalReport,
    Group,
    Json,
    NoConfig,
    Problem,
    SamplingParams,
    ToolCall,
)
from rlvr_core.plugins.tool_formats import tool_format
from rlvr_env.environments.questions import Questions, response

DATASET = ENVIRONMENT = "bs4/tiny"
URL = "https://site.example/"
MAX_TOKENS = 160
"""Cap on a conversation: room for a program, what it prints and the answer, and a slip."""
ITEMS = 4
_STOP = "</tool_call>"


class Tiny(Questions):
    """Questions ``How many red cats?`` about a page, and conversations that answer them.

    A kind and a thing belong to one split together, by a hash of both.
    """

    KINDS = "red big old shy sad new dry hot wet raw odd tan bad tiny"
    THINGS = "cats dogs cows hens bees ants bats owls rats pigs jars cups"

    def problem(self, name: str) -> Problem:
        """See ``Questions.problem``."""
        return Problem(
            id=f"tiny_{name.replace(' ', '_')}",
            prompt=_question(name),
            verifier="env/environment",
            spec={"of": name, "seed": 0},
            dataset=DATASET,
            max_tokens=MAX_TOKENS,
            environment=ENVIRONMENT,
        )

    def shown(self, name: str, number: int, *, careful: bool) -> str:
        """See ``Questions.shown``."""
        before = f"{program(name)}{response(str(number))}" if careful else ""
        return f"\n{before}{answer(number)}"


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
        """Share of right answers, and of conversations in which a program read the page."""
        members = [member for group in groups for member in group.members]
        passed = [member.passed for member in members if member.passed is not None]
        parts = [verdict.parts for member in members for verdict in member.verdicts.values()]
        looked = [part["looked"] for part in parts if "looked" in part]
        metrics = {"accuracy": fmean(passed)} if passed else {}
        return EvalReport(metrics | ({"looked": fmean(looked)} if looked else {}), len(groups))


def program(name: str) -> str:
    """The call that reads a number off the page."""
    code = f"print(make_soup().find(id='{name.replace(' ', '-')}').text)"
    return tool_format("hermes").render(ToolCall(RUN.name, {"code": code}))


def answer(number: int) -> str:
    """The final answer."""
    return json.dumps({"status": "ok", "answer": number})


def _task(name: str, seed: int) -> Task:
    rng = random.Random(f"{seed} {name}")
    others = [
        other for heldout in (False, True) for other in Tiny.names(heldout=heldout) if other != name
    ]
    shown = rng.sample(others, ITEMS - 1)
    shown.insert(rng.randrange(ITEMS), name)
    numbers = rng.sample(range(10, 100), ITEMS)
    items = [
        f'<b id="{item.replace(" ", "-")}">{n}</b>' for item, n in zip(shown, numbers, strict=True)
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
