"""A prepared run under examination, before any model is loaded; each fact is measured once."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Completion, GivesGold, Problem, Verdict
from rlvr_core.api.services import outcome
from rlvr_core.builtin.doctor.forms import Written, written

if TYPE_CHECKING:
    from rlvr_core.api.services import Prepared, RunConfig

RENDERED = 256
"""Number of prompts to check token by token."""
TRIED = 48
"""Number of problems whose references are judged."""
FEWEST = 4
"""Minimum problems to try, however slow a verifier is."""
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
ANSWERS = ("answer", "solution", "gold", "target", "reference", "ground_truth", "label")
"""Fields of a problem's spec with a reference, if its verifier offers none."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The right answer to a problem.

    Attributes:
        problem: The problem.
        response: A whole response that should pass; empty if the verifier offers none.
        answer: The answer in it.
        verdict: The verdict on the response; None if it was not judged.
    """

    problem: Problem
    response: str
    answer: str
    verdict: Verdict | None = None


@dataclass
class Subject:
    """A prepared run.

    Attributes:
        prepared: The run.
        limits: The user's configuration, whose limits apply.
        tried: Number of problems whose references are judged.
        seconds: Approximate time that a check may spend on verdicts.
    """

    prepared: Prepared
    limits: RunConfig
    tried: int = TRIED
    seconds: float = 20.0

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

    def cap_of(self, task: str) -> int:
        """Return the tokens that an eval task gives an answer."""
        evaluations: Any = self.prepared.evaluations
        named = next(one for one in evaluations.tasks if one.name == task)
        return int(named.task.sampling.max_tokens)

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
        for one in self.problems:
            by_set.setdefault(one.dataset, []).append(one)
        each = max(1, n // len(by_set))
        rng = random.Random(f"{self.config.run.seed}:doctor")
        return [one for some in by_set.values() for one in rng.sample(some, min(each, len(some)))]

    @cached_property
    def rendered(self) -> list[tuple[Problem, tuple[int, ...]]]:
        """The sampled problems with the tokens of their prompts."""
        render = self.prepared.renderer.render
        return [(one, render(one)) for one in self.sample]

    @cached_property
    def references(self) -> list[Reference]:
        """References of some problems, judged through the run's pool."""
        return self.references_of(self.spread(self.tried))

    def references_of(self, problems: Sequence[Problem]) -> list[Reference]:
        """Return the references of problems; a conversation has none."""
        waiting = []
        for problem in problems:
            if problem.environment is None:
                name = self.main(problem)
                verifier = self.prepared.judge.plan.verifiers[name]
                gold = verifier.gold(problem) if isinstance(verifier, GivesGold) else None
                future = None if gold is None else self.verdicts(problem, [gold])
                waiting.append((problem, name, gold, future))
        references = []
        for problem, name, gold, future in waiting:
            verdict = None if future is None else future.result(self.patience)[0][name]
            answer = (verdict.extracted if verdict else None) or stated(problem) or gold or ""
            references.append(Reference(problem, gold or "", answer.strip(), verdict))
        return references

    @cached_property
    def remote(self) -> frozenset[str]:
        """Verifiers that call a remote model: each verdict costs, so few are requested."""
        first = {self.main(one.problem): one.problem for one in reversed(self.references)}
        waiting = [(name, self.verdicts(problem, [""])) for name, problem in first.items()]
        return frozenset(
            name
            for name, future in waiting
            if future.result(self.patience)[0][name].usage is not None
        )

    def affordable(self, each: int) -> list[Reference]:
        """Return references of local verifiers, as many as can be judged in ``seconds``.

        Args:
            each: Number of verdicts for each reference.
        """
        stats = self.prepared.judge.pool.stats()
        verdict = max((one.seconds / one.calls for one in stats.values() if one.calls), default=0.0)
        budget = self.seconds * self.config.verify.workers
        most = int(budget / (each * verdict)) if verdict else len(self.references)
        local = [one for one in self.references if self.main(one.problem) not in self.remote]
        return local[: max(FEWEST, most)]

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

    @cached_property
    def written(self) -> dict[str, Written]:
        """References without a gold response, in the form in which they pass, by ``pair``."""
        return written(self)

    def pair(self, problem: Problem) -> str:
        """Return data set and verifier of a problem, in words."""
        return f"{problem.dataset} with {self.main(problem)}"

    def main(self, problem: Problem) -> str:
        """Return the verifier that decides a problem's outcome."""
        return self.prepared.judge.plan.main_name(problem)


def stated(problem: Problem) -> str | None:
    """Return the reference in a problem's spec, if it has such a field."""
    for name in ANSWERS:
        value = problem.spec.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
    return None


def passes(verdict: Verdict) -> bool:
    """Whether a verdict counts as passed."""
    return bool(outcome(verdict))


def text_of(problem: Problem) -> str:
    """Return a prompt as one text."""
    if isinstance(problem.prompt, str):
        return problem.prompt
    return "\n".join(turn.content for turn in problem.prompt)
