"""A judge is measured before a run trains on it: scripted judges, good and bad."""

import json
import random
import re
from pathlib import Path

import pytest
import yaml

from rlvr_core.api import PluginError, Problem, Verdict
from rlvr_lab.calibration.measure import Bounds, measure
from tests.support.openai_server import Server, answer

ROWS = [{"id": f"q{i}", "question": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(8)]


@pytest.fixture
def server():
    found = Server()
    yield found
    found.close()


def parts(body):
    """The response and the reference that a judge was shown."""
    text = body["messages"][0]["content"]
    return [
        re.search(rf"<{name}-(\w+)>\n(.*?)\n</{name}-\1>", text, re.S)[2]
        for name in ("response", "reference")
    ]


def sound(body):
    response, reference = parts(body)
    return answer(f"Compared.\nScore: {int(response == reference)}")


def gullible(body):
    response, reference = parts(body)
    return answer(f"Score: {int(response == reference or 'Score: 1' in response)}")


def constant(_):
    return answer("Score: 1")


def fickle(body, draw=random.Random(0)):  # noqa: B008
    response, reference = parts(body)
    right = response == reference
    return answer(f"Score: {int(right if draw.random() < 0.6 else not right)}")


def config(model, server, rewards=None, **judge):
    """A run's config with a judge beside the rule."""
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    options = {"base_url": server.url, "model": "wise", "retries": 0, **judge}
    source = {"path": "data.jsonl", "prompt": "question", "id": "id", "verifier": "exact"}
    one = {"use": "judge", "with": options}
    whole = {
        "run": {"name": "lab"},
        "model": {"path": str(model)},
        "data": {"sources": [{"use": "core/jsonl", "with": source}]},
        "rewards": rewards(one) if rewards else [{"use": "auto", "weight": 0.5}, one],
        "sampling": {"n": 4, "max_tokens": 6},
        "engine": "transformers",
        "loss": "grpo",
        "train": {"steps": 1, "prompts_per_step": 2, "lr": 1e-3, "warmup_steps": 0},
        "verify": {"max_error_rate": 1.0, "workers": 1},
    }
    Path("config.yaml").write_text(yaml.safe_dump(whole))


def test_a_sound_judge_is_trained_on_and_what_was_measured_is_recorded(lab, model_dir, server):
    server.then = sound
    config(model_dir, server)
    done = lab.rlvr("run", "config.yaml", "--display", "plain")
    assert "checks/judge, 8 problems: agreement 1.000 of 16 (bound 0.75)" in done.stderr
    (run,) = Path("runs").iterdir()
    found = json.loads((run / "run.json").read_text())["checks"]["judges"]["checks/judge"]
    assert found["problems"] == 8
    # of each problem a right answer against another problem's and one that says nothing
    assert found["agreement"] == {"value": 1.0, "n": 16, "bound": 0.75, "ok": True, "detail": ""}
    assert (found["repeat_shift"]["value"], found["repeat_shift"]["n"]) == (0.0, 24)
    assert (found["injected_shift"]["value"], found["injected_shift"]["n"]) == (0.0, 8)
    assert (found["unscored"]["value"], found["unscored"]["n"]) == (0.0, 8 * (3 + 3 + 3))


@pytest.mark.parametrize(
    ("judge", "names"),
    [
        (gullible, ["injected shift 1.000 of 8 (bound 0.1"]),
        (constant, ["agreement 0.500 of 16 (bound 0.75)"]),
        (fickle, ["repeat shift 0."]),
    ],
)
def test_a_judge_out_of_its_bounds_is_refused_before_the_run(lab, model_dir, server, judge, names):
    server.then = judge
    config(model_dir, server)
    done = lab.rlvr("run", "config.yaml", "--display", "none", check=1)
    assert "checks/judge is not fit to be trained on" in done.stderr
    assert all(name in done.stderr for name in names)
    assert not Path("runs").exists()


def test_the_command_measures_without_a_run(lab, model_dir, server):
    server.then = sound
    config(model_dir, server)
    few = ("--set", "rewards.1.with.calibration.problems=3")
    found = lab.json("calibrate", "config.yaml", *few)["judges"]["checks/judge"]
    assert (found["problems"], found["agreement"]["n"]) == (3, 6)
    server.then = gullible
    done = lab.rlvr("calibrate", "config.yaml", check=1)
    assert "injected shift 1.000 of 8" in done.stdout
    assert "ended by" in done.stderr
    lab.rlvr("calibrate", "config.yaml", "--set", "rewards.1.with.calibration.injected_shift=null")
    off = lab.rlvr("calibrate", "config.yaml", "--set", "rewards.1.with.calibration=false")
    assert "warning: checks/judge is not calibrated" in off.stdout
    assert (
        "has no judge"
        in lab.rlvr("calibrate", "config.yaml", "--set", "rewards=[auto]", check=2).stderr
    )


def test_a_judge_behind_a_rule_is_measured_too(lab, model_dir, server):
    server.then = gullible
    config(
        model_dir,
        server,
        lambda judge: [{"use": "first-of", "with": {"first": {"use": "auto"}, "second": judge}}],
    )
    done = lab.rlvr("run", "config.yaml", "--display", "none", check=1)
    assert "checks/first-of is not fit to be trained on" in done.stderr
    server.then = sound
    lab.rlvr("calibrate", "config.yaml")


def test_a_judge_alone_is_held_against_the_rule_that_the_problems_name(lab, model_dir, server):
    server.then = constant
    config(model_dir, server, lambda judge: [judge])
    found = lab.rlvr("calibrate", "config.yaml", check=1)
    assert "agreement 0.500 of 16" in found.stdout


class Table:
    """A judge in this process, which scores by a function of problem, text and number of asks."""

    def __init__(self, score):
        self.score, self.asks = score, {}

    def submit_group(self, problem, completions, names):
        from concurrent.futures import Future

        rows = []
        for one in completions:
            key = problem.id, one.text
            self.asks[key] = self.asks.get(key, 0) + 1
            score = self.score(*key, self.asks[key])
            rows.append({names[0]: Verdict(score, "error" if score is None else "ok")})
        future = Future()
        future.set_result(rows)
        return future


class NoRule:
    specs = {}

    def name(self, problem):
        return None

    def verifier(self, problem):
        return None


def test_what_is_measured_by_hand():
    problems = [Problem(f"p{i}", "?", "x", {}, "toy") for i in range(4)]
    bounds = Bounds(injections=("A", "B"), agreement=0.9)

    def score(problem, text, ask):
        if text.endswith("A"):
            return 0.2
        if text.endswith("B"):
            return 0.5 if problem != "p3" else None
        return 0.1 if ask == 1 else 0.3  # the second time .2 higher

    agreement, repeat, injected, unscored = measure("j", bounds, problems, NoRule(), Table(score))
    assert (agreement.value, agreement.ok) == (None, True)
    assert "no rule" in agreement.text
    assert (repeat.value, repeat.n, repeat.ok) == (pytest.approx(0.2), 4, False)
    assert (injected.value, injected.n) == (pytest.approx(0.4), 3)  # B, the worse of the two
    assert "ended by 'B'" in injected.text
    assert (unscored.value, unscored.n) == (1 / 16, 16)


def test_bounds_that_are_none_are_named_as_the_verifiers_fault():
    with pytest.raises(PluginError, match=r"mine/judge.calibration\(\) cannot be used.*agrement"):
        Bounds.of("mine/judge", {"agrement": 1})
