"""The answers that the losses of a run imitate: loaded, cut to the prompt limit, and recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlvr_core.api import Loss, Problem, Source
from rlvr_core.data.load import audit, is_heldout
from rlvr_core.demonstrations.demonstrations import Demonstrations, load_answers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr_core.config.model import ComponentRef, RunConfig, SplitSection
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.config.tree import Loc
    from rlvr_core.data.prompts import Renderer


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
        """What is trained on, by a name for messages."""
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
    """Where the answers of a loss come from, and what each source holds out."""
    dataset = config.losses[loc].data
    if dataset is not None:
        return [((*loc, "data"), dataset, None)]
    return [(("data", "sources", i), ref, ref.split) for i, ref in enumerate(config.data.sources)]
