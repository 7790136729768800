import hashlib
import json
import math
import shutil

import pytest

from rlvr_core.eval.in_run import Progress

TASK = {"use": "toy/letters", "with": {"count": 6}}
METRIC = "toy/letters:share_of_a"
STILL = {"steps": 30, "lr": 1e-12, "warmup_steps": 1}
GUARDS = [{"use": "core/updates", "off": True}]  # which would stop a run whose weights do not move


def early(**options):
    return Progress("t:m", **options)


def feed(stop, values):
    """How many of the values it takes to stop; None if they do not."""
    for step, value in enumerate(values):
        stop.observe(step, value)
        if stop.reason is not None:
            return step + 1
    return None


@pytest.mark.parametrize(
    ("options", "values", "stops_at"),
    [
        ({"patience": 2}, [0.5, 0.4, 0.5], 3),
        ({"patience": 2}, [0.5, 0.4, 0.6, 0.6, 0.5], 5),
        ({"patience": 3}, [0.1, 0.2, 0.3, 0.4], None),
        ({"patience": 1, "direction": "minimize"}, [3.0, 2.0, 1.0, 1.0], 4),
        # 0.125 and 0.25 are exact: a change of exactly min_delta is not more than it
        ({"patience": 1, "min_delta": 0.125}, [0.0, 0.25, 0.375], 3),
        ({"patience": 2, "min_delta": 0.125}, [0.0, 0.125, 0.25, 0.375], None),
        # small steps add up: they are held against the best, not against the one before
        ({"patience": 3, "min_delta": 0.25}, [0.0, 0.125, 0.25, 0.375, 0.5], None),
        ({"patience": 2}, [math.nan, 0.5, math.nan, math.inf], 4),
    ],
)
def test_when_it_stops(options, values, stops_at):
    assert feed(early(**options), values) == stops_at


def test_its_state_goes_on_and_another_metric_begins_anew():
    stop = early(patience=3)
    feed(stop, [0.5, 0.4])
    again = early(patience=3)
    again.load_state_dict(json.loads(json.dumps(stop.state_dict())))
    assert (again.best, again.best_step, again.waited) == (0.5, 0, 1)
    again.observe(2, 0.1)
    again.observe(3, 0.5)
    assert "has not risen in 3 evaluations (best 0.5 after 0 steps)" in again.reason
    other = Progress("t:other")
    other.load_state_dict(stop.state_dict())
    assert other.best is None


def section(**options):
    return {"tasks": [TASK], "every": 2, "early_stop": {"metric": METRIC, **options}}


def digest(run):
    """Everything a run leaves that must not depend on stops in between."""
    newest = (run / "checkpoints" / "latest").resolve()
    names = ("metrics.jsonl", "traces/rollouts.jsonl", "evals/index.jsonl")
    parts = [newest / "model.safetensors", newest / "trainer" / "optimizer.safetensors"]
    state = json.loads((newest / "trainer" / "state.json").read_text())
    files = [hashlib.sha256(path.read_bytes()).hexdigest() for path in parts]
    return [newest.name, state["early_stop"], *files, *((run / n).read_bytes() for n in names)]


def test_a_run_that_gets_no_better_stops_and_says_why(lab, model_dir):
    run = lab.run(
        model_dir, train=STILL, guards=GUARDS, eval=section(patience=2), checkpoint={"every": 20}
    )
    record = json.loads((run / "run.json").read_text())
    assert (record["outcome"], record["steps"], record["error"]) == ("stopped", 4, None)
    assert record["reason"].startswith(f"early stop: {METRIC} has not risen in 2 evaluations")
    assert (run / "checkpoints" / "latest").resolve().name == "step000004"  # off its schedule
    shown = lab.json("show", "last")
    assert (shown["outcome"], shown["reason"]) == ("stopped", record["reason"])
    assert "has not risen in 2 evaluations" in (run / "RESULTS.md").read_text()
    assert record["reason"] in lab.rlvr("show", "last").stdout

    # gone on with as it is, it has nothing to do; with more patience it has
    again = lab.rlvr("run", "--resume", "last", "--display", "plain")
    assert "nothing is left to do. early stop" in again.stderr
    assert json.loads((run / "run.json").read_text())["outcome"] == "stopped"
    patient = ("--set", "eval.early_stop.patience=3", "--display", "none")
    lab.rlvr("run", "--resume", "last", *patient)
    assert json.loads((run / "run.json").read_text())["steps"] == 6
    rest = ("--set", "eval.early_stop=null", "--set", "train.steps=7", "--display", "none")
    lab.rlvr("run", "--resume", "last", *rest)
    record = json.loads((run / "run.json").read_text())
    assert (record["outcome"], record["reason"], record["steps"]) == ("finished", None, 7)


def test_resumed_it_stops_where_it_would_have(lab, model_dir):
    sections = {
        "train": STILL,
        "guards": GUARDS,
        "eval": section(patience=3),
        "checkpoint": {"every": 1},
    }
    straight = lab.run(model_dir, **sections)
    expected = digest(straight)
    assert expected[0] == "step000006"
    shutil.move(straight, lab.folder / "straight")
    # ended at step 3, where an evaluation is made that a longer run would not make
    sections["train"] = STILL | {"steps": 3}
    short = lab.run(model_dir, **sections)
    lab.rlvr("run", "--resume", "last", "--set", "train.steps=30", "--display", "none")
    found = digest(short)
    assert found[:4] == expected[:4]
    assert json.loads((short / "run.json").read_text())["outcome"] == "stopped"


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("toy/leters:accuracy", "eval.tasks has: toy/letters"),
        ("toy/letters:acuracy", "it will have: longest, share_of_a, mine"),
        ("accuracy", "early_stop.metric"),
    ],
)
def test_what_can_not_be_watched_is_an_error_at_the_start(lab, model_dir, metric, words):
    stop = {"tasks": [TASK], "every": 1, "early_stop": {"metric": metric}}
    lab.write_run_config(model_dir, eval=stop)
    done = lab.rlvr("run", "config.yaml", "--dry-run", check=2)
    assert words in done.stderr
    assert "config.yaml:" in done.stderr
    assert not (lab.folder / "runs").exists()


def test_options_without_an_effect_are_errors(lab, model_dir):
    lab.write_run_config(model_dir, eval=section() | {"every": 0})
    assert "set eval.every" in lab.rlvr("run", "config.yaml", check=2).stderr
    for odd in ({"patience": 0}, {"min_delta": -1}, {"direction": "up"}, {"delta": 1}):
        lab.write_run_config(model_dir, eval=section(**odd))
        assert next(iter(odd)) in lab.rlvr("run", "config.yaml", check=2).stderr
