"""Wrong answers that reasoning-gym's scoring would pay, and answers that attack it."""

from __future__ import annotations

import ast
import time
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from rlvr_core.api import Completion
from rlvr_gym import formulas
from rlvr_gym.datasets import Tasks
from rlvr_gym.entries import entry, names, score
from rlvr_gym.fences import FENCED
from rlvr_gym.reading import EVALUATING, refusal
from rlvr_gym.rules import ALSO, JUDGED, is_sound
from rlvr_gym.verifiers import Answer
from tests.support.tables import table

OPEN = [name for name in names() if name not in FENCED]
VERIFIER = Answer(Answer.Config())


def made(task, n=1, **options):
    return list(Tasks(Tasks.Config(tasks=(task,), n=n, allow_fenced=True, **options)).load())


def reference(problem):
    return VERIFIER.gold(problem).removeprefix("<answer>").removesuffix("</answer>")


def passes(problem, answer):
    return VERIFIER.verify(problem, Completion.from_text(f"<answer>{answer}</answer>")).passed


NEVER_RIGHT = [
    *table(__file__, "never right"),
    "[" * 100_000,
    "(" * 50_000 + ")" * 50_000,
    "9" * 200_000,
    "A=1," * 50_000,
    "UDLR" * 50_000,
    "\\frac{" * 50_000,
    " " * 200_000 + "x",
]


