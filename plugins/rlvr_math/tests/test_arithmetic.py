"""The generated additions: splits, ids, demonstrations."""

import re

import pytest
from pydantic import ValidationError

from rlvr_core.api import Completion, DatasetLoader, Demonstrator, NoConfig
from rlvr_math.arithmetic import MAX_TOKENS, SPREAD, Arithmetic
from rlvr_math.verifiers import Boxed


def problems(**options):
    return list(Arithmetic(Arithmetic.Config(**options)).load())


def operands(problem):
    a, b = re.fullmatch(r"What is (\d\d)\+(\d\d)\?", problem.prompt).groups()
    return int(a), int(b)


def test_splits_are_disjoint_as_unordered_pairs_and_together_complete():
    train = {frozenset(operands(p)) for p in problems()}
    heldout = {frozenset(operands(p)) for p in problems(split="heldout")}
    assert not train & heldout
    assert len(train | heldout) == 90 * 91 // 2
    assert len(problems()) + len(problems(split="heldout")) == 90 * 90
    assert 600 < len(problems(split="heldout")) < 1000


def test_a_problem_says_what_it_asks_and_its_answer():
    for problem in problems(n=300):
        a, b = operands(problem)
        assert problem.id == f"arithmetic_{a}+{b}"
        assert problem.spec == {"answer": str(a + b)}
        assert problem.verifier == "math/boxed"
        assert problem.max_tokens == MAX_TOKENS


def test_order_follows_the_seed_and_nothing_else():
    assert problems(n=50) == problems(n=50)
    assert problems(n=50) == problems()[:50]
    assert problems(n=50, seed=1) != problems(n=50)
    assert {p.id for p in problems(seed=1)} == {p.id for p in problems()}


def test_demonstrations_are_training_problems_and_the_same_for_a_seed():
    loader = Arithmetic(Arithmetic.Config(split="heldout"))
    assert isinstance(loader, Demonstrator)
    assert isinstance(loader, DatasetLoader)
    shown = list(loader.demonstrations(400, seed=3))
    assert shown == list(loader.demonstrations(400, seed=3))
    assert shown != list(loader.demonstrations(400, seed=4))
    trained = {p.id for p in problems()}
    assert {p.id for p, _ in shown} <= trained


def test_half_of_the_demonstrations_are_careful_and_most_others_guess():
    verifier = Boxed(NoConfig())
    shown = list(Arithmetic(Arithmetic.Config()).demonstrations(4000, seed=0))
    right = [verifier.verify(p, Completion.from_text(text)).passed for p, text in shown]
    careful = ["=" in text for _, text in shown]
    assert all(careful[:2000])
    assert 0.21 < sum(careful[2000:]) / 2000 < 0.29
    # A dropped carry spoils about half of the 5% of slips; a guess hits one time in 31.
    assert 0.95 < sum(right[:2000]) / 2000 < 0.995
    assert 0.21 < sum(right[2000:]) / 2000 < 0.32


def test_careful_work_is_consistent_and_guesses_are_near():
    for problem, text in Arithmetic(Arithmetic.Config()).demonstrations(2000, seed=1):
        a, b = operands(problem)
        boxed = int(re.search(r"\\boxed\{(-?\d+)\}$", text).group(1))
        if "=" not in text:
            assert abs(boxed - a - b) <= SPREAD
            continue
        ones, tens = re.findall(r"([\d+]+)=(\d+)", text)
        for left, result in (ones, tens):
            assert sum(map(int, left.split("+"))) == int(result)
        assert boxed in (a + b, a + b - 10)


def test_unknown_options_are_refused():
    with pytest.raises(ValidationError):
        Arithmetic.Config(splitt="train")
    with pytest.raises(ValidationError):
        Arithmetic.Config(n=0)
