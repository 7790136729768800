"""False alarms and delays of the guards ``seeds``, ``collapse`` and ``idle``, by simulation.

Runs are simulated as the counts that the guards test, many beside each other. A problem's own pass
rate is drawn for each group (a beta distribution with the step's mean, ``--spread`` as its
concentration), so completions of a group depend on each other as they do in training.

    python benchmarks/guards.py [--runs 10000] [--steps 1000] [--quick]
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rlvr_core.guards.betting import FallTest, RepeatTest, RiseTest
from rlvr_core.guards.collapse import ODDS, Collapse
from rlvr_core.guards.idle import Idle
from rlvr_core.guards.seeds import ODDS as SEED_ODDS
from rlvr_core.guards.seeds import allowed

Course = Callable[[int], float]
"""The mean of a share at a step."""

SHAPES = ((16, 8), (64, 8), (256, 8), (512, 4), (512, 8))
RATES = (0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.99)
BEGIN = 100
"""Step at which a fault begins."""


def counts(
    rng: np.random.Generator, mean: float, shape: tuple[int, int], runs: int, spread: float
) -> NDArray[np.float64]:
    """Draw a step of many runs: groups by number of successes, of shape (runs, n + 1)."""
    groups, n = shape
    if 0.0 < mean < 1.0:
        chance_V = beta_binomial(mean, n, spread)
    else:
        chance_V = np.eye(n + 1)[n if mean else 0]
    return rng.multinomial(groups, chance_V, size=runs).astype(float)


def beta_binomial(mean: float, n: int, spread: float) -> NDArray[np.float64]:
    """Return the probabilities of 0 to n successes, the rate being beta-distributed."""
    a, b = spread * mean, spread * (1 - mean)

    def log_beta(x: float, y: float) -> float:
        return math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y)

    logs = [
        math.log(math.comb(n, k)) + log_beta(a + k, b + n - k) - log_beta(a, b)
        for k in range(n + 1)
    ]
    chance_V = np.exp(logs)
    return chance_V / chance_V.sum()


def first_alarms(
    test: FallTest | RiseTest,
    course: Course,
    shape: tuple[int, int],
    *,
    runs: int,
    steps: int,
    spread: float,
    seed: int,
) -> NDArray[np.int64]:
    """Return the first step at which a test stops each run; ``steps`` where it does not."""
    rng = np.random.default_rng(seed)
    value_V = np.arange(shape[1] + 1) / shape[1]
    first_R = np.full(runs, steps)
    for step in range(steps):
        found_R = test.add(value_V, counts(rng, course(step), shape, runs, spread))
        first_R = np.where((found_R >= 1) & (first_R == steps), step, first_R)
        if (first_R < steps).all():
            break
    return first_R


def seed_alarms(
    probabilities: Sequence[float],
    shape: tuple[int, int],
    *,
    runs: int,
    steps: int,
    seed: int,
    distinct: int | None = None,
) -> NDArray[np.int64]:
    """Return the first step at which repeats stop each run, for answers of these probabilities.

    Args:
        probabilities: Of the possible answers, the same for every problem.
        shape: Problems and completions.
        runs: Number of runs.
        steps: Their length.
        seed: Of the simulation.
        distinct: Seeds of a group that differ; all if omitted.
    """
    rng, (groups, n) = np.random.default_rng(seed), shape
    test, chance = RepeatTest(), np.asarray(probabilities)
    # gains of the next completion by the set of answers that came before, as a table
    sets = list(itertools.product((False, True), repeat=len(chance)))
    row = {one: place for place, one in enumerate(sets)}
    repeated = [allowed(min(1.0, float(chance[list(one)].sum())), 1) for one in sets]
    gain_SHL = np.stack([test.gains([False, True], [p, p]) for p in repeated])
    after_SA = np.array([[row[_with(one, a)] for a in range(len(chance))] for one in sets])
    has_SA = np.array(sets)
    first_R = np.full(runs, steps)
    for step in range(steps):
        answer_RGN = rng.choice(len(chance), p=chance, size=(runs, groups, n))
        if distinct is not None:
            answer_RGN = answer_RGN[:, :, np.arange(n) % distinct]
        set_RG = after_SA[0][answer_RGN[:, :, 0]]
        gain_RL = np.zeros((runs, len(test.ODDS)))
        for place in range(1, n):
            answer_RG = answer_RGN[:, :, place]
            happened_RG = has_SA[set_RG, answer_RG].astype(int)
            gain_RL += gain_SHL[set_RG, happened_RG].sum(axis=1)
            set_RG = after_SA[set_RG, answer_RG]
        test.gain(gain_RL[:, None, :])
        found_R = test.evidence()[:, 0] >= math.log(1 / SEED_ODDS)
        first_R = np.where(found_R & (first_R == steps), step, first_R)
        if (first_R < steps).all():
            break
    return first_R


def _with(one: Sequence[bool], answer: int) -> tuple[bool, ...]:
    """Return a set of answers with one more."""
    return tuple(has or place == answer for place, has in enumerate(one))


def idle_odds(
    rate: float, shape: tuple[int, int], max_steps: int, steps: int, spread: float
) -> float:
    """Return a bound on the odds that in so many steps in a row no group's outcomes differ."""
    groups, n = shape
    chance_V = beta_binomial(rate, n, spread)
    none = float(chance_V[0] + chance_V[n]) ** groups
    # a streak begins at the first step, or after a step that is not idle
    return min(1.0, none**max_steps * (1 + (steps - max_steps) * (1 - none)))


