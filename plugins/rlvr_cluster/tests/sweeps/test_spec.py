"""What the file of a sweep may hold, and that all its trials are checked before one begins."""

from pathlib import Path

import pytest
import yaml

from rlvr_cluster.sweeps.axes import Choice, Range, drawn
from rlvr_cluster.sweeps.spec import read_sweep
from rlvr_cluster.sweeps.sweep import CheckedSweep
from rlvr_cluster.sweeps.trials import make_trials
from rlvr_core.api import ConfigError, RlvrError
from rlvr_core.plugins.host import load_host
from tests.support.tables import table


def trials_of(path, host):
    sweep = read_sweep(path)
    return make_trials(sweep, host)


def refusal(path, host):
    with pytest.raises(ConfigError) as caught:
        trials_of(path, host)
    return caught.value.complaints


def test_a_grid_has_every_combination_and_the_last_parameter_changes_fastest(write, host):
    trials = trials_of(write(seeds=2), host)
    assert [list(trial.values.values()) for trial in trials] == [
        [1e-3, 2],
        [1e-3, 4],
        [1e-4, 2],
        [1e-4, 4],
    ]
    last = trials[-1].runs
    assert [run.seed for run in last] == [5, 6]  # from the config's run.seed on
    assert last[1].config["train"]["lr"] == 1e-4
    assert last[1].config["run"]["seed"] == 6
    assert last[1].config["run"]["name"] == "tries-003-s6"
    assert last[1].config["train"]["steps"] == 4


def test_a_trials_config_alone_is_the_same_run(write, host):
    from rlvr_core.config.resolve import resolve_file

    run = trials_of(write(seeds=[9]), host)[2].runs[0]
    run.prepare()
    again = resolve_file(run.file, [], host).config
    assert (again.train.lr, again.sampling.n, again.run.seed) == (1e-4, 2, 9)
    assert again.run.dir == "runs"


def test_values_may_be_whole_components(write, host):
    losses = ["grpo", {"use": "dapo", "with": {"clip_high": 0.28}}]
    trials = trials_of(write(parameters={"loss": losses}), host)
    assert trials[0].runs[0].config["loss"]["use"] == "core/grpo"
    assert trials[1].runs[0].config["loss"]["with"]["clip_high"] == 0.28


def test_faults_of_all_trials_are_told_at_once_with_their_keys(write, host):
    told = refusal(
        write(parameters={"train.lrr": [1, 2], "sampling.n": [4, "many"], "train.steps": [4]}),
        host,
    )
    wrong = {one.where.partition(" ")[2]: one for one in told}
    assert "(parameters.train.lrr)" in wrong
    assert "lrr" in wrong["(parameters.train.lrr)"].what
    assert "did you mean: lr?" in str(wrong["(parameters.train.lrr)"])
    many = wrong["(parameters.sampling.n)"]
    assert many.what.startswith("trials 1, 3: ")
    assert "'many'" in many.what
    assert "sweep.yaml:" in many.where
    assert len(told) == 2


@pytest.mark.parametrize(("keys", "words"), table(__file__, "wrong"))
def test_what_is_wrong_is_said_before_anything_runs(write, host, tmp_path, keys, words):
    if keys == {"metric": "reward/meen"}:  # a reward's name is the user's own
        assert trials_of(write(**keys), host)
        return
    told = refusal(write(**keys), host)
    assert any(words in str(one) for one in told), told
    assert not (tmp_path / "sweeps").exists()


@pytest.mark.parametrize(("distribution", "words"), table(__file__, "distributions"))
def test_distributions_that_are_none(write, host, distribution, words):
    given = {"train.lr": distribution}
    (told,) = refusal(write(method="random", trials=2, parameters=given), host)
    assert words in told.what
    assert "(parameters.train.lr)" in told.where


def test_yaml_that_is_none_is_told_with_its_line(tmp_path, host):
    path = tmp_path / "sweep.yaml"
    path.write_text("name: a\nparameters: [\n")
    (told,) = refusal(path, host)
    assert "sweep.yaml:" in told.where


def test_draws_stay_in_their_bounds_and_have_the_distribution_they_claim():
    axes = {
        "u": Range("uniform", 2.0, 4.0),
        "l": Range("log_uniform", 1e-6, 1e-2),
        "i": Range("integer", 1, 3),
        "c": Choice(("a", "b")),
    }
    many = [drawn(axes, 0, trial) for trial in range(2000)]
    uniform = [one["u"] for one in many]
    assert 2 <= min(uniform) < 2.01
    assert 3.99 < max(uniform) <= 4
    # half of the numbers lie below the middle of the logarithms, 1e-4
    assert 0.45 < sum(one["l"] < 1e-4 for one in many) / 2000 < 0.55
    assert min(one["l"] for one in many) >= 1e-6
    assert max(one["l"] for one in many) <= 1e-2
    assert {one["i"] for one in many} == {1, 2, 3}
    assert 0.45 < sum(one["c"] == "a" for one in many) / 2000 < 0.55


def test_a_draw_does_not_depend_on_other_parameters_or_the_number_of_trials(write, host):
    one = {"train.lr": {"log_uniform": [1e-5, 1e-3]}}
    two = one | {"sampling.n": {"integer": [2, 8]}}
    few = trials_of(write(method="random", trials=2, parameters=one), host)
    more = trials_of(write(method="random", trials=5, parameters=two), host)
    assert [t.values["train.lr"] for t in few] == [t.values["train.lr"] for t in more[:2]]
    other = trials_of(write(method="random", trials=2, seed=1, parameters=one), host)
    assert few[0].values != other[0].values


def test_the_example_is_a_sweep(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[4])
    trials = trials_of(Path("examples/sweep.yaml"), load_host())
    assert [trial.values["sampling.n"] for trial in trials] == [4, 8, 4, 8]
    assert trials[0].runs[0].config["train"]["steps"] == 20


def test_a_misspelt_metric_of_an_evaluation_is_refused_with_names_like_it(monkeypatch, tmp_path):
    root = Path(__file__).parents[4]
    given = yaml.safe_load((root / "examples/sweep.yaml").read_text())
    given["config"] = str(root / "examples/sweep-base.yaml")
    given["metric"] = "arithmetic-heldout:acuracy"
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(given, sort_keys=False))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RlvrError) as caught:
        CheckedSweep.read(Path("sweep.yaml"), None)
    (complaint,) = caught.value.complaints  # once, though there are four trials
    assert complaint.what == "task 'math/arithmetic-heldout' has no metric 'acuracy'"
    assert complaint.where.startswith("sweep.yaml:")
    assert complaint.remedy[0] == "did you mean: accuracy?"
    assert not (tmp_path / "sweeps").exists()
