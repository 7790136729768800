"""The generated constraints: splits, demonstrations, and that a tiny model learns them."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from rlvr_core.api import Completion, DatasetLoader, Demonstrator, EvalTask
from rlvr_devkit.conformance.as_tests import conformance
from rlvr_ifeval.synthetic import SYNTHETIC, Heldout, HeldoutGreedy, Synthetic, Verifier
from tests.support.tables import table

ROOT = Path(__file__).parents[3]
CASES = table(__file__, "cases")

test_verifier_conforms = conformance(Verifier, cases=CASES)


def problems(**options):
    return list(Synthetic(Synthetic.Config(**options)).load())


def combination(problem):
    return json.dumps(problem.spec, sort_keys=True)


def passed(problem, text):
    return Verifier(Verifier.Config()).verify(problem, Completion.from_text(text)).passed


def test_held_out_combinations_are_never_trained_on_but_their_parts_are():
    train, heldout = problems(), problems(split="heldout")
    ids = [problem.id for problem in train + heldout]
    assert len(set(ids)) == len(ids) == 120 * 36
    unseen = set(map(combination, heldout))
    assert len(unseen) == 24
    assert not unseen & set(map(combination, train))
    for split in (train, heldout):
        used = {id for problem in split for id in problem.spec["instruction_id_list"]}
        assert used == set(SYNTHETIC.ids)


def test_a_problem_says_what_it_asks():
    for problem in problems(n=200):
        Verifier(Verifier.Config()).check(problem)
        for constraint in Verifier(Verifier.Config()).constraints(problem):
            assert constraint.wording in problem.prompt
        assert 2 <= len(problem.spec["kwargs"]) == problem.tags["constraints"] <= 3


def test_order_depends_on_the_seed_only():
    assert problems(n=50) == problems(n=50) != problems(n=50, seed=1)


def test_demonstrations_are_of_training_problems_and_some_mind_the_constraints():
    loader = Synthetic(Synthetic.Config())
    assert isinstance(loader, DatasetLoader)
    assert isinstance(loader, Demonstrator)
    shown = list(loader.demonstrations(3000, seed=5))
    assert shown == list(loader.demonstrations(3000, seed=5))
    assert shown != list(loader.demonstrations(3000, seed=6))
    heldout = set(map(combination, problems(split="heldout")))
    assert not heldout & {combination(problem) for problem, _ in shown}
    outcomes = {True: [], False: []}
    for problem, text in shown:
        outcomes[text.startswith("Sure!")].append(passed(problem, text))
    assert 0.35 < len(outcomes[True]) / 3000 < 0.45
    assert 0.65 < sum(outcomes[False]) / len(outcomes[False]) < 0.9
    assert sum(outcomes[True]) / len(outcomes[True]) < 0.2


def test_tasks_differ_in_temperature_only():
    sampled, greedy = (kind(kind.Config(n_problems=64)) for kind in (Heldout, HeldoutGreedy))
    assert isinstance(sampled, EvalTask)
    assert sampled.problems() == greedy.problems()
    assert len(sampled.problems()) == 64
    assert (sampled.sampling.temperature, greedy.sampling.temperature) == (1.0, 0.0)
    assert min(Counter(map(combination, Heldout(Heldout.Config()).problems())).values()) >= 3


@pytest.mark.slow
@pytest.mark.timeout(1500)  # makes a tiny model and has it learn; on a busy machine minutes each
def test_a_tiny_model_learns_unseen_combinations(tmp_path):
    environment = os.environ | {"RLVR_CACHE": str(tmp_path / "cache")}
    command = [str(Path(sys.executable).with_name("rlvr")), "run", "examples/constraints.yaml",
               "--set", f"run.dir={tmp_path / 'runs'}"]  # fmt: skip
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    (index,) = (tmp_path / "runs").glob("*/evals/index.jsonl")
    rows = [json.loads(line) for line in index.read_text().splitlines()]
    sampled = {row["step"]: row["metrics"]["accuracy"] for row in rows
               if row["task"] == "ifeval/synthetic-heldout"}  # fmt: skip
    assert sampled[0] <= 0.5
    assert sampled[200] >= 0.8
