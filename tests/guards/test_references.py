"""The guard ``references``: groups that agree, and when they speak against a reference."""

import random
from dataclasses import replace

import pytest

from rlvr_core.api import Completion, Group, GroupsScored, Judged, Problem, Verdict
from rlvr_core.api.services import RewardPlan, Term, VerifierSpec
from rlvr_core.builtin.canaries.agreement import Agreement, agreement, final_answer, standard
from rlvr_core.builtin.canaries.references import References, _least


def member(problem, answer, *, extracted=True, passed=None, parts=None):
    right = answer == problem.spec["answer"] if passed is None else passed
    verdict = Verdict(
        float(right), passed=right, parts=parts or {}, extracted=answer if extracted else None
    )
    one = Completion((1,), (2,), (-1.0,), (True,), f"it is [{answer}]", "stop", 0)
    return Judged(one, {"toy/v": verdict}, verdict.score, right)


def problem(number, reference):
    return Problem(f"p{number}", f"After {number} comes?", "v", {"answer": str(reference)}, "toy")


def take(guard, *groups):
    guard.on_groups(GroupsScored(0, 0, groups))


def group(asked, *answers, **more):
    return Group(asked, tuple(member(asked, one, **more) for one in answers), 0)


def step(guard, sampled):
    """Take one step; ``sampled`` has the reference and the eight answers of each problem."""
    take(guard, *(group(problem(n, ref), *answers) for n, (ref, answers) in sampled.items()))


PLAN = RewardPlan((Term("toy/v", 1.0),), {"toy/v": VerifierSpec("a:B", {})}, {}, {})


@pytest.fixture
def guard():
    made = References(PLAN, lambda text: made.said.append(text))
    made.said = []
    return made


def policy(n, rng, right=0.5):
    """Eight answers of a policy that is right half the time, and anywhere else otherwise."""
    return [str(n + 1) if rng.random() < right else str(rng.randrange(10, 99)) for _ in range(8)]


def test_votes_by_hand():
    assert agreement(["4", "4", "4", "5", ""]) == Agreement("4", 3, 4)
    assert agreement(["4", "4", "5"]) is None  # two votes
    assert agreement(["4", "4", "4", "5", "5"]) is None  # not twice as many
    assert agreement([]) is None
    assert standard(" 1,460.0 ") == "1460"
    assert standard("0.50") == standard(".5") == "0.5"
    assert final_answer("so 40 + 6 = 46\n#### 46") == "46"
    assert final_answer("a long way to it, and then \\boxed{46} at last") == "46"
    assert final_answer("there is no one answer in this long text") == ""


def test_least_share_is_wilsons():
    # Wilson's lower end for 4 of 38 at z = 1.64: (.10526 + .03539 - .0866 ...) by the formula
    centre = 4 / 38 + 1.64**2 / 76
    half = 1.64 * ((4 / 38 * 34 / 38) / 38 + 1.64**2 / (4 * 38**2)) ** 0.5
    assert _least(4, 38) == pytest.approx((centre - half) / (1 + 1.64**2 / 38))


def test_a_sound_run_is_left_alone(guard):
    for seed in range(8):
        rng = random.Random(seed)
        numbers = rng.sample(range(10, 98), 8)
        step(guard, {n: (n + 1, policy(n, rng)) for n in numbers})
    assert guard.said == []
    assert guard.report()["references/agreed"] > 20
    assert guard.report()["references/against"] == 0


def test_references_of_other_problems_are_named(guard):
    rng = random.Random(0)
    step(guard, {n: (n + 8, policy(n, rng, 0.8)) for n in range(10, 26)})
    (said,) = guard.said
    assert "16 of 16 problems" in said
    assert "each reference is 7 more" in said
    assert "p10: 11, reference 18" in said


def test_a_sixth_of_wrong_references_is_named(guard):
    rng = random.Random(1)
    wrong = range(10, 58, 6)
    step(guard, {n: (n * 2 + 1 if n in wrong else n + 1, policy(n, rng, 0.7))
                 for n in range(10, 58)})  # fmt: skip
    assert len(guard.said) == 1
    assert guard.report()["references/against"] == pytest.approx(8, abs=2)


def weak(n, rng):
    """A policy that forgets to carry in a third of the problems, and is less sure there."""
    if n % 3:
        return policy(n, rng, 0.8)
    return [str(rng.choice([n - 9, n - 9, n - 9, n + 1])) for _ in range(8)]


def test_systematic_errors_of_a_weak_policy_are_not(guard):
    """Its errors have fewer votes, and the reference is among the other answers."""
    for seed in range(6):
        rng = random.Random(seed)
        step(guard, {100 * seed + n: (100 * seed + n + 1, weak(100 * seed + n, rng))
                     for n in range(10, 40)})  # fmt: skip
    assert guard.report()["references/against"] > 10
    assert guard.said == []


