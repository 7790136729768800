"""Generated commands to answer as a JSON object: a task that a tiny model learns.

``Cool the attic down to 18. JSON:`` is answered by ``{"device": "fan", "room": "attic", "value":
18}`` and judged by ``checks/json``. Nothing in a command names the device: the verb says it.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field

from rlvr_core.api import ComponentConfig, EvalReport, Group, Json, Problem, SamplingParams

DATASET = "checks/commands"
MAX_TOKENS = 48
"""Cap on a completion: the object takes about twenty of the tiny model's tokens."""

WORDINGS = {
    "lamp": ("Dim the {room} to {value}", "Brighten up the {room} to {value}"),
    "heater": ("Warm the {room} to {value}", "Get the {room} as warm as {value}"),
    "fan": ("Cool the {room} down to {value}", "At {value} cool the {room}"),
    "shutter": ("Shade {value} percent of the {room}", "Darken the {room} by {value} percent"),
    "radio": ("Play music in the {room} at {value}", "Set music in the {room} to {value}"),
    "camera": ("Record the {room} for {value} minutes", "For {value} minutes record the {room}"),
    "kettle": ("Make {value} cups of tea in the {room}", "Tea for {value} in the {room}"),
    "robot": ("Sweep the {room} for {value} minutes", "In {value} minutes sweep the {room}"),
}
"""Wordings of a command, by device."""
ROOMS = (
    "attic", "bath", "cellar", "garage", "hall", "kitchen", "office", "porch", "study", "tower",
)  # fmt: skip
VALUES = range(10, 100)
CAREFUL = 0.15
"""Share of right demonstrations in the second half; the others there are careless."""

SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {
        "device": {"enum": list(WORDINGS)},
        "room": {"enum": list(ROOMS)},
        "value": {"type": "integer"},
    },
    "required": ["device", "room", "value"],
    "additionalProperties": False,
}

Command = tuple[str, str, str]
"""A device, one of its wordings, and a room."""


class Commands:
    """Problems that want a command as a JSON object, and demonstrations for a warm start.

    Wording and room together decide the split, whatever the value: in held-out problems they were
    never seen together.
    """

    class Config(ComponentConfig):
        """Options of the generated commands."""

        split: Literal["train", "heldout"] = "train"
        """``train`` has about four fifths of the commands, ``heldout`` the rest."""
        n: Annotated[int, Field(gt=0)] | None = None
        """How many problems; null gives all of the split."""
        seed: Annotated[int, Field(ge=0)] = 0
        """Order of the problems, hence which ``n`` are taken."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems of the split in an order given by the seed."""
        commands = _commands(heldout=self.config.split == "heldout")
        drawn = [(command, value) for command in commands for value in VALUES]
        random.Random(f"order {self.config.seed}").shuffle(drawn)
        for command, value in drawn[: self.config.n]:
            yield _problem(command, value)

    def demonstrations(self, n: int, seed: int) -> Iterator[tuple[Problem, str]]:
        """Yield ``n`` training problems, each with a completion.

        The first half is right, the second mostly careless in one of the ways of ``_careless``: a
        model trained on them in order can write right answers but rarely does.
        """
        rng = random.Random(f"demonstrations {seed}")
        commands = _commands(heldout=False)
        for index in range(n):
            command, value = rng.choice(commands), rng.choice(VALUES)
            careful = index < n // 2 or rng.random() < CAREFUL
            answer = _answer(command, value)
            text = json.dumps(answer) if careful else _careless(answer, rng)
            yield _problem(command, value), text


class CommandsHeldout:
    """Unseen pairs of wording and room, sampled at temperature 1 as in training."""

    class Config(ComponentConfig):
        """Options of the held-out commands."""

        n_problems: Annotated[int, Field(gt=0)] = 256
        """How many problems, of some thousands."""

    n = 1
    sampling = SamplingParams(temperature=1.0, max_tokens=MAX_TOKENS)

    def __init__(self, config: Config) -> None:
        self.config = config

    def problems(self) -> list[Problem]:
        """Return the problems, the same ones at every call."""
        return list(Commands(Commands.Config(split="heldout", n=self.config.n_problems)).load())

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Return the share of right answers."""
        passed = [
            member.passed
            for group in groups
            for member in group.members
            if member.passed is not None
        ]
        return EvalReport({"accuracy": fmean(passed)} if passed else {}, len(groups))


class CommandsHeldoutGreedy(CommandsHeldout):
    """Held-out problems, answered greedily."""

    sampling = SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS)


def _commands(*, heldout: bool) -> list[Command]:
    """Return the commands of a split, without their values."""

    def held_out(wording: str, room: str) -> bool:
        return hashlib.sha256(f"{wording} {room}".encode()).digest()[0] % 5 == 0

    return [
        (device, wording, room)
        for device, wordings in WORDINGS.items()
        for wording in wordings
        for room in ROOMS
        if held_out(wording, room) == heldout
    ]


def _answer(command: Command, value: int) -> dict[str, Json]:
    device, _, room = command
    return {"device": device, "room": room, "value": value}


def _problem(command: Command, value: int) -> Problem:
    device, wording, room = command
    number = WORDINGS[device].index(wording) + 1
    return Problem(
        id=f"command_{device}{number}_{room}_{value}",
        prompt=f"{wording.format(room=room, value=value)}. JSON:\n",
        verifier="checks/json",
        spec={"schema": SCHEMA, "answer": _answer(command, value)},
        dataset=DATASET,
        max_tokens=MAX_TOKENS,
    )


def _careless(answer: dict[str, Json], rng: random.Random) -> str:
    """Write a right answer in a wrong form."""
    match rng.choices(("number as text", "prose", "other key", "cut off"), (60, 15, 15, 10))[0]:
        case "number as text":
            return json.dumps({name: str(value) for name, value in answer.items()})
        case "prose":
            return " ".join(map(str, answer.values()))
        case "other key":
            return json.dumps({("where" if k == "room" else k): v for k, v in answer.items()})
        case _:
            return json.dumps(answer)[:-1]
