"""One notion of better per metric: for the best checkpoint and for early stopping alike."""

import json
import math

import pytest

from rlvr_core.api import ConfigError, Metric
from rlvr_core.eval.direction import direction_of, improves


class Declares:
    reports = (
        Metric("cost", "", "", better="down"),
        Metric("cost/<part>", "", "", better="down"),
        Metric("cost/gain", "", "", better="up"),
        Metric("truncated", "", "", better="up"),
        Metric("length", "", ""),
    )


@pytest.mark.parametrize(
    ("name", "stated", "direction"),
    [
        ("cost", None, "minimize"),
        ("cost/level_3", None, "minimize"),
        ("cost/gain", None, "maximize"),  # its own declaration, before the family's
        ("truncated", None, "maximize"),  # the task's declaration, before the usual meaning
        ("unscored", None, "minimize"),
        ("accuracy", None, "maximize"),
        ("pass@4", None, "maximize"),
        ("length", None, "maximize"),
        ("length", "minimize", "minimize"),
    ],
)
def test_the_direction_is_the_metrics_own(name, stated, direction):
    assert direction_of(name, Declares(), stated, "here") == direction


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("cost", "maximize"),
        ("accuracy", "minimize"),
    ],
)
def test_a_stated_direction_that_contradicts_it_is_refused(name, stated):
    with pytest.raises(ConfigError, match=f"{stated} contradicts the metric '{name}'"):
        direction_of(name, Declares(), stated, "here")


@pytest.mark.parametrize(
    ("value", "best", "direction", "delta", "better"),
    [
        (1.0, None, "maximize", 0.0, True),
        (2.0, 1.0, "maximize", 0.0, True),
        (1.0, 1.0, "maximize", 0.0, False),
        (0.0, 1.0, "minimize", 0.0, True),
        (1.5, 1.0, "maximize", 0.5, False),
        (0.25, 1.0, "minimize", 0.5, True),
        (math.nan, None, "maximize", 0.0, False),
        (math.nan, 1.0, "maximize", 0.0, False),
        (math.inf, 1.0, "maximize", 0.0, False),
        (-math.inf, 1.0, "minimize", 0.0, False),
    ],
)
def test_what_improves(value, best, direction, delta, better):
    assert improves(value, best, direction, delta) is better


def planned(lab, model_dir, plan, keep, steps=5, early=None, tasks=1, **sections):
    """Run with metrics as planned by policy version; the folder and what each version had."""
    task = {"use": "toy/planned", "with": {"plan": plan}}
    section = {"tasks": [task] * tasks, "every": 1, "early_stop": early}
    return lab.run(
        model_dir,
        train={"steps": steps, "lr": 1e-3, "warmup_steps": 0},
        eval=section,
        checkpoint={"every": 0, "keep": 1, "keep_best": keep},
        **sections,
    )


def best_of(run):
    """The step that ``best`` points at; None if there is no such link."""
    link = run / "checkpoints" / "best"
    return int(link.resolve().name.removeprefix("step")) if link.exists() else None


FALLS = [9.0, 5.0, 3.0, 4.0, 3.0, 8.0]  # of versions 0 to 5; the least is first reached at 2


@pytest.mark.parametrize(
    ("metric", "values", "early", "best"),
    [
        ("mine", FALLS, {"patience": 9, "direction": "minimize"}, 2),  # the configuration says so
        ("cost", [0.0, "nan", 2.0, "-inf", None, 1.0], None, 5),
        ("gain", [0.0, "nan", "nan", None, "inf", "nan"], None, None),
    ],
)
def test_the_best_checkpoint(lab, model_dir, metric, values, early, best):
    named = f"toy/planned:{metric}"
    early = early and {"metric": named, **early}
    run = planned(lab, model_dir, {metric: values}, named, early=early)
    record = json.loads((run / "run.json").read_text())
    assert (record["outcome"], record["steps"]) == ("finished", 5)
    assert best_of(run) == best


def test_both_stop_and_keep_by_one_direction(lab, model_dir):
    named = "toy/planned:cost"
    run = planned(lab, model_dir, {"cost": FALLS}, named, early={"metric": named, "patience": 2})
    record = json.loads((run / "run.json").read_text())
    assert (record["outcome"], record["steps"]) == ("stopped", 4)
    assert "has not fallen in 2 evaluations (best 3 after 2 steps)" in record["reason"]
    assert best_of(run) == 2


def test_a_second_task_of_the_same_name_and_a_metric_that_is_absent_for_a_while(lab, model_dir):
    named = "toy/planned#2:cost/part"
    plan = {"cost/part": [9.0, None, 4.0, None, 2.0, 3.0], "gain": [1.0]}
    early = {"metric": named, "patience": 3}
    run = planned(lab, model_dir, plan, named, early=early, tasks=2)
    assert json.loads((run / "run.json").read_text())["outcome"] == "finished"
    assert best_of(run) == 4


def test_resumed_it_goes_on_from_its_best_and_another_metric_begins_anew(lab, model_dir):
    plan = {"cost": [9.0, 5.0, 3.0, 4.0, 3.5, 2.0], "gain": [0.0, 50.0, 9.0, 7.0, 8.0, 7.5]}
    run = planned(lab, model_dir, plan, "toy/planned:cost", steps=3)
    assert best_of(run) == 2
    more = ("run", "--resume", "last", "--display", "none", "--set")
    lab.rlvr(*more, "train.steps=4")
    assert best_of(run) == 2
    lab.rlvr(*more, "train.steps=5", "--set", "checkpoint.keep_best=toy/planned:gain")
    # 7.5 is not above 50, but no checkpoint was ever the best by this metric
    assert best_of(run) == 5
    state = json.loads((run / "checkpoints" / "latest" / "trainer" / "state.json").read_text())
    wanted = {"metric": "toy/planned:gain", "direction": "maximize"}
    assert state["best"] == {"best_step": 5, "best": 7.5, "waited": 0, **wanted}


def test_a_contradiction_is_refused_before_the_run(lab, model_dir):
    task = {"use": "toy/planned", "with": {"plan": {"cost": [1.0]}}}
    early = {"metric": "toy/planned:cost", "direction": "maximize"}
    lab.write_run_config(model_dir, eval={"tasks": [task], "every": 1, "early_stop": early})
    done = lab.rlvr("run", "config.yaml", "--dry-run", check=2)
    assert "contradicts the metric 'cost', which is declared to improve by falling" in done.stderr
