"""A complete rlvr plugin with an environment: guessing a number, told higher or lower."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rlvr_core.api import (
    ComponentConfig,
    Done,
    Message,
    Observation,
    Problem,
    Registrar,
    Reply,
    Verdict,
    hookimpl,
)


@hookimpl
def register_environments(registrar: Registrar) -> None:
    """Add our environment; it becomes ``guess/number``."""
    registrar.add("number", "rlvr_guess:Number", summary="Guess a number; told higher or lower.")


@hookimpl
def register_datasets(registrar: Registrar) -> None:
    """Add problems for it."""
    registrar.add("games", "rlvr_guess:Games", summary="Games of guessing a number.")


class Games:
    """Problems that ``guess/number`` plays."""

    class Config(ComponentConfig):
        """Options of ``guess/games``."""

        n: int = 100
        """How many games."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the games."""
        for i in range(self.config.n):
            yield Problem(
                id=f"game_{i}",
                prompt="I think of a number from 1 to 100. Which?\n",
                verifier="env/environment",
                spec={},
                dataset="guess/games",
                environment="guess/number",
                stop=("\n",),
            )


@dataclass
class Game:
    """The state of one conversation."""

    secret: int
    guesses: int = 0


class Number:
    """Thinks of a number and says whether it is higher or lower than the guess."""

    class Config(ComponentConfig):
        """Options of ``guess/number``."""

        highest: int = 100
        """The largest number it thinks of."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def start(self, problem: Problem, seed: int) -> Game:
        """Think of a number: the same one for all completions of a draw."""
        return Game(random.Random(seed).randint(1, self.config.highest))

    def step(self, game: Game, reply: Reply) -> Observation | Done:
        """Answer a guess, or say that the game is over."""
        game.guesses += 1
        found = re.search(r"\d+", reply.text)
        if found is None:
            return Done(Verdict(0.0, passed=False, detail="not a number"))
        guess = int(found[0][:9])
        if guess == game.secret:
            return Done(Verdict(1.0, passed=True, detail=f"{game.guesses} guesses"))
        hint = "higher" if guess < game.secret else "lower"
        return Observation((Message("user", f"{hint}\n"),), {hint: 1})