@pytest.mark.parametrize("task", OPEN)
def test_no_attack_passes_or_lasts(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (one,) = made(task)
    assert passes(one, reference(one))
    before = time.process_time()
    denials = (f"not {reference(one)}", f"{reference(one)} is not the answer")
    for text in (*NEVER_RIGHT, *denials):
        assert not passes(one, text), text[:60]
    assert time.process_time() - before < 5.0
    assert list(tmp_path.iterdir()) == []


ON_OUR_OWN = {  # generators' own text, never the model's
    "arithmetic/basic_arithmetic.py",
    "arithmetic/bitwise_arithmetic.py",
    "arithmetic/gsm_symbolic/generators_00_49.py",
    "arithmetic/gsm_symbolic/generators_50_99.py",
    "logic/propositional_logic.py",
}


def test_every_generator_that_evaluates_anything_is_known():
    import reasoning_gym

    root = Path(reasoning_gym.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name in ("eval", "exec", "parse_expr", "sympify"):
                    found.add(str(path.relative_to(root)))
    ours = {
        path.removeprefix("reasoning_gym.").replace(".", "/") + ".py"
        for path in EVALUATING.values()
    }
    judged = {
        "algorithmic/number_sorting.py",
        "algebra/intermediate_integration.py",
        "algebra/polynomial_multiplication.py",
        "algebra/simple_integration.py",
        "games/countdown.py",
        "games/puzzle24.py",
    }
    assert {Path(path).stem for path in judged} <= set(JUDGED)
    assert "codeio" in FENCED
    assert found == ours | judged | ON_OUR_OWN | {"code/codeio.py"}


@pytest.mark.parametrize("task", sorted(EVALUATING))
def test_eval_reads_literals_alone(task):
    import importlib

    (one,) = made(task)
    passes(one, "[1]")
    module = importlib.import_module(EVALUATING[task])
    assert vars(module)["eval"]("[1, 'a']") == [1, "a"]
    with pytest.raises(ValueError, match="malformed"):
        vars(module)["eval"]("print(1)")


def changed(problem, old, new):
    answer = reference(problem)
    assert old in answer
    return answer.replace(old, new, 1)


@pytest.mark.parametrize("change", [Fraction(1), Fraction(-1), Fraction(1, 10)])
def test_sorted_numbers_are_exact(change):
    for one in made("number_sorting", 5):
        numbers = [Fraction(text) for text in ast.literal_eval(reference(one))]
        assert passes(one, str([float(number) for number in numbers]))
        assert passes(one, str([str(float(number)) for number in numbers]))
        for at in range(len(numbers)):
            wrong = [float(n + change * (i == at)) for i, n in enumerate(numbers)]
            assert not passes(one, str(wrong))
        assert not passes(one, str([float(number) for number in numbers[:-1]]))
        assert not passes(one, str([float("nan")] * len(numbers)))


@pytest.mark.parametrize("task", ["word_sorting", "letter_jumble", "figlet_font", "spell_backward"])
def test_words_too_many_fail(task):
    for one in made(task, 5):
        answer = reference(one)
        for more in (" zebra", ", zebra", "zebra", "\nzebra", " is not the answer"):
            assert not passes(one, answer + more)
            assert not passes(one, more + answer)


def test_a_board_has_its_size_and_whole_numbers():
    for one in made("game_of_life", 3):
        board = ast.literal_eval(reference(one))
        assert passes(one, str(board))
        assert not passes(one, str([*board, board[0]]))
        assert not passes(one, str([[*row, 0] for row in board]))
        assert not passes(one, str([[bool(cell) for cell in row] for row in board]).lower())


def test_a_probability_is_near_as_a_share_of_it():
    for one in made("coin_flip", 10):
        right = Fraction(reference(one))
        assert passes(one, f"{right.numerator}/{right.denominator}")
        assert passes(one, f"{float(right):.4g}")
        assert not passes(one, "0")
        assert not passes(one, f"{float(right) * 1.004}")
        assert not passes(one, f"-{float(right)}")


def test_a_sign_counts():
    for one in made("gsm_symbolic", 5):
        assert not passes(one, f"-{reference(one)}")
        assert not passes(one, f"not {reference(one)}")
        assert passes(one, f"${reference(one)}")


def test_countdown_uses_each_number_once():
    for task in ("countdown", "puzzle24"):
        for one in made(task, 5):
            spec = one.spec
            found = entry(task, spec["config"], spec["seed"], spec["index"])
            target = found["metadata"].get("target", 24)
            assert passes(one, f"({reference(one)})")
            assert not passes(one, str(target))
            assert not passes(one, f"{reference(one)} + 1 - 1")
            assert not passes(one, f"{reference(one)} * 1")
            assert not passes(one, "6*4+0*9")
            assert not passes(one, f"{reference(one)} = {target}")


def test_formulas_are_computed_without_evaluating_them():
    used = Counter()
    assert formulas.value(formulas.parse("(3 - 1/2) * -4"), used) == Fraction(-10)
    assert used == Counter([3, 1, 2, 4])
    for text in (
        "1/0",
        "2**3",
        "f(1)",
        "x",
        "1.5",
        "True",
        "1 if 1 else 2",
        "[1]",
        "1;2",
        "\N{ARABIC-INDIC DIGIT ONE}",
    ):
        with pytest.raises(formulas.NotAFormulaError):
            formulas.value(formulas.parse(text), Counter())


def test_polynomials_are_sums_of_monomials():
    def read(text):
        return formulas.polynomial(formulas.parse(text))

    assert read("3*x**2*y - x + 4 - 2*x*y*x") == {(("x", 2), ("y", 1)): 1, (("x", 1),): -1, (): 4}
    assert read("x - x") == {}
    for text in ("(x + 1)*(x - 1)", "x**100", "x**-1", "x**y", "2**9", "sin(x)", "1.0*x", "xy"):
        with pytest.raises(formulas.NotAFormulaError):
            read(text)
    for one in made("polynomial_multiplication", 5):
        answer = reference(one)
        assert passes(
            one, " + ".join(f"({term})" for term in answer.replace("- ", "+ -").split(" + "))
        )
        assert not passes(one, f"{answer} + 1")
        spec = one.spec
        found = entry("polynomial_multiplication", spec["config"], spec["seed"], spec["index"])
        assert not passes(one, found["metadata"]["polynomial_expr"])  # the question itself


@pytest.mark.parametrize(("one", "other", "same"), table(__file__, "antiderivatives"))
def test_antiderivatives_are_compared_by_their_derivatives(one, other, same):
    first, second = formulas.parse(one), formulas.parse(other)
    assert formulas.same_derivative(first, second, "x") is same


def test_no_function_and_no_value_are_refused():
    x = formulas.parse("x")
    for text in ("zeta(x)", "x.real", "x[0]", "1/(x-x)", "sin(x, x)", "exp(10**400)", "x or 1"):
        with pytest.raises(formulas.NotAFormulaError):
            formulas.same_derivative(formulas.parse(text), x, "x")


def test_an_integral_without_a_solution_is_no_problem():
    unsolved = {"answer": "2*Integral(x**2*cos(2*x), x) + C", "metadata": {"variable": "x"}}
    assert not is_sound("intermediate_integration", unsolved)
    assert is_sound("intermediate_integration", unsolved | {"answer": "x**2 + C"})


def test_roots_are_all_of_them_in_any_order():
    found = {1: 0, 2: 0}
    for one in made("polynomial_equations", 40):
        roots = [root for root in reference(one).split(",") if root]
        found[min(len(roots), 2)] += 1
        assert passes(one, ", ".join(reversed(roots)))
        assert not passes(one, "there are none")
        assert not passes(one, ", ".join([*roots, "999"]))
        if roots:
            assert not passes(one, "")
            assert not passes(one, ", ".join(roots[1:]))
    assert all(found.values()), found


def test_what_generators_pass_over_fails():
    for task in ALSO:
        for one in made(task, 8):
            answer = reference(one)
            assert passes(one, answer)
            assert not passes(one, f"{answer}, 7"), task
            assert not passes(one, f"{answer} 12:34"), task
            assert not passes(one, f"{answer} is not the answer"), task
    for one in made("knights_knaves", 3):
        assert not passes(one, f"not {reference(one)}")
        first, _, rest = reference(one).rstrip(".").partition(", ")
        assert passes(one, f"{rest.removeprefix('and ')}, {first}")


def test_the_rules_are_needed():
    """Each replaces scoring that pays the wrong answer of its reason."""
    (one,) = made("number_sorting")
    spec = one.spec
    wrong = str([str(float(text) + 1) for text in ast.literal_eval(reference(one))])
    assert score("number_sorting", spec["config"], spec["seed"], spec["index"], wrong) == 1.0
    (one,) = made("complex_arithmetic")
    spec = one.spec
    assert score("complex_arithmetic", spec["config"], spec["seed"], spec["index"], "nan") == 1.0
    assert refusal("nan", reference(one)) == "not a finite number"


def test_words_that_hold_these_letters_are_answers():
    for text in ("banana", "information", "nanny", "inform 3"):
        assert not refusal(text, "7")
    assert not refusal("nan", "a word: nan")
    assert not refusal("-0xb0e42758", "-0xb0e42758")
    assert refusal("0x1 1e42758", "0x1")
    assert refusal("b0e42758", "7")
