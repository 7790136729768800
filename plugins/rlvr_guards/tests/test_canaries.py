"""The guard ``canaries``, with a pool of real workers: what it finds, and what it leaves alone."""

from concurrent.futures import Future
from fractions import Fraction
from types import SimpleNamespace

import pytest

from rlvr_core.api import (
    Completion,
    Group,
    GroupsScored,
    Judged,
    NoConfig,
    Problem,
    RunError,
    StepFinished,
)
from rlvr_core.config.model import RunConfig
from rlvr_core.verify.judge import ErrorRate, Judge
from rlvr_core.verify.pool import VerifierPool
from rlvr_core.verify.reward import RewardPlan, Term
from rlvr_core.verify.verdicts import VerifierSpec
from rlvr_guards.canaries import Canaries
from rlvr_guards.wrong_answers import allowed, differ, plain, wrong_answers, wrong_responses
from tests.support.guards import judged_verifiers

ANSWERS = [str(n) for n in range(41, 49)]
CONFIG = RunConfig.model_validate(
    {
        "model": {"path": "m"},
        "data": {"sources": ["core/jsonl"]},
        "train": {"steps": 9},
        "verify": {"workers": 2},
    }
)


@pytest.fixture
def judge():
    """Makes a judge of one verifier of ``judged_verifiers``."""
    made = []

    def make(name, cls=Judge):
        target = f"tests.support.guards.judged_verifiers:{name}"
        specs = {"toy/v": VerifierSpec(target, {})}
        verifier = getattr(judged_verifiers, name)(NoConfig())
        plan = RewardPlan((Term("toy/v", 1.0),), specs, {}, {"toy/v": verifier})
        made.append(VerifierPool(specs, workers=2, timeout=10.0, memory_mb=512))
        return cls(made[-1], plan, ErrorRate(0.5))

    yield make
    for pool in made:
        pool.close()


def completion(text):
    return Completion((1,), (2, 3), (-1.0, -1.0), (True, True), text, "stop", 0)


def groups(judge):
    """One group a problem, half of its completions right, judged as a run does."""
    judged_groups = []
    for answer in ANSWERS:
        problem = Problem(f"p{answer}", f"What comes after {int(answer) - 1}?", "v",
                          {"answer": answer}, "toy")  # fmt: skip
        given = [answer, "17", answer, "23", answer, "99", answer, "50"]
        completions = [completion(f"so [{text}]") for text in given]
        members = []
        verdicts = judge.submit(problem, completions).result(60)
        for done, verdict in zip(completions, verdicts, strict=True):
            reward, passed = judge.reward(done, verdict, 0)
            members.append(Judged(done, verdict, reward, passed))
        judged_groups.append(Group(problem, tuple(members), 0))
    return tuple(judged_groups)


def guarded(judge):
    """The guard of a run, and what it says."""
    lines = []
    guard = Canaries(NoConfig())
    ranks = SimpleNamespace(index=0)
    guard.bind(SimpleNamespace(config=CONFIG, judge=judge, ranks=ranks, say=lines.append))
    return guard, lines


def take(guard, step, some):
    guard.on_groups(GroupsScored(step, step, tuple(some)))
    for probe in guard._waiting:
        probe.answer.result(60)
    guard.on_step(StepFinished(step, step, {}, {}))


def run(judge, steps=4):
    """Take steps over the same groups; what was said, and the guard."""
    guard, lines = guarded(judge)
    for step in range(steps):
        take(guard, step, groups(judge))
    return lines, guard


def test_a_pure_verifier_is_left_alone(judge):
    lines, guard = run(judge("Brackets"))
    assert lines == []
    assert guard.report() == {"canaries/wrong": 0.0}


def test_a_verifier_with_state_stops_the_run(judge):
    with pytest.raises(RunError, match="guard canaries"):
        run(judge("Stateful"))


class Rolled(Judge):
    """Gives each completion the verdict on its neighbour."""

    def submit(self, problem, completions):
        out = Future()

        def done(future):
            verdicts = future.result()
            out.set_result([*verdicts[-1:], *verdicts[:-1]])

        super().submit(problem, completions).add_done_callback(done)
        return out


def test_verdicts_of_neighbours_stop_the_run_at_once(judge):
    with pytest.raises(RunError, match="guard canaries") as raised:
        run(judge("Brackets", Rolled))
    (complaint,) = raised.value.complaints
    assert complaint.where == "step 1"
    assert any("pure" in line for line in complaint.remedy)


def test_one_contradiction_is_a_note_and_its_group_is_judged_once_more(judge):
    true = judge("Brackets")
    guard, lines = guarded(true)
    judged = groups(true)
    other = true.submit(judged[0].problem, [completion("no")]).result(60)[0]
    # one verdict was lost, and counts as 0
    lost = Judged(completion(f"we get [{ANSWERS[0]}]"), other, 0.0, False)
    take(guard, 0, [Group(judged[0].problem, (lost,), 0)])
    assert len(lines) == 1
    assert "lost" in lines[0]
    assert guard.report() == {"canaries/wrong": 1.0}
    with pytest.raises(RunError, match="verdicts are lost"):
        take(guard, 1, judged)


# -- how canaries are made -------------------------------------------------------------------------

ASKED = Problem("p", "What is 44 + 2?", "v", {}, "toy")


def test_wrong_numbers_by_hand():
    assert wrong_answers(ASKED, "46") == {
        "another first digit": "56",
        "another last digit": "47",
        "a digit more": "467",
        "another sign": "-46",
        "one less": "45",
        "its first digit left out": "6",
        "its last digit left out": "4",
    }
    assert wrong_answers(ASKED, "-9.5")["another first digit"] == "-1.5"
    assert wrong_answers(ASKED, "-9.5")["another sign"] == "9.5"
    assert "another sign" not in wrong_answers(ASKED, "0")
    assert wrong_answers(ASKED, "Paris") == {"two letters more": "Parisqx"}
    # 5000 and 5001 are one number to a verifier that allows a thousandth
    assert "another last digit" not in wrong_answers(ASKED, "5000")
    assert "one less" not in wrong_answers(ASKED, "46", 0.05)
    assert wrong_answers(ASKED, "46", 0.05)["another first digit"] == "56"
    tolerant = Problem("p", "?", "v", {"tolerance": 0.05}, "toy")
    assert allowed(tolerant, {"tolerance": 0.1}) == 0.1
    assert allowed(tolerant, {}) == 0.05


def test_what_is_not_surely_wrong_is_not_made():
    assert wrong_answers(ASKED, "B") == {"another letter": "C"}
    assert wrong_answers(ASKED, "x + 12") == {"another number in it": "x + 13"}
    assert wrong_answers(ASKED, "60 s") == {"another number in it": "61 s"}
    assert wrong_answers(ASKED, "two words") == {}
    assert differ(Fraction(1, 5), Fraction(20)) is False  # 20 %
    assert plain("1,234.50") == Fraction("1234.5")
    assert plain("1 min") is None


def test_responses_keep_the_form_of_the_reference():
    texts = wrong_responses(ASKED, "so it is [46]", "46", {})
    assert texts["the reference with another first digit"] == "so it is [56]"
    assert texts["a number of the prompt"] == "so it is [2]"
    several = texts["several answers, the right one among them"].splitlines()
    assert several.count("so it is [46]") == 1
    assert several[0] != "so it is [46]" != several[-1]
    assert texts["an empty answer"] == ""
