"""The guard ``gold``: which verifiers it stops, and which it lets through."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from rlvr_core.api import PluginError, Problem, RunError, Verdict
from rlvr_guards import gold

PROBLEMS = [Problem(f"p{n}", "?", "v", {"answer": str(n % 4)}, "sums") for n in range(40)]


def verdict_of(said):
    """A verdict; ``None`` is one without a score."""
    if said is None:
        return Verdict(None, status="unscorable")
    return Verdict(float(said), passed=float(said) == 1.0)


def check(judge, problems=PROBLEMS, answer=lambda problem: problem.spec["answer"], **verifier):
    def submit(problem, completions):
        future = Future()
        future.set_result(
            [{"v": verdict_of(judge(problem, completion.text))} for completion in completions]
        )
        return future

    verifiers = {"v": SimpleNamespace(**verifier or {"gold": answer})}
    return gold.check(problems, lambda problem: "v", verifiers, submit, seed=0, timeout=1)


def right(problem, text):
    return text == problem.spec["answer"]


def test_t39_a_true_verifier_is_let_through():
    assert check(right).checked == {"sums with v": gold.SAMPLE}


def test_t39_a_rejected_gold_answer_stops_the_run():
    with pytest.raises(RunError, match="p3: v gives the gold answer '3' score 0"):
        check(lambda problem, text: right(problem, text) and problem.id != "p3", PROBLEMS[:4])


def test_t60_an_accepted_empty_answer_stops_the_run():
    with pytest.raises(RunError, match="p1: v passes an empty answer"):
        check(lambda problem, text: right(problem, text) or text == "", PROBLEMS[:4])


def test_t60_a_verifier_that_does_not_look_stops_the_run():
    with pytest.raises(
        RunError, match="16 of 16 problems are passed by the gold answer of another"
    ):
        check(lambda problem, text: text != "")


def test_answers_that_mean_the_same_are_no_fault():
    def same(problem, text):  # 0 and 1 mean the same: of 0, 1, 2, 3 one in four is met by the next
        return text.isdigit() and max(int(text), 1) == max(int(problem.spec["answer"]), 1)

    assert check(same, PROBLEMS[:4]).checked == {"sums with v": 4}


def test_problems_with_one_answer_have_no_other_to_try():
    assert check(right, PROBLEMS[::4]).checked == {"sums with v": 10}


def test_a_verifier_without_gold_answers_is_named():
    assert check(right, answer=lambda problem: None).unknown == ("sums with v",)


def test_of_a_reward_that_has_no_reference_nothing_is_said():
    report = check(right, verify=lambda problem, completion: 0.5)
    assert (report.checked, report.unknown) == ({}, ())


def test_a_verifier_that_gives_no_score_to_what_it_cannot_read_is_named():
    def silent(problem, text):
        return right(problem, text) if text else None

    assert check(silent).silent == {"sums with v": 16}
    assert check(right).silent == {}


def test_empty_answers_that_now_and_then_have_no_score_are_no_rule():
    def now_and_then(problem, text):
        return right(problem, text) if text or problem.id in ("p0", "p1") else None

    assert check(now_and_then, PROBLEMS[:4]).silent == {}


def test_a_gold_answer_is_text():
    class Numbers:
        def gold(self, one):
            return 42

    with pytest.raises(PluginError, match="gold answer is a int, not text") as caught:
        gold.check(PROBLEMS[:1], lambda _: "n", {"n": Numbers()}, None, seed=0, timeout=1.0)
    assert __file__ in str(caught.value)
