"""The evaluation tasks and what the plugin registers."""

import json
import os
from pathlib import Path

import pytest

from rlvr_core.api import Completion, EvalTask, Group, Judged, NoConfig
from rlvr_core.plugins.host import load_host
from rlvr_math import evals
from rlvr_math.arithmetic import Arithmetic
from rlvr_math.evals import ArithmeticHeldout, ArithmeticHeldoutGreedy, Gsm8kTest, report
from rlvr_math.gsm8k import Gsm8k
from rlvr_math.verifiers import Boxed

DATA = Path(os.environ.get("RLVR_DATA", Path(__file__).parents[4] / "shared" / "data"))


def judged(problem, text, finish="stop", n_tokens=4, passed=None):
    completion = Completion(
        (1,), (0,) * n_tokens, (0.0,) * n_tokens, (True,) * n_tokens, text, finish
    )
    verdict = Boxed(NoConfig()).verify(problem, completion)
    return Judged(completion, {"auto": verdict}, verdict.score, verdict.passed)


def test_heldout_problems_are_never_in_training():
    task = ArithmeticHeldout(ArithmeticHeldout.Config())
    train = {p.id for p in Arithmetic(Arithmetic.Config()).load()}
    ids = [p.id for p in task.problems()]
    assert len(set(ids)) == len(ids) == 256
    assert not train & set(ids)
    assert task.problems() == task.problems()


def test_sampled_and_greedy_differ_in_temperature_only():
    sampled = ArithmeticHeldout(ArithmeticHeldout.Config(n_problems=9))
    greedy = ArithmeticHeldoutGreedy(ArithmeticHeldoutGreedy.Config(n_problems=9))
    assert isinstance(sampled, EvalTask)
    assert sampled.problems() == greedy.problems()
    assert (sampled.sampling.temperature, greedy.sampling.temperature) == (1.0, 0.0)
    assert sampled.sampling.max_tokens == greedy.sampling.max_tokens == 44


def test_report_counts_by_hand():
    a, b, c = Arithmetic(Arithmetic.Config(n=3)).load()
    right = f"\\boxed{{{a.spec['answer']}}}"
    groups = [
        Group(a, (judged(a, right, n_tokens=2), judged(a, "85", "length", n_tokens=6)), 0),
        Group(b, (judged(b, "\\boxed{0}"),), 0),
        Group(c, (Judged(Completion.from_text("x"), {}, None, None),), 0),
    ]
    found = report(groups)
    assert found.n == 3
    assert found.metrics == pytest.approx(
        {
            "accuracy": (0.5 + 0.0) / 2,
            "format": (0.5 + 1.0 + 0.0) / 3,
            "length": (2 + 6 + 4 + 0) / 4,
            "truncated": 1 / 4,
            "unscored": 1 / 4,
        }
    )
    assert report([]).n == 0
    assert "accuracy" not in report(groups[2:]).metrics


def test_t38_evaluation_and_training_use_one_wording(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"question": "How many?", "answer": "#### 3"}))
    (trained,) = Gsm8k(Gsm8k.Config(path=str(path))).load()
    task = Gsm8kTest(Gsm8kTest.Config(path=str(path), max_tokens=77))
    (evaluated,) = task.problems()
    assert evaluated.id == "gsm8k_test_0"
    assert (evaluated.prompt, evaluated.stop, evaluated.verifier) == (
        trained.prompt,
        trained.stop,
        trained.verifier,
    )
    assert (task.sampling.temperature, task.sampling.max_tokens) == (0.0, 77)


@pytest.mark.parametrize(
    ("task", "file"),
    [
        (Gsm8kTest, "gsm8k/test.jsonl"),
        (evals.MathTest, "math/test_5000.jsonl.gz"),
        (evals.Aime24Test, "math/aime24.jsonl"),
        (evals.MinervaTest, "math/minerva_math.jsonl"),
        (evals.OlympiadBenchTest, "math/olympiadbench.jsonl.gz"),
    ],
)
def test_t73_every_problem_can_be_judged_by_the_graders_that_come_with_its_task(task, file):
    path = DATA / file
    if not path.exists():
        pytest.skip(f"no {path}")
    found = task(task.Config(path=str(path)))
    graders = [load_host().registry.find("verifier", name).load() for name in found.traits.graders]
    assert len(graders) == 2
    for problem in found.problems():
        for grader in graders:
            grader(grader.Config()).check(problem)