def test_a_policy_that_always_says_the_same_is_not(guard):
    step(guard, {n: (n + 1, ["7"] * 8) for n in range(10, 30)})
    assert guard.said == []


def test_one_answer_that_passes_and_fails_is_named(guard):
    for n in range(10, 14):
        asked = problem(n, n + 1)
        good, bad = (member(asked, str(n + 1), passed=passed) for passed in (True, False))
        take(guard, Group(asked, (good, bad, good), 0))
    assert guard.report()["references/mixed"] == 4
    assert any("one answer both passes and fails" in said for said in guard.said)


def test_a_part_that_explains_the_verdict_is_no_contradiction(guard):
    for n in range(10, 14):
        asked = problem(n, n + 1)
        good = member(asked, str(n + 1), parts={"correct": 1.0, "format": 1.0})
        bad = member(asked, str(n + 1), passed=False, parts={"correct": 1.0, "format": 0.0})
        take(guard, Group(asked, (good, bad, bad), 0))
    assert guard.said == []


def test_different_numbers_that_pass_are_named(guard):
    for n in range(10, 14):
        asked = problem(n, n + 1)
        members = [member(asked, str(n + 1)), member(asked, str(n), passed=True)]
        take(guard, Group(asked, tuple(members), 0))
    assert guard.report()["references/several"] == 4
    (said,) = guard.said
    assert "different numbers pass: of p10, 11 and 10" in said


def test_an_answer_that_is_the_reference_and_fails_is_named(guard):
    for n in range(10, 14):
        asked = problem(n, n + 1)
        take(guard, group(asked, str(n + 1), str(n + 1), passed=False))
    assert guard.report()["references/denied"] == 4
    (said,) = guard.said
    assert "an answer that is the reference fails" in said


def test_a_resumed_run_counts_on(guard):
    rng = random.Random(0)
    step(guard, {n: (n + 8, policy(n, rng, 0.8)) for n in range(10, 26)})
    again = References(PLAN, guard.said.append)
    again.load_state_dict(guard.state_dict())
    assert again.report() == guard.report()
    assert again.state_dict() == guard.state_dict()


def test_answers_that_are_judged_to_the_letter_are_no_contradiction(guard):
    """A verifier that wants ``46`` may fail ``46.0``, and one for names ``paris``."""
    for n in range(10, 14):
        asked = problem(n, n + 1)
        good, form = member(asked, str(n + 1)), member(asked, f"{n + 1}.0", passed=False)
        take(guard, Group(asked, (good, form, good, form), 0))
    assert guard.said == []


def test_a_policy_that_gets_worse_is_not(guard):
    """It answers all of 40 problems right, and then errs in 5 of 20, sure of itself."""
    step(guard, {n: (n + 1, [str(n + 1)] * 8) for n in range(10, 50)})
    step(guard, {n: (n + 1, [str(n + 1 if n % 4 else n + 12)] * 8) for n in range(50, 70)})
    assert guard.report()["references/against"] == 5
    assert guard.said == []


def test_a_number_that_was_cut_off_is_no_answer(guard):
    """The verifier takes nothing from cut texts, whose last number is half of one."""
    for n in range(10, 30):
        asked = problem(n, n + 1)
        cut = member(asked, str(n + 1)[0], extracted=False)
        cut = replace(cut, completion=replace(cut.completion, finish_reason="length"))
        take(guard, Group(asked, (cut,) * 8, 0))
    assert guard.report()["references/agreed"] == 0


def cut(number, text, extracted, end="length"):
    """A group of one completion that ends so, and passes."""
    done = Completion((1,), (2,), (-1.0,), (True,), text, end, 0)
    verdict = Verdict(1.0, passed=True, extracted=extracted)
    return Group(problem(number, number + 1), (Judged(done, {"toy/v": verdict}, 1.0, True),), 0)


def test_answers_that_were_being_written_and_pass_are_named_once(guard):
    for number in (40, 40, 41):
        take(guard, cut(number, f"it is [{number + 1}", str(number + 1)))
    assert guard.said == []  # two problems
    resumed = References(PLAN, guard.said.append)
    resumed.load_state_dict(guard.state_dict())
    for number in (42, 43, 44, 45):
        take(resumed, cut(number, f"it is [{number + 1}", str(number + 1)))
    (said,) = guard.said
    assert "completions of 3 problems that were cut off" in said
    assert "'it is [41'" in said


def test_answers_that_were_whole_when_it_was_cut_off_are_not(guard):
    for number in range(40, 50):
        take(guard, cut(number, f"it is [{number + 1}] or", str(number + 1)))
        take(guard, cut(number, f"it is {number + 1}", str(number + 1), end="stop"))
    assert guard.said == []
