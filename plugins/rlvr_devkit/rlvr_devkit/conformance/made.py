"""Made groups of completions, as checks hand them to components."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_core.api import Completion, Group, Judged, Problem, Verdict

PROBLEM = Problem("p", "?", "v", {}, "conformance")


def judged(reward: float | None, text: str = "x", n_tokens: int = 2) -> Judged:
    """Return a completion with this reward; 1 and more is right, None was not judged."""
    completion = Completion(
        (1,), (5,) * n_tokens, (-1.0,) * n_tokens, (True,) * n_tokens, text, "stop"
    )
    if reward is None:
        return Judged(completion, {"v": Verdict(None, "unscorable", passed=None)}, None, None)
    passed = reward >= 1
    return Judged(completion, {"v": Verdict(reward, passed=passed)}, reward, passed)


def group(rewards: Sequence[float | None], problem: Problem = PROBLEM, version: int = 0) -> Group:
    """Return a group of completions with these rewards, each a token longer than the last."""
    members = (judged(reward, f"x{i}", 2 + i) for i, reward in enumerate(rewards))
    return Group(problem, tuple(members), version)
