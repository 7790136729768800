"""Guard ``guards/shadow``: how often verifiers that pay nothing disagree with the one that pays.

A second verifier with weight 0 in ``rewards`` judges every completion and changes no reward. Where
the policy learns to please the first verifier alone, the two drift apart: a reward that is hacked
shows as passes of the first that the second does not grant. Verifiers that do not say what is right
(``VerifierTraits.decides``), such as a filter of texts, are not compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from rlvr_core.api import (
    BaseGuard,
    ComponentConfig,
    Metric,
    RunError,
    VerifierTraits,
    traits_of,
)
from rlvr_core.verify.reward import outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlvr_core.api import GroupsScored, GuardContext


class Shadow(BaseGuard):
    """Compares the outcome of each completion with that of further verifiers; stops nothing."""

    name = "guards/shadow"

    class Config(ComponentConfig):
        """Options of ``guards/shadow``."""

        verifiers: tuple[str, ...] = ()
        """Entries of ``rewards`` to compare with the first one, by their names in it; all others
        that say what is right if empty."""

    reports = (
        Metric(
            "shadow/disagreement/<verifier>",
            "Share of completions in which its outcome is not that of the first reward, of those "
            "that both judged.",
            "share",
        ),
        Metric(
            "shadow/first_alone/<verifier>",
            "Share that passes by the first reward and not by it; rises where the first one is "
            "deceived.",
            "share",
        ),
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._names = config.verifiers
        self._counts: dict[str, Counter[str]] = {}
        self._deciding: frozenset[str] = frozenset()

    def bind(self, context: GuardContext) -> None:
        """Learn which verifiers say what is right."""
        super().bind(context)
        verifiers = context.judge.plan.verifiers.items()
        decides = [
            name for name, verifier in verifiers if traits_of(verifier, VerifierTraits).decides
        ]
        self._deciding = frozenset(decides)

    def on_groups(self, event: GroupsScored) -> None:
        """Count agreements and disagreements of the step.

        Raises:
            RunError: If ``rewards`` has no entry of a given name, or none beside the first that
                says what is right.
        """
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for group in event.groups:
            for member in group.members:
                for name in self._compared(list(member.verdicts)[1:]):
                    passed = outcome(member.verdicts[name])
                    if passed is None or member.passed is None:
                        continue
                    counts[name]["both"] += 1
                    counts[name]["differ"] += passed != member.passed
                    counts[name]["first"] += member.passed and not passed
        self._counts = dict(counts)

    def _compared(self, others: Sequence[str]) -> Sequence[str]:
        names = [name for name in self._names or others if name in self._deciding]
        if not names or len(names) < len(self._names) or not set(names) <= set(others):
            raise RunError(
                f"guard guards/shadow: rewards has no entry '{', '.join(self._names)}' beside the "
                "first that says what is right",
                where="guards",
                remedy=f"it has: {', '.join(others) or 'none'}; add one with weight: 0",
            )
        return names

    def report(self) -> dict[str, float]:
        """Return the shares of the step."""
        shares: dict[str, float] = {}
        for name, count in self._counts.items():
            shares[f"shadow/disagreement/{name}"] = count["differ"] / count["both"]
            shares[f"shadow/first_alone/{name}"] = count["first"] / count["both"]
        return shares
