"""Given answers as rows to train on: which ones a step takes, and how they become tokens.

The order is one of seeded epochs and a pure function of the step, so that resuming needs no state.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Complaint, DataError, DatasetLoader, Demonstrator, Loss, Problem, Source
from rlvr_core.data.load import audit, counted, is_heldout, problems_given
from rlvr_core.step.batch import Row

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr_core.config.model import ComponentRef, RunConfig, SplitSection
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.config.tree import Loc
    from rlvr_core.data.prompts import Renderer

DEMONSTRATED = 20_000
"""Answers asked of a data set that makes them up."""
_SHOWN = 5


def load_answers(
    loader: DatasetLoader, target: str | None, seed: int, where: str
) -> list[tuple[Problem, str]]:
    """Problems of a data set with the answer to imitate.

    Args:
        loader: The data set.
        target: Field of the spec that holds the answer; None for answers it demonstrates.
        seed: The run's seed.
        where: Where the user named it.

    Raises:
        DataError: If there are no answers, or a problem lacks one.
        PluginError: If the data set gives something that is no problem.
    """
    if target is None:
        if not isinstance(loader, Demonstrator):
            raise DataError(
                f"{type(loader).__name__} demonstrates no answers of its own",
                where=where,
                remedy="set the loss's option 'target' to the field that holds the answer",
            )
        shown = list(loader.demonstrations(DEMONSTRATED, seed))
        if not shown:
            raise DataError(f"{type(loader).__name__} demonstrates no answers", where=where)
        return shown
    answers, faults = [], []
    for problem in problems_given(loader.load(), type(loader).__name__, "load()", where):
        answer = problem.spec.get(target)
        if isinstance(answer, str) and answer:
            answers.append((problem, answer))
        else:
            known = ", ".join(map(str, problem.spec)) or "none"
            what = f"{problem.id}: no answer in field '{target}'; fields there are: {known}"
            faults.append(Complaint(what, where))
    if len(faults) > _SHOWN:
        faults[_SHOWN:] = [Complaint(f"and {len(faults) - _SHOWN} more like these", where)]
    if faults or not answers:
        raise DataError.collect(faults or [Complaint("the data set has no problems", where)])
    return answers


def answered(answers: Sequence[tuple[Problem, str]]) -> list[Problem]:
    """Return problems that contain the answer to imitate, to fingerprint them."""
    return [
        replace(problem, spec={**problem.spec, "answer to imitate": answer})
        for problem, answer in answers
    ]


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """Answers to imitate.

    Attributes:
        answers: Problems, each with its answer.
        rows_per_step: How many a step takes.
        seed: The run's seed.
        renderer: The one way from problem to prompt.
        tokenizer: The run's tokenizer.
    """

    answers: Sequence[tuple[Problem, str]]
    rows_per_step: int
    seed: int
    renderer: Renderer
    tokenizer: PreTrainedTokenizerBase

    @property
    def fingerprint(self) -> Mapping[str, object]:
        """Count and hash of the answers, for ``run.json``."""
        return counted(answered(self.answers))

    def rows(self, step: int) -> list[Row]:
        """Return the rows of one step, over all processes, from epochs in a seeded order."""
        first = step * self.rows_per_step
        return [self._row(*self._at(first + i)) for i in range(self.rows_per_step)]

    def _at(self, place: int) -> tuple[Problem, str]:
        epoch, index = divmod(place, len(self.answers))
        return self.answers[_order(len(self.answers), self.seed, epoch)[index]]

    def _row(self, problem: Problem, answer: str) -> Row:
        """The answer ends with the end-of-sequence token: a model must learn to stop."""
        tokenizer: Any = self.tokenizer
        ids = (*tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id)
        n = len(ids)
        return Row(self.renderer.render(problem), ids, (True,) * n, (0.0,) * n, 0.0)


@lru_cache(maxsize=2)
def _order(n: int, seed: int, epoch: int) -> list[int]:
    order = list(range(n))
    random.Random(f"demonstrations {seed} {epoch}").shuffle(order)
    return order


class GivenAnswers:
    """Load the given answers of each loss: its own ``data``, else the run's.

    Args:
        resolved: The run's configuration.
        losses: Its losses by their place.

    Attributes:
        lines: For the user: what each loss imitates. Complete once ``demonstrations`` was called.

    Raises:
        DataError: If there are no answers, or a problem lacks one.
    """

    def __init__(self, resolved: Resolved, losses: Mapping[Loc, Loss]) -> None:
        self._config = resolved.config
        self._traits = {
            loc: loss.traits.answers
            for loc, loss in losses.items()
            if loss.traits.answers is not None
        }
        self._answers = {loc: self._load(resolved, loc) for loc in self._traits}
        self.lines: list[str] = []

    def _load(self, resolved: Resolved, loc: Loc) -> list[tuple[Problem, str]]:
        config, target = self._config, self._traits[loc].target
        loaded: list[tuple[Problem, str]] = []
        for place, ref, split in _sources(config, loc):
            loader = resolved.build("dataset", ref)
            answers = load_answers(loader, target, config.run.seed, resolved.where(place))
            loaded += [
                (problem, answer)
                for problem, answer in answers
                if split is None or not is_heldout(problem.id, split)
            ]
        return loaded

    def problems(self) -> dict[str, list[Problem]]:
        """Return the problems that are trained on, by a name for messages."""
        by_name: dict[str, list[Problem]] = {}
        for loc, pairs in self._answers.items():
            name = f"the answers of {self._config.losses[loc].use}"
            by_name.setdefault(name, []).extend(problem for problem, _ in pairs)
        return by_name

    def demonstrations(
        self, renderer: Renderer, tokenizer: PreTrainedTokenizerBase
    ) -> dict[Loc, Demonstrations]:
        """The rows of each loss, without those whose prompts are too long.

        Raises:
            DataError: If too many are.
        """
        by_loss: dict[Loc, Demonstrations] = {}
        section, seed = self._config.data, self._config.run.seed
        for loc, pairs in self._answers.items():
            use, per_step = self._config.losses[loc].use, self._traits[loc].rows_per_step
            source = Source(f"the answers of {use}", tuple(problem for problem, _ in pairs))
            (kept,), report = audit(
                [source], renderer, section.max_prompt_tokens, section.max_overlong_share
            )
            short = {id(problem) for problem in kept.problems}
            pairs = [pair for pair in pairs if id(pair[0]) in short]
            by_loss[loc] = Demonstrations(pairs, per_step, seed, renderer, tokenizer)
            self.lines.append(f"{use}: {len(pairs)} answers, {per_step} a step")
            self.lines += [f"{use}: {line}" for line in report.lines]
        return by_loss


def _sources(config: RunConfig, loc: Loc) -> list[tuple[Loc, ComponentRef, SplitSection | None]]:
    """Return the sources of a loss's answers, each with its held-out split."""
    dataset = config.losses[loc].data
    if dataset is not None:
        return [((*loc, "data"), dataset, None)]
    return [(("data", "sources", i), ref, ref.split) for i, ref in enumerate(config.data.sources)]
