import json

import pytest
import yaml

from tests.support.run_records import lines

LAX = "--allow-truncation"


def test_t71_an_evaluation_is_recorded_with_its_engine_and_summed_up(lab, model_dir):
    arguments = ("eval", model_dir, "--task", "letters", "--grader", "toy/odd", LAX)
    found = lab.json(*arguments, "--with", "hopeless=4", "--out", "out")
    out = lab.folder / "out" / "toy_letters"
    completions, results = lines(out / "completions.jsonl"), lines(out / "results.jsonl")
    spec = json.loads((out / "spec.json").read_text())
    ids = [f"p{i}" for i in range(24)]
    assert [row["problem_id"] for row in completions] == ids
    assert [row["problem_id"] for row in results] == ids
    assert {row["spec"] for row in completions + results} == {spec["hash"][:16]}
    assert spec["spec"]["sampling"]["temperature"] == 0.0
    assert spec["engine"]["use"] == "core/transformers"

    summary = found["tasks"]["toy/letters"]
    assert json.loads((out / "summary.json").read_text()) == summary
    assert json.loads((lab.folder / "out" / "summary.json").read_text()) == found
    texts = [row["text"] for row in completions]
    passed = [text[:1] < chr(110) for text in texts]
    assert [row["passed"] for row in results] == [None] * 4 + passed[4:]
    accuracy = summary["metrics"]["accuracy"]
    assert accuracy["value"] == pytest.approx(sum(passed[4:]) / 20)
    assert (accuracy["n"], accuracy["method"]) == (20, "wilson")
    assert summary["metrics"]["unscored"]["value"] == pytest.approx(4 / 24)
    odd = summary["graders"]["toy/odd"]["passed"]
    assert odd["value"] == pytest.approx(sum(len(text) % 2 for text in texts) / 24)
    short = summary["graders"]["toy/early"]["parts"]["short"]
    assert short["value"] == pytest.approx(sum(len(text) < 8 for text in texts[4:]) / 20)
    assert summary["graders"]["toy/early"]["statuses"] == {"ok": 20, "unscorable": 4}

    level = [passed[i] for i in range(4, 24) if i % 3 == 1]
    assert summary["strata"]["level"]["1"]["value"] == pytest.approx(sum(level) / len(level))
    b = [passed[i] for i in range(4, 24) if i % 2]
    assert summary["strata"]["kinds"]["b"]["value"] == pytest.approx(sum(b) / len(b))
    mine = summary["task_metrics"]["share_of_a"]
    assert mine["value"] == pytest.approx("".join(texts).count("a") / len("".join(texts)))
    for one in [*summary["metrics"].values(), *summary["task_metrics"].values()]:
        assert one["n"] > 0
        assert one["low"] is None or one["low"] <= one["value"] <= one["high"]


def test_t72_truncated_answers_are_an_error(lab, model_dir):
    arguments = ("eval", model_dir, "--task", "toy/letters", "--out", "out")
    done = lab.rlvr(*arguments, check=1)
    assert "of the answers were cut off at 12 tokens" in done.stderr
    assert "accuracy" in done.stdout
    summary = json.loads((lab.folder / "out" / "toy_letters" / "summary.json").read_text())
    rows = lines(lab.folder / "out" / "toy_letters" / "completions.jsonl")
    share = sum(row["finish_reason"] == "length" for row in rows) / 24
    assert summary["truncation_rate"] == pytest.approx(share)
    assert summary["spoilt"] is True
    lab.rlvr(*arguments, LAX)


def test_a_folder_never_takes_results_of_another_model(lab, model_dir, other_model):
    task = ("--task", "toy/letters", LAX)
    lab.rlvr("eval", other_model, *task, "--out", "b")
    other = lab.rlvr("eval", model_dir, *task, "--out", "b", check=2)
    assert "another evaluation" in other.stderr
    assert "model.sha256" in other.stderr


def test_a_problem_twice_is_refused(lab, model_dir):
    done = lab.rlvr("eval", model_dir, "--task", "letters", "--with", "twice=true", check=2)
    assert "problem id 'p0' is twice" in done.stderr


def test_a_task_that_gives_no_problems_is_named(lab, model_dir):
    said = "toy/letters: its problems() gave a Problem, nothing to iterate over"
    done = lab.rlvr("eval", model_dir, "--task", "letters", "--with", "single=true", check=3)
    assert said in done.stderr
    task = {"use": "toy/letters", "with": {"single": True}}
    lab.write_run_config(model_dir, eval={"every": 1, "tasks": [task]})
    done = lab.rlvr("run", "config.yaml", "--display", "none", check=3)
    assert said in done.stderr
    assert "config.yaml" in done.stderr
    assert not (lab.folder / "evals").exists()


def test_a_run_is_evaluated_by_name_with_its_own_prompt(lab, model_dir):
    lab.write_run_config(model_dir)
    config = yaml.safe_load((lab.folder / "config.yaml").read_text())
    run = lab.run(model_dir, data=config["data"] | {"prompt": {"system": "Be brief. "}})

    evaluation = {"tasks": [{"use": "toy/letters", "with": {"count": 3}}], "max_truncated": 1.0}
    (lab.folder / "eval.yaml").write_text(yaml.safe_dump(evaluation))
    newest = lab.json("eval", "last", "--config", "eval.yaml")
    assert newest["folder"] == f"evals/{run.name}-step000002"
    rows = lines(lab.folder / newest["folder"] / "toy_letters" / "completions.jsonl")
    assert [row["prompt"] for row in rows] == [f"Be brief. \n\nSay {i * 37}:" for i in range(3)]
    lab.rlvr("eval", "lab", "--step", "1", "--config", "eval.yaml", "--out", "first")
    assert "step 7" in lab.rlvr("eval", "lab", "--step", "7", "--task", "letters", check=2).stderr

    # T79: a checkpoint that was never finished is not evaluated
    (run / "checkpoints" / "step000002" / "COMPLETE").unlink()
    checkpoint = run / "checkpoints" / "step000002"
    done = lab.rlvr("eval", checkpoint, "--config", "eval.yaml", "--out", "half", check=4)
    assert "never finished" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((), 2, "which model?"),
        (("MODEL",), 2, "tasks"),
        (("MODEL", "--task", "leters"), 2, "did you mean: toy/letters"),
        (("no/such/folder", "--task", "letters"), 4, "does not exist"),
        (("nothing", "--task", "letters"), 2, "there is no run 'nothing'"),
    ],
)
def test_mistakes_are_explained(lab, model_dir, arguments, code, text):
    words = [model_dir if word == "MODEL" else word for word in arguments]
    done = lab.rlvr("eval", *words, check=code)
    assert text in done.stderr
    assert "Traceback" not in done.stderr
