"""What the guard ``guards/collapse`` says: what was seen, what likely caused it, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_core.api import Json


@dataclass(frozen=True, slots=True)
class Cause:
    """A fault: what was seen, with ``{option}`` for a bound, and what to do about it."""

    what: str
    remedy: str


AT_FIRST = {
    "truncated": "nearly all completions fail and are cut off at the token cap",
    "empty": "nearly all completions are empty",
    "same": "nearly all completions fail with one and the same text",
    "unread": "an answer is found in hardly any completion",
}
"""What is bad from the first step on; the remedies are those of ``CAUSES``."""

CAUSES = {
    "truncated": Cause(
        "more completions fail and are cut off at the token cap than max_truncated = "
        "{max_truncated:.0%} allows",
        "completions do not end: raise sampling.max_tokens, check the end-of-sequence token and "
        "sampling.stop, or add a reward on length",
    ),
    "empty": Cause(
        "more completions have no text than max_empty = {max_empty:.0%} allows",
        "the model ends at once: check the chat template and the end-of-sequence token, then lower "
        "train.lr or raise beta",
    ),
    "unread": Cause(
        "",
        "the format is not the verifier's: look at completions (rlvr show), say the format in the "
        "prompt, check the verifier's options",
    ),
    "extraction": Cause(
        "more than max_extraction_drop = {max_extraction_drop:.0%} of the completions with an "
        "answer that can be read have been lost",
        "the format was lost: look at completions (rlvr show), reward the format, lower train.lr "
        "or raise beta",
    ),
    "same": Cause(
        "more completions fail with one and the same text than max_same = {max_same:.0%} allows",
        "the policy gives one answer to everything: lower train.lr, raise beta, or keep its "
        "entropy up (entropy_control)",
    ),
    "entropy": Cause(
        "entropy/mean is {entropy:.2g} nats, below min_entropy = {min_entropy:g}, and completions "
        "fail",
        "the policy has become certain of wrong answers: keep its entropy up (entropy_control, a "
        "larger clip_high), or lower train.lr",
    ),
    "pass": Cause(
        "more than {max_drop:.0%} of the pass rate of {level:.2g} has been lost",
        "neither format, length, entropy nor KL moved with it: see whether the data or the "
        "verifier changed; else lower train.lr",
    ),
    "kl": Cause(
        "",
        "the policy has moved away from the reference (kl/mean has doubled): lower train.lr or "
        "raise beta",
    ),
    "data": Cause(
        "",
        "the sampler orders problems: if they have become that much harder, set max_drop_ordered: "
        "null; else lower train.lr or raise beta",
    ),
}
"""What is tested, in the order in which one explains the others, and further causes of a fall."""


@dataclass(slots=True)
class Trend:
    """A metric's level over about 100 steps and over about 5."""

    slow: float | None = None
    fast: float | None = None

    def add(self, value: float) -> None:
        """Add a step's value."""
        self.slow = value if self.slow is None else self.slow + 0.01 * (value - self.slow)
        self.fast = value if self.fast is None else self.fast + 0.2 * (value - self.fast)

    def rose(self, factor: float, by: float = 0.0) -> bool:
        """Whether the short level is above ``factor`` times the long one, and by more than this."""
        if self.slow is None or self.fast is None:
            return False
        return self.fast > factor * self.slow and self.fast - self.slow > by

    def fell(self, factor: float) -> bool:
        """Whether the short level is below ``factor`` times the long one."""
        return self.slow is not None and self.fast is not None and self.fast < factor * self.slow

    def state_dict(self) -> list[Json]:
        """Return both levels."""
        return [self.slow, self.fast]

    def load_state_dict(self, state: Any) -> None:
        """Restore both levels."""
        self.slow, self.fast = state


def cause_of_fall(trends: Mapping[str, Trend], *, ordered: bool) -> str:
    """Return the likely cause of a lower pass rate, by what moved with it.

    Args:
        trends: By ``truncated`` and ``extracted`` (shares), ``entropy`` and ``kl`` (nats).
        ordered: Whether the sampler orders problems.
    """
    if trends["truncated"].rose(1.0, by=0.1):
        return "truncated"
    if trends["extracted"].fell(0.8):
        return "extraction"
    if trends["entropy"].fell(0.5):
        return "entropy"
    if trends["kl"].rose(2.0):
        return "kl"
    return "data" if ordered else "pass"


DRAWN_BY_CHANCE = ("core/shuffle", "core/mixture")
"""Samplers whose steps are all alike, unless a source has an order or ends before the others."""


def orders(config: Mapping[str, Any]) -> bool:
    """Whether a run's sampler may make its problems harder as it goes on.

    Args:
        config: The run's configuration, as resolved.
    """
    sampler = config["sampler"]
    if sampler["use"] not in DRAWN_BY_CHANCE:
        return True
    if (sampler.get("with") or {}).get("mode", "weighted") != "weighted":
        return True
    sources = config["data"]["sources"]
    return any((source.get("order") or "shuffle") != "shuffle" for source in sources)
