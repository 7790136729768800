"""Guard ``rewards``: weighted sums by hand, and rewards that are something else."""

import pytest

from rlvr_core.api import (
    Completion,
    Group,
    GroupsScored,
    Judged,
    Problem,
    RunError,
    Transcript,
    Verdict,
)
from rlvr_core.builtin.invariants.rewards import Rewards
from rlvr_core.config.model import RunConfig


def guard(*rewards):
    config = {"model": {"path": "m"}, "data": {"sources": ["a"]}, "train": {"steps": 9}}
    return Rewards(RunConfig.model_validate(config | {"rewards": list(rewards)}))


TWO = ({"use": "auto"}, {"use": "core/brief", "weight": -0.25})


def check(made, verdicts, reward, passed, step=0, now=0):
    completion = Completion((1,), (2, 3), (-1.0, -1.0), (True, True), "x", "stop", 0)
    named = {f"v{number}": one for number, one in enumerate(verdicts)}
    judged = Judged(completion, named, reward, passed)
    group = Group(Problem("p", "?", "v", {}, "d"), (judged,), 0)
    made.on_groups(GroupsScored(step, now, (group,)))
    return made.end(None)["rewards/error"]


def test_weighted_sums():
    assert check(guard(*TWO), [Verdict(1.0), Verdict(0.4)], 0.9, True) < 1e-15
    assert check(guard(*TWO), [Verdict(0.6), Verdict(1.0)], 0.35, False) < 1e-15
    passes = Verdict(0.0, passed=True)  # the outcome is what the verdict says, not its score
    assert check(guard("auto"), [passes], 0.0, True) == 0


def test_what_has_no_score():
    lost = Verdict(None, "timeout")
    check(guard(*TWO), [lost, Verdict(1.0)], None, None)
    check(guard(*TWO), [Verdict(1.0), lost], None, True)
    with pytest.raises(RunError, match="a verdict has no score"):
        check(guard(*TWO), [Verdict(1.0), lost], 1.0, True)
    with pytest.raises(RunError, match="it has no reward"):
        check(guard(*TWO), [Verdict(1.0), Verdict(1.0)], None, True)
    shadow = {"use": "core/brief", "weight": 0.0}
    check(guard("auto", shadow), [Verdict(1.0), lost], 1.0, True)


@pytest.mark.parametrize(
    ("reward", "passed", "words"),
    [
        (-0.9, True, r"reward is -0.9, and weights and scores make 0.9 \(1 x 1 \+ -0.25 x 0.4\)"),
        (1.0, True, "the reward is 1"),
        (0.9 + 1e-6, True, "the reward is 0.9"),
        (0.9, False, "passed is False, and the first verdict says True"),
    ],
)
def test_rewards_that_are_something_else(reward, passed, words):
    with pytest.raises(RunError, match=words) as caught:
        check(guard(*TWO), [Verdict(1.0), Verdict(0.4)], reward, passed, step=4)
    assert "guard rewards: completion 0 of problem p" in str(caught.value)
    assert "step 5" in str(caught.value)


def test_a_scheduled_weight():
    """Weight 1 at step 0, 0.6 at step 4 of 10: a score of 2 makes 1.2 now, and 2 to 1.2 before."""
    made = guard({"use": "auto", "schedule": {"to": 0.0, "steps": 10}})
    check(made, [Verdict(2.0)], 1.2, True, step=4)
    for reward in (2.0, 1.6, 1.2):  # sampled some versions ago, trained on again
        check(made, [Verdict(2.0)], reward, True, step=4, now=3)
    for reward, now in ((2.0, 0), (1.6, 0), (1.1, 0), (1.1, 3)):
        with pytest.raises(RunError, match=r"guard rewards(.|\n)*its schedule"):
            check(made, [Verdict(2.0)], reward, True, step=4, now=now)


def test_completions_without_verdicts_are_not_compared():
    assert check(guard("auto"), [], 0.3, None) != 0  # NaN: nothing was compared


LONG = {"use": "core/overlong", "weight": 0.5, "with": {"max_tokens": 24, "buffer": 10}}


@pytest.mark.parametrize(
    ("n", "finish", "score"),
    [
        (3, "stop", 0.0),
        (14, "stop", 0.0),
        (19, "stop", -0.5),
        (30, "stop", -1.0),
        (5, "length", -1),
    ],
)
def test_the_penalty_on_length_is_its_formula(n, finish, score):
    """It grows from 14 tokens to 24."""
    completion = Completion((1,) * 9, (2,) * n, (-1.0,) * n, (True,) * n, "x", finish, 0)

    def judged(given):
        verdicts = {"core/exact": Verdict(1.0), "core/overlong": Verdict(given)}
        member = Judged(completion, verdicts, 1.0 + 0.5 * given, True)
        return GroupsScored(0, 0, (Group(Problem("p", "?", "v", {}, "d"), (member,), 0),))

    guard("auto", LONG).on_groups(judged(score))
    with pytest.raises(RunError, match=f"core/overlong gives {n} tokens -0.7, and its formula"):
        guard("auto", LONG).on_groups(judged(-0.7))


def judged_by_environment(told, due):
    made, script = guard({"use": "auto"}), Transcript("e", (), "done", "", due)
    completion = Completion((1,), (2,), (-1.0,), (True,), "x", "stop", 0, transcript=script)
    one = Judged(completion, {"core/environment": told}, told.score, told.score == 1.0)
    made.on_groups(GroupsScored(0, 0, (Group(Problem("p", "?", "v", {}, "d"), (one,), 0),)))


def test_the_verdict_of_an_environment_is_that_of_its_conversation():
    judged_by_environment(Verdict(1.0), Verdict(1.0))
    judged_by_environment(Verdict(0.5), Verdict(0.5, detail="another"))
    with pytest.raises(RunError, match=r"the score 1.0, and .* environment gave 0.0"):
        judged_by_environment(Verdict(1.0), Verdict(0.0))
    with pytest.raises(RunError, match=r"the score 1.0, and .* environment gave None"):
        judged_by_environment(Verdict(1.0), None)


def test_each_verdict_is_of_the_verifier_that_was_asked_for():
    """Of the entries, and, where one says auto, of the problem; by full names or short ones."""
    completion = Completion((1,), (2,), (-1.0,), (True,), "x", "stop", 0)

    def check(asked, *names):
        verdicts = {name: Verdict(1.0) for name in names}
        member = Judged(completion, verdicts, 1.0 - 0.5 * (len(names) - 1), True)
        problem = Problem("p", "?", asked, {}, "d")
        second = [{"use": "core/exact", "weight": -0.5}] if len(names) > 1 else []
        guard("auto", *second).on_groups(GroupsScored(0, 0, (Group(problem, (member,), 0),)))

    check("core/exact", "core/exact")
    check("exact", "core/exact", "core/exact#2")
    check("nobody/knows", "core/exact")
    for names in (("core/function",), ("core/exact", "core/function")):
        with pytest.raises(RunError, match="of the verifier core/function, and core/exact is"):
            check("core/exact", *names)
