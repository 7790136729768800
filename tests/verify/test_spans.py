"""Scores of stretches of a completion: what is refused, and where turns lie in tokens."""

import json
from dataclasses import asdict

import pytest

from rlvr_core.api import Completion, Span, Transcript, Turn, Verdict
from rlvr_core.config.model import RewardSchedule
from rlvr_core.rollout.collect import Judged
from rlvr_core.rollout.replay import member_of
from rlvr_core.verify.reward import RewardPlan, Term
from rlvr_core.verify.verdicts import from_plain, plain_verdict


def completion(n=5, transcript=None):
    return Completion(
        (7,), tuple(range(n)), (0.0,) * n, (True,) * n, "text", "stop", 0, None, transcript
    )


def conversation():
    """Two turns of the model, of 3 and 2 tokens, around 4 tokens of a tool."""
    turns = (Turn("assistant", "a", 3), Turn("tool", "b", 4), Turn("assistant", "c", 2))
    return completion(9, Transcript("toy", turns, "done"))


@pytest.mark.parametrize(
    ("start", "end", "score", "unit", "fault"),
    [
        (2, 2, 1.0, "token", "empty"),
        (-1, 2, 1.0, "token", "starts before 0"),
        (0, 1, float("nan"), "token", "nan"),
        (0, 1, float("inf"), "turn", "inf"),
        (0, 1, 1.0, "word", "'token' or 'turn'"),
        (0.0, 1, 1.0, "token", "integers"),
        (False, True, 1.0, "token", "integers"),
        (0, 1, "1", "token", "a number"),
    ],
)
def test_a_span_that_makes_no_sense_is_refused(start, end, score, unit, fault):
    with pytest.raises((TypeError, ValueError), match=fault):
        Span(start, end, score, unit)


@pytest.mark.parametrize(
    ("spans", "fault"),
    [
        ((Span(0, 3, 1.0), Span(2, 4, 1.0)), "overlap"),
        ((Span(3, 4, 1.0), Span(0, 1, 1.0)), "out of order"),
        ((Span(0, 1, 1.0), Span(1, 2, 1.0, "turn")), "one unit"),
        (((0, 1, 1.0),), "not tuple"),
    ],
)
def test_spans_of_a_verdict_are_ordered_apart_and_of_one_unit(spans, fault):
    with pytest.raises((TypeError, ValueError), match=fault):
        Verdict(1.0, spans=spans)


def test_spans_go_with_a_score_only():
    with pytest.raises(ValueError, match="status 'error'"):
        Verdict(None, "error", spans=(Span(0, 1, 1.0),))


def test_turns_become_the_tokens_that_they_were_sampled_as():
    one, both = Span(1, 2, 0.5, "turn"), Span(0, 2, 1.0, "turn")
    assert conversation().spans_in_tokens((one,)) == (Span(7, 9, 0.5),)
    assert conversation().spans_in_tokens((both,)) == (Span(0, 9, 1.0),)
    assert conversation().spans_in_tokens((Span(3, 4, 2.0),)) == (Span(3, 4, 2.0),)
    assert completion(5).spans_in_tokens((Span(0, 1, 0.5, "turn"),)) == (Span(0, 5, 0.5),)
    assert Completion.from_text("x").spans_in_tokens((Span(0, 1, 0.5, "turn"),)) == ()


@pytest.mark.parametrize(
    "span", [Span(8, 10, 1.0), Span(2, 3, 1.0, "turn")], ids=["tokens", "turns"]
)
def test_a_span_behind_the_end_is_the_verifiers_error(span):
    with pytest.raises(ValueError, match="ends after the completion"):
        plain_verdict(Verdict(1.0, spans=(span,)), conversation())


def test_an_environment_scores_turns_as_it_sees_no_tokens():
    with pytest.raises(ValueError, match="does not see tokens"):
        plain_verdict(Verdict(1.0, spans=(Span(0, 1, 1.0),)))


def test_spans_survive_the_way_out_of_a_worker():
    verdict = Verdict(1.0, spans=(Span(0, 1, 0.25, "turn"), Span(1, 2, -1.0, "turn")))
    assert from_plain(json.loads(json.dumps(plain_verdict(verdict, conversation())))) == verdict


def test_a_judged_completion_with_spans_survives_json():
    verdict = Verdict(1.0, spans=(Span(0, 1, 0.25, "turn"),))
    member = Judged(conversation(), {"a": verdict}, 1.0, True, (Span(0, 3, 0.25),))
    assert member_of(json.loads(json.dumps(asdict(member)))) == member


def test_spans_are_weighted_as_their_verdicts_are():
    """At step 5 of 10 a weight that falls from 2 to 0 is 1; a weight of 0 leaves no span."""
    terms = (
        Term("a", 2.0, RewardSchedule(to=0.0, steps=10)),
        Term("b", 3.0),
        Term("c", 0.0),
    )
    verdicts = {
        "a": Verdict(1.0, spans=(Span(0, 1, 0.5, "turn"),)),
        "b": Verdict(1.0, spans=(Span(1, 4, -1.0),)),
        "c": Verdict(1.0, spans=(Span(0, 9, 9.0),)),
    }
    found = RewardPlan(terms, {}, {}, {}).spans(conversation(), verdicts, 5)
    assert found == (Span(0, 3, 0.5), Span(1, 4, -3.0))
