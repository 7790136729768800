"""Adaptive group sizes: hand-computed cases, and the rule written a second time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rlvr_core.api import ConfigError, Drop, Extend, Keep
from rlvr_core.rollout.samplers.base import AdaptiveConfig
from rlvr_core.rollout.samplers.epochs import Shuffle
from tests.support.samplers.sampler_toys import group, member, source, started

P, F, U = True, False, None


def played(answers, *, n=8, tokens=1, **rule):
    """How many completions a group gets whose completions would come out as ``answers``."""
    sampler = started(Shuffle, source("a", 3), n=n, adaptive=AdaptiveConfig(**rule))
    (draw,) = sampler.draw(1, step=0)
    total = draw.n
    while True:
        decision = sampler.observe(group(*(member(one, tokens) for one in answers[:total])))
        if not isinstance(decision, Extend):
            return total, decision
        total += decision.n
        assert total <= len(answers), "drew more than the cap"


TWO_TWO = {"k_success": 2, "k_failure": 2, "max_completions": 64, "chunk_size": 8}


@pytest.mark.parametrize(
    ("answers", "rule", "total"),
    [
        # the first chunk has both
        ([P, F, P, F] + [F] * 60, TWO_TWO, 8),
        # the second success is the 21st completion, in the third chunk
        ([P] + [F] * 19 + [P] + [F] * 43, TWO_TWO, 24),
        ([F] * 64, TWO_TWO, 64),
        # the last chunk is cut at the cap
        ([F] * 10, {"k_success": 1, "k_failure": 1, "max_completions": 10, "chunk_size": 4}, 10),
        # one at a time, as without chunk_size
        ([F, P, F, F], {"k_success": 1, "max_completions": 4}, 2),
        ([P, F, P, F], {"k_success": 2, "max_completions": 4}, 3),
        # what could not be judged is neither
        ([U, P, U, F], {"k_success": 1, "k_failure": 1, "max_completions": 4}, 4),
        # the cap is sampling.n when none is given
        ([F] * 8, {"k_success": 1, "k_failure": 1, "chunk_size": 3}, 8),
    ],
)
def test_the_rule_by_hand(answers, rule, total):
    assert played(answers, **rule)[0] == total


@pytest.mark.parametrize(("limit", "total"), [(11, 4), (12, 4), (13, 6), (1, 2), (1000, 8)])
def test_tokens_stop_a_group_before_its_next_chunk(limit, total):
    """Three tokens each, two at a time: 6, 12, 18, 24 tokens."""
    rule = {"k_success": 1, "k_failure": 1, "chunk_size": 2, "max_total_tokens": limit}
    assert played([F] * 8, tokens=3, **rule)[0] == total


def test_tokens_alone_are_a_rule():
    assert played([P, F] * 4, tokens=3, chunk_size=2, max_total_tokens=7)[0] == 4


def test_a_complete_group_is_then_kept_or_dropped():
    assert played([P, F] * 4, k_success=1, k_failure=1)[1] == Keep()
    assert played([F] * 8, k_success=1, k_failure=1)[1] == Drop("zero_variance", "all_failed")
    assert played([U] * 8, k_success=1, k_failure=1)[1] == Drop("unscorable")


def reference(answers, tokens, k_success, k_failure, most, chunk, max_tokens):
    """The rule of the reference system, as its loop has it."""
    total = successes = failures = spent = 0
    while total < most:
        if max_tokens is not None and spent >= max_tokens:
            break
        if (k_success > 0 or k_failure > 0) and successes >= k_success and failures >= k_failure:
            break
        for one in answers[total : total + min(chunk, most - total)]:
            total += 1
            spent += tokens
            if one is True:
                successes += 1
            elif one is False:
                failures += 1
    return total


@settings(deadline=None, max_examples=150)
@given(
    answers=st.lists(st.sampled_from([P, F, F, U]), min_size=20, max_size=20),
    tokens=st.integers(1, 4),
    k_success=st.integers(0, 3),
    k_failure=st.integers(0, 3),
    most=st.integers(6, 20),
    chunk=st.integers(1, 9),
    max_tokens=st.one_of(st.none(), st.integers(1, 60)),
)
def test_the_rule_is_the_reference_systems(
    answers, tokens, k_success, k_failure, most, chunk, max_tokens
):
    if k_success == k_failure == 0 and max_tokens is None:
        return
    total, _ = played(
        answers,
        tokens=tokens,
        k_success=k_success,
        k_failure=k_failure,
        max_completions=most,
        chunk_size=chunk,
        max_total_tokens=max_tokens,
    )
    assert total == reference(answers, tokens, k_success, k_failure, most, chunk, max_tokens)


def test_a_rule_that_never_stops_is_refused():
    with pytest.raises(ValidationError, match="every group would get max_completions"):
        AdaptiveConfig(max_completions=64, chunk_size=8)


def test_a_rule_that_cannot_be_met_is_refused():
    rule = AdaptiveConfig(k_success=5, k_failure=4)
    with pytest.raises(ConfigError, match="at most 8 completions never has 5") as caught:
        started(Shuffle, source("a", 3), n=8, adaptive=rule)
    assert "to 9 or more" in str(caught.value)


def test_groups_of_one_would_all_be_dropped():
    rule = AdaptiveConfig(k_success=1, max_completions=1)
    with pytest.raises(ConfigError, match="a group of one"):
        started(Shuffle, source("a", 3), n=8, adaptive=rule)
