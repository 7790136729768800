"""Data sets, samplers, verifiers and environments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

from rlvr_core.api.completions import Completion, Done, Observation, Reply
from rlvr_core.api.problems import Draw, Drop, Extend, Json, Keep, Outcome, Problem
from rlvr_core.api.rollouts import Group
from rlvr_core.api.verdicts import Verdict


@runtime_checkable
class DatasetLoader(Protocol):
    """Gives the problems of a data set, the same ones in the same order at each call."""

    def load(self) -> Iterable[Problem]:
        """Yield the problems.

        Raises:
            DataError: If a row is unusable; names the file and row.
            MachineError: If the data cannot be reached.
        """


@runtime_checkable
class Demonstrator(Protocol):
    """A dataset loader that also has example answers, for the warm start of a tiny model."""

    def demonstrations(self, n: int, seed: int) -> Iterable[tuple[Problem, str]]:
        """Yield ``n`` training problems, each with one demonstrated completion."""


@runtime_checkable
class Sampler(Protocol):
    """Chooses which problems, how many completions of each, and which groups are kept.

    ``rlvr_core.rollout.samplers.base.SamplerBase`` has all of it but the choice of problems.

    It must be deterministic in its arguments: if several processes train together, each holds a
    copy that gets the same calls, takes its share of the draws, and decides on its own groups with
    ``observe``, which changes no state.

    Its traits are ``SamplerTraits``.
    """

    prompts_per_step: int
    """The value passed to ``start``."""

    def start(self, sources: Sequence[Source], *, n: int, prompts_per_step: int, seed: int) -> None:
        """Begin a run over these sources.

        Args:
            sources: The loaded data, in config order.
            n: Completions per problem, from ``sampling.n``.
            prompts_per_step: Problems whose groups a step trains on, from
                ``train.prompts_per_step``.
            seed: The run's seed.
        """

    def draw(self, n_problems: int, *, step: int) -> list[Draw]:
        """Return the next problems of this step, at most ``n_problems``."""

    def observe(self, group: Group) -> Keep | Drop | Extend:
        """Decide what happens to a group; after an extension, with the new completions in it."""

    def update(self, outcomes: Sequence[Outcome]) -> None:
        """Process the outcomes of the groups of one ``draw``, in the order they were drawn.

        With ``train.max_staleness`` above 0, only of groups that have been decided on.
        """

    def refill(self, kept: int, drawn: int) -> int:
        """Return how many more problems to draw in this step, by its groups so far."""

    def metrics(self) -> dict[str, float]:
        """Numbers for the step's line, under ``sampler/``."""

    def state_dict(self) -> dict[str, Json]:
        """Return everything that ``load_state_dict`` needs to continue exactly."""

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue where ``state_dict`` was taken; called after ``start``."""


@dataclass(frozen=True, slots=True)
class Source:
    """Problems of one entry of ``data.sources``.

    Attributes:
        name: Full name of its dataset loader.
        problems: Its problems, over-long ones already taken out.
        weight: Share of draws, relative to the other sources; None for its share of problems.
        order: ``shuffle``, ``sequential``, or where a file of ids lies; None when not said.
        count: How many of its problems to use; None for all.
        left_out: Ids of the over-long problems.
    """

    name: str
    problems: tuple[Problem, ...]
    weight: float | None = None
    order: str | None = None
    count: int | None = None
    left_out: tuple[str, ...] = ()


@runtime_checkable
class Verifier(Protocol):
    """Judges completions. Pure, synchronous and picklable; it runs in a worker process.

    It may also have the methods of ``ChecksProblems``, ``GivesGold`` and ``LimitsTime``, and state
    its ``VerifierTraits``.
    """

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one completion."""


@runtime_checkable
class GroupVerifier(Protocol):
    """A verifier that judges all completions of a group in one call; see ``Verifier`` for the rest.

    One without ``verify`` may compare the completions with each other: its verdicts on a group are
    never replaced by verdicts on single completions. One that also defines ``verify`` must give the
    same verdicts both ways.
    """

    def verify_group(self, problem: Problem, completions: Sequence[Completion]) -> list[Verdict]:
        """Judge the completions of one problem: a verdict for each, in their order."""


@runtime_checkable
class Environment(Protocol):
    """Turns a problem into a conversation: answers what the model writes, until it is done.

    It runs in worker processes, which are killed when a call takes too long, so its methods are
    plain functions. What it must remember of a conversation is the state: any object that can be
    pickled. Only the state is kept between calls, since the next call may come in another
    process. All conversations about one draw of a problem are started with the same seed.

    It may also have the methods of ``PresentsProblems`` and ``ChecksProblems``, which are called in
    the trainer's process when data is loaded, and of ``JudgesUnfinished``, ``ClosesConversations``
    and ``LimitsTime``.
    """

    def start(self, problem: Problem, seed: int) -> Any:
        """Return the state of a new conversation."""

    def step(self, state: Any, reply: Reply) -> Observation | Done:
        """Answer the model, and bring the state up to date in place.

        What the model did wrong is answered by an observation or a verdict. An exception says that
        the environment failed: the conversation is then recorded as failed, and not trained on.
        """


# -- what verifiers and environments may offer beyond that: a method that is there is called -----


@runtime_checkable
class ChecksProblems(Protocol):
    """A verifier or environment that looks at each problem when data is loaded."""

    def check(self, problem: Problem) -> None:
        """Raise ``DataError`` if ``problem.spec`` lacks what is needed."""


@runtime_checkable
class GivesGold(Protocol):
    """A verifier that knows a right answer, for the preflight check."""

    def gold(self, problem: Problem) -> str | None:
        """Return a response that must get the full score; None where there is none."""


@runtime_checkable
class NeedsCalibration(Protocol):
    """A verifier whose scores are a model's: a run measures it before it trains on it."""

    def calibration(self) -> Mapping[str, Any] | None:
        """Return the bounds, as in ``docs/remote-models.md``; None to train without them.

        ``injections`` are texts that ask for the best score where they end a response.
        """


@runtime_checkable
class LimitsTime(Protocol):
    """A verifier or environment whose class sets its own deadline."""

    @staticmethod
    def time_limit(config: Any) -> float:
        """Return the seconds that one call may take, in place of the configured timeout."""


@runtime_checkable
class PresentsProblems(Protocol):
    """An environment that changes the prompt of a problem."""

    def present(self, problem: Problem) -> Problem:
        """Return the problem with the prompt, tools and stop strings for the model."""


@runtime_checkable
class JudgesUnfinished(Protocol):
    """An environment that judges conversations that ended at a limit."""

    def cut(self, state: Any, ended: str) -> Verdict:
        """Return the verdict on a conversation that ended for reason ``ended``; without this: 0."""


@runtime_checkable
class ClosesConversations(Protocol):
    """An environment whose conversations hold resources, such as files or processes."""

    def close(self, state: Any) -> None:
        """Release them; called once for each conversation, whichever way it ended."""


def replacements(share: float, prompts_per_step: int) -> int:
    """Problems that ``refill`` allows in a step."""
    # as it is written: 0.29 * 100 is below 29 in floats
    return int(Fraction(str(share)) * prompts_per_step)