def healthy_courses(rate: float) -> dict[str, Course]:
    """Return courses of a pass rate that never loses 35 % of a level it had."""
    courses: dict[str, Course] = {"constant": lambda step: rate}
    if rate <= 0.5:
        courses["rises to the double"] = lambda step: rate * (1 + min(1.0, step / 800))
    courses["falls by a quarter"] = lambda step: rate * (1 - 0.25 * min(1.0, step / 800))
    courses["waves of 15 %"] = lambda step: rate * (1 - 0.15 * (step // 50 % 2))
    return courses


def falls() -> dict[str, tuple[str, Course]]:
    """Return faults: the share that is watched, and its course."""
    faults: dict[str, tuple[str, Course]] = {
        "pass rate .5 to .25": ("pass", lambda s: 0.5 if s < BEGIN else 0.25),
        "pass rate .8 to .4": ("pass", lambda s: 0.8 if s < BEGIN else 0.4),
        "pass rate .5 to 0": ("pass", lambda s: 0.5 if s < BEGIN else 0.0),
        "pass rate .1 to 0": ("pass", lambda s: 0.1 if s < BEGIN else 0.0),
        "truncation .1 to 1 in 50": ("truncated", lambda s: min(1.0, 0.1 + max(0, s - BEGIN) / 50)),
    }
    for over in (1, 5, 20):
        faults[f"extraction lost in {over}"] = (
            "extraction",
            lambda s, over=over: 0.9 * (1 - min(1.0, max(0, s - BEGIN + 1) / over)),  # type: ignore[misc]
        )
    return faults


def made(name: str) -> FallTest | RiseTest:
    """Return the guard's test of this name, with its default bound."""
    config = Collapse.Config()
    if name == "truncated":
        return RiseTest(config.max_truncated or 0.9, ODDS[name])
    share = config.max_drop if name == "pass" else config.max_extraction_drop
    return FallTest(share or 0.5, ODDS[name])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; returns 1 if healthy runs were stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000, help="healthy runs in all")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--spread", type=float, default=2.0)
    parser.add_argument("--quick", action="store_true", help="few short runs of two shapes")
    asked = parser.parse_args(arguments)
    shapes, rates = SHAPES, RATES
    if asked.quick:
        shapes, rates, asked.runs, asked.steps = SHAPES[:1], (0.01, 0.5), 80, 150
    say = sys.stdout.write
    cells = [(s, r, c) for s in shapes for r in rates for c in healthy_courses(r).items()]
    each = max(1, math.ceil(asked.runs / len(cells)))
    say(f"collapse, healthy: {each} runs of {asked.steps} steps a cell\n")
    say("| problems x completions | pass rate | course | stopped |\n|---|---|---|---|\n")
    stopped = total = 0
    for number, (shape, rate, (name, course)) in enumerate(cells):
        first_R = first_alarms(
            made("pass"),
            course,
            shape,
            runs=each,
            steps=asked.steps,
            spread=asked.spread,
            seed=number,
        )
        alarms = int((first_R < asked.steps).sum())
        stopped, total = stopped + alarms, total + each
        say(f"| {shape[0]}x{shape[1]} | {rate} | {name} | {alarms} of {each} |\n")
        sys.stdout.flush()
    say(f"in all {stopped} of {total}\n\n")

    say("collapse, faults from step 100 on: steps until it is found, median of 50 (found)\n")
    say(f"| fault | {' | '.join(f'{g}x{n}' for g, n in shapes)} |\n|---|{'---|' * len(shapes)}\n")
    for fault, (name, course) in falls().items():
        row = []
        for shape in shapes:
            first_R = first_alarms(
                made(name), course, shape, runs=50, steps=500, spread=asked.spread, seed=1
            )
            found_R = first_R < 500
            delay = np.median(np.where(found_R, first_R - BEGIN + 1, np.inf))
            row.append(f"{delay:.0f} ({int(found_R.sum())})")
        say(f"| {fault} | {' | '.join(row)} |\n")
        sys.stdout.flush()

    say("\nseeds: runs of 100 steps\n")
    say("| answers | seeds | problems x completions | stopped | first step, median |\n")
    say("|---|---|---|---|---|\n")
    answers = {
        "yes or no": (0.5, 0.5),
        "95 % yes": (0.95, 0.05),
        "99.5 % sure": (0.995, 0.004, 0.001),
    }
    for (name, chances), shape in itertools.product(answers.items(), shapes):
        runs = max(4, 20_000 // shape[0] // len(answers) * (not asked.quick))
        for distinct in (None, 1, 2, 4):
            if distinct is not None and distinct >= shape[1]:
                continue
            first_R = seed_alarms(
                chances,
                shape,
                runs=runs if distinct is None else 20,
                steps=100,
                seed=1,
                distinct=distinct,
            )
            found_R = first_R < 100
            if distinct is None:
                stopped += int(found_R.sum())
            when = f"{np.median(first_R[found_R]) + 1:.0f}" if found_R.any() else "-"
            say(
                f"| {name} | {'own' if distinct is None else f'{distinct} of {shape[1]}'} | "
                f"{shape[0]}x{shape[1]} | {int(found_R.sum())} of {len(first_R)} | {when} |\n"
            )
            sys.stdout.flush()

    idle_steps = Idle.Config().max_steps
    say(f"\nidle: bound on the odds of a false alarm in 1,000 steps, max_idle_steps {idle_steps}\n")
    for shape in shapes:
        odds = {rate: idle_odds(rate, shape, idle_steps, 1000, asked.spread) for rate in rates}
        say(f"{shape[0]}x{shape[1]}: {', '.join(f'{r}: {o:.1e}' for r, o in odds.items())}\n")
        stopped += any(value > 1e-4 for value in odds.values())
    return int(stopped > 0)


if __name__ == "__main__":
    raise SystemExit(main())
