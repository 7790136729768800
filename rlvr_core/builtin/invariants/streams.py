"""Invariant ``seeds``: each token is the one that its completion's seed draws.

The seed of a completion is a published function of run seed, problem, policy version, draw and
sample, and an engine whose traits say ``inverts_stream`` draws token t by number t of the seed's
stream, from the cumulative distribution by token id (docs/engines.md). Both are computed again
here, by plain code; so are those of evaluations. The trainer's distribution then says in which
interval that number has to lie: a seed that is another one, a number that is used twice, or a token
drawn from another distribution than the one reported, is outside.

Rounding moves the intervals, so a share of tokens may be outside by ``Slack``. A test bets against
"the numbers are coherent with the tokens", with odds of ``ODDS`` of a false alarm in 1,000 steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Metric
from rlvr_core.builtin.invariants.bets import Bets, Token
from rlvr_core.builtin.invariants.check import Invariant, StepView, Trainer, compute_dtype
from rlvr_core.builtin.invariants.coherent import judged, slack_of
from rlvr_core.builtin.invariants.drawn_tokens import Row, Slack, by_row, tokens_of
from rlvr_core.builtin.invariants.incoherent import no_sample
from rlvr_core.builtin.invariants.moments import (
    WARM_TOKENS,
    TokenScores,
    chosen,
    fresh_groups,
)
from rlvr_core.builtin.invariants.rounding import on_gpu
from rlvr_core.builtin.invariants.seeds import Seeds
from rlvr_core.builtin.invariants.trainer_pass import wrong_pass

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import EvalFinished, Group, GroupsScored, Json, RunStarted
    from rlvr_core.api.services import RunConfig
    from rlvr_core.builtin.invariants.evaluated_in_run import EvaluatedInRun

WARM = 512
"""Tokens up to which every group is looked at after a resumption, as ``WARM_TOKENS`` at first."""


class Streams(Invariant):
    """Tokens are those that their seeds draw.

    Args:
        config: The run's configuration.
        trainer: The policy's trainer.
        seeds: Follows the draws of the sampler.
        scores: Scores of groups under the trainer.
        evaluated: Looks at the completions of evaluations.
    """

    id, phase = "seeds", "before training"
    reports = (
        Metric(
            "seeds/astray",
            "Tokens of the step that the random number of their seed does not draw.",
            "share",
        ),
        Metric("seeds/against", "Evidence against the engine's draws; the run stops at 1.", ""),
    )

    def __init__(
        self,
        config: RunConfig,
        trainer: Trainer,
        seeds: Seeds,
        scores: TokenScores,
        evaluated: EvaluatedInRun,
    ) -> None:
        self._config, self._trainer = config, trainer
        self._seeds, self._scores = seeds, scores
        self._seen = 0
        self._bets, self._evaluated = Bets(), evaluated
        self._again: Bets | None = None
        self._seen_again = 0
        self._found: dict[str, float] = {}

    def run_started(self, event: RunStarted) -> None:
        """Look at every group at first, and once more after a resumption."""
        self._seeds.run_started()
        self._again = Bets() if event.resumed and event.step > 0 else None
        self._seen_again = 0

    def on_groups(self, event: GroupsScored) -> None:
        """Check the tokens of a step; raises ``RunError`` if their seeds do not draw them."""
        self._found = {}
        self._seeds.on_groups(event)
        those = fresh_groups(event)
        groups = chosen(those, event.step, warm=self._seen < WARM_TOKENS)
        found, n = self._look(event, groups, self._bets)
        self._seen += n
        if self._again is not None and self._seen_again < WARM:
            # apart from the others, so that the numbers of a resumed run are those of a whole one
            own = {id(group) for group in groups}
            others = tuple(
                group for group in chosen(those, event.step, warm=True) if id(group) not in own
            )
            self._seen_again += n + self._look(event, others, self._again)[1]
        self._found = found

    def evaluated(self, event: EvalFinished) -> None:
        """Check the tokens of an evaluation; raises ``RunError`` as ``on_groups`` does."""
        if wrong := self._evaluated.wrong(event):
            raise self.fault(event.step - 1, *wrong)

    def _look(
        self,
        event: GroupsScored,
        groups: tuple[Group, ...],
        bets: Bets,
    ) -> tuple[dict[str, float], int]:
        """Check the tokens of groups.

        Args:
            event: The step.
            groups: Groups of the policy of now.
            bets: Bets on the groups so far; they are settled.

        Returns:
            Measurements, and how many tokens count as looked at.
        """
        if not groups:
            return {}, 0
        scores_NK = self._scores(groups)
        n = sum(len(member.completion.token_ids) for group in groups for member in group.members)
        if not self._trainer.ranks.main and not self._seeds.exact:
            return {}, n  # another process draws
        slack = self._slack()
        tokens = self._tokens_of(groups, scores_NK.double(), slack)
        if not tokens:
            return {}, n
        found, wrong = judged(tokens, slack, bets)
        if wrong is not None:
            after = "going on from the checkpoint, " if self._again is not None else ""
            of_trainer = wrong_pass(self._trainer, groups, scores_NK, tokens)
            what, remedy = of_trainer or no_sample(scores_NK.double(), tokens) or wrong
            raise self.fault(event.step, after + what, remedy)
        return found, n

    def _slack(self) -> Slack:
        """Return what rounding may do."""
        sampling = self._config.sampling
        return slack_of(
            compute_dtype(self._trainer),
            on_gpu=on_gpu(self._trainer.model),
            temperature=self._trainer.temperature,
            truncated=sampling.top_k > 0 or sampling.top_p < 1,
        )

    def _tokens_of(
        self,
        groups: Sequence[Group],
        scores_NK: Tensor,
        slack: Slack,
    ) -> list[Token]:
        """Return the tokens of the groups with what their seeds make of them."""
        rows = by_row(groups, scores_NK)
        found: list[Token] = []
        first = 0
        for group in groups:
            own = rows[first : first + len(group.members)]
            found += self._best_fit(group, own, first, slack)
            first += len(group.members)
        return found

    def _best_fit(
        self,
        group: Group,
        rows: Sequence[Row],
        first: int,
        slack: Slack,
    ) -> list[Token]:
        """Return the tokens of a group as those of the draw and the version that fit best."""
        best: list[Token] = []
        for version in self._seeds.versions(group):
            draws = self._seeds.draws(group)
            fits = [self._fit(group, rows, draw, version, first, slack) for draw in draws]
            best = max([best, *fits], key=lambda tokens: sum(token.inside for token in tokens))
            if all(token.inside for token in best):
                break
        return best

    def _fit(
        self,
        group: Group,
        rows: Sequence[Row],
        draw: int,
        version: int,
        first: int,
        slack: Slack,
    ) -> list[Token]:
        """Return the tokens of a group, whose first row is given, as of a draw under a version."""
        seeds = [self._seeds.of(group, version, draw, sample) for sample in range(len(rows))]
        return tokens_of(group, rows, seeds, (first, self._seeds.place(group)), slack)

    def end(self, view: StepView) -> Mapping[str, float]:
        """Return the step's measurements."""
        return self._found

    def state_dict(self) -> dict[str, Json]:
        """Return the evidence so far, and of how many tokens it is."""
        wealth: dict[str, Json] = dict(self._bets.wealth)
        return {"wealth": wealth, "seen": self._seen, "evaluations": self._evaluated.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore it."""
        self._bets = Bets(state["wealth"])
        self._evaluated.load_state_dict(state.get("evaluations") or {})
        seen = state["seen"]
        self._seen = seen[0] if isinstance(seen, list) else seen  # of 0.2.0, of two kinds of tokens
