"""A prepared run under examination, before any model is loaded; each fact is measured once."""

from __future__ import annotations

import json
import random
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Completion, GivesGold, Problem, Verdict
from rlvr_core.toolkit import outcome

if TYPE_CHECKING:
    from rlvr_core.config.model import RunConfig
    from rlvr_core.run.inputs import Inputs

RENDERED = 256
"""Number of prompts to check token by token."""
TRIED = 24
"""Number of problems whose references are judged."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A right response to a problem, from its verifier.

    Attributes:
        problem: The problem.
        response: A whole response that should pass.
        verdict: The verdict on it.
    """

    problem: Problem
    response: str
    verdict: Verdict

    @property
    def answer(self) -> str:
        """The answer in the response."""
        return (self.verdict.extracted or self.response).strip()

    @property
    def passes(self) -> bool:
        """Whether the verifier passes it."""
        return bool(outcome(self.verdict))


@dataclass
class Subject:
    """A prepared run.

    Attributes:
        prepared: The run.
        limits: The user's configuration, whose limits apply.
    """

    prepared: Inputs
    limits: RunConfig

    @property
    def config(self) -> RunConfig:
        """The examined configuration."""
        return self.prepared.config

    @cached_property
    def problems(self) -> list[Problem]:
        """The training problems."""
        return list(self.prepared.problems.values())

    @property
    def held_out(self) -> dict[str, tuple[Problem, ...]]:
        """The problems of each eval task."""
        return dict(self.prepared.evaluations.held_out)

    @property
    def tokenizer(self) -> Any:
        """The run's tokenizer."""
        return self.prepared.tokenizer

    @cached_property
    def sample(self) -> list[Problem]:
        """A fixed sample of problems of every data set."""
        return self.spread(RENDERED)

    def spread(self, n: int) -> list[Problem]:
        """Return up to n problems, equally many of each data set; always the same ones."""
        by_set: dict[str, list[Problem]] = {}
        for problem in self.problems:
            by_set.setdefault(problem.dataset, []).append(problem)
        each = max(1, n // len(by_set))
        rng = random.Random(f"{self.config.run.seed}:doctor")
        return [
            problem
            for some in by_set.values()
            for problem in rng.sample(some, min(each, len(some)))
        ]

    @cached_property
    def rendered(self) -> list[tuple[Problem, tuple[int, ...]]]:
        """The sampled problems with the tokens of their prompts."""
        render = self.prepared.renderer.render
        return [(problem, render(problem)) for problem in self.sample]

    @cached_property
    def references(self) -> list[Reference]:
        """Right responses to some problems, judged; none where the verifier knows none."""
        waiting = []
        for problem in self.spread(TRIED):
            gold = self.gold(problem)
            if problem.environment is None and gold is not None:
                waiting.append((problem, gold, self.verdicts(problem, [gold])))
        return [
            Reference(problem, gold, future.result(self.patience)[0][self.main(problem)])
            for problem, gold, future in waiting
        ]

    def gold(self, problem: Problem) -> str | None:
        """Return a response that the problem's verifier calls right; None if it knows none."""
        verifier = self.prepared.judge.plan.verifiers[self.main(problem)]
        return verifier.gold(problem) if isinstance(verifier, GivesGold) else None

    @cached_property
    def skeleton(self) -> Any:
        """The model without weights, with the configured attention."""
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        section, path = self.config.model, self.prepared.model_path
        trust = section.trust_remote_code
        config = AutoConfig.from_pretrained(
            path, revision=section.revision, trust_remote_code=trust
        )
        auto: Any = AutoModelForCausalLM
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return auto.from_config(
                config, attn_implementation=section.attention, trust_remote_code=trust
            )

    @property
    def patience(self) -> float:
        """Seconds to wait for verdicts: a worker may have to start first."""
        return min(60.0 + 8 * self.config.verify.timeout, self.config.run.timeout)

    def verdicts(self, problem: Problem, responses: Sequence[str]) -> Any:
        """Submit responses to one problem to the run's pool."""
        return self.prepared.judge.submit(problem, [Completion.from_text(t) for t in responses])

    def main(self, problem: Problem) -> str:
        """Return the verifier that decides a problem's outcome."""
        return self.prepared.judge.plan.main_name(problem)


def by_prompt(problems: Iterable[Problem]) -> list[list[Problem]]:
    """Group the problems that repeat the prompt of another, and its world in a conversation."""
    groups: dict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        # the world of a conversation is in the spec, so the prompt alone is not the whole question
        world = json.dumps(dict(problem.spec), sort_keys=True) if problem.environment else ""
        groups[" ".join(text_of(problem).casefold().split()) + world].append(problem)
    return [group for group in groups.values() if len(group) > 1]


def text_of(problem: Problem) -> str:
    """Return a prompt as one text."""
    if isinstance(problem.prompt, str):
        return problem.prompt
    return "\n".join(turn.content for turn in problem.prompt)
