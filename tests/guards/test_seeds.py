import pytest

from rlvr_core.api import Completion, Group, Judged, Problem, RunError
from rlvr_core.run.guards import check_seeds
from rlvr_core.run.metrics import unique_rate


def _group(*answers, logprob=-2.0):
    problem = Problem("p", "?", "v", {}, "d")
    members = tuple(
        Judged(
            Completion((1,), ids, (logprob,) * len(ids), (True,) * len(ids), "", "stop", 0),
            {},
            0.0,
            False,
        )
        for ids in answers
    )
    return Group(problem, members, 0)


def test_t18_repeated_completions_stop_the_run():
    # 5 tokens at -2 nats, 3 repeats: 30 nats of surprise a group
    repeated = _group(*[(1, 2, 3, 4, 5)] * 4)
    check_seeds(
        [repeated, repeated],
    )  # 60 nats: not yet above the limit
    with pytest.raises(RunError, match="seeds"):
        check_seeds([repeated] * 3)


def test_a_sure_model_may_repeat_itself():
    sure = _group(*[(1, 2, 3)] * 8, logprob=-0.001)
    check_seeds([sure] * 64)


def test_groups_that_differ_are_no_surprise():
    check_seeds([_group((1, 2), (1, 3))] * 100)


def test_unique_rate_by_hand():
    assert unique_rate([_group((1,), (1,), (2,), (3,)), _group((1,), (1,))]) == 4 / 6
    assert unique_rate([]) == 1.0
