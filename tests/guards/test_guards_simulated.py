"""The simulation of the guards' odds, in short: ``benchmarks/guards.py`` does it at length."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "guards.py"


@pytest.fixture(scope="module")
def simulation():
    spec = importlib.util.spec_from_file_location("guards_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_few_short_runs_have_no_false_alarm(simulation, capsys):
    assert simulation.main(["--quick"]) == 0
    shown = capsys.readouterr().out
    assert "in all 0 of 80" in shown
    assert "| pass rate .5 to 0 | 5 (50) |" in shown


def test_beta_binomial_by_hand(simulation):
    # a uniform rate gives each number of successes alike
    assert simulation.beta_binomial(0.5, 4, 2.0).tolist() == pytest.approx([0.2] * 5)
    chance = simulation.beta_binomial(0.1, 8, 2.0)
    assert (chance * np.arange(9)).sum() / 8 == pytest.approx(0.1)


def test_the_odds_of_idle_steps_by_hand(simulation):
    # two completions with a uniform rate agree with probability 2/3; one group a step
    none = 2 / 3
    expected = none**100 * (1 + 900 * (1 - none))
    assert simulation.idle_odds(0.5, (1, 2), 100, 1000, 2.0) == pytest.approx(expected)
