import pytest
from pydantic import ValidationError

from rlvr_core.api import Completion, Problem
from rlvr_core.verify.overlong import Overlong

PROBLEM = Problem("p", "prompt", "core/overlong", {}, "toy")


def verdict(length, reason="stop", **options):
    config = Overlong.Config(**({"max_tokens": 100, "buffer": 20} | options))
    n = (0,) * length
    done = Completion((1,), n, tuple(map(float, n)), (True,) * length, "x" * length, reason)
    return Overlong(config).verify(PROBLEM, done)


@pytest.mark.parametrize(
    ("length", "score"),
    [(0, 0), (1, 0), (80, 0), (81, -0.05), (90, -0.5), (99, -0.95), (100, -1), (150, -1)],
)
def test_penalty_by_hand(length, score):
    assert verdict(length).score == pytest.approx(score)


def test_a_completion_that_was_cut_off_costs_everything():
    assert verdict(10, "length").score == -1


def test_it_has_no_say_in_what_is_right():
    assert verdict(10).passed is None


def test_an_answer_known_by_its_text_has_no_length():
    answer = Overlong(Overlong.Config(max_tokens=9, buffer=3)).verify(
        PROBLEM, Completion.from_text("some text")
    )
    assert (answer.score, answer.status) == (None, "unscorable")


def test_buffer_longer_than_the_cap_is_refused():
    with pytest.raises(ValidationError, match="buffer"):
        Overlong.Config(max_tokens=10, buffer=11)
