"""What `rlvr compare` finds and refuses, and its p-values by hand."""

import json
from pathlib import Path

import pytest
import yaml

from rlvr_core.cli.main import main
from rlvr_core.eval.spec import Spec, ids_hash
from rlvr_lab.compare import compare

LAX = "--allow-truncation"


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_t74_compare_refuses_and_says_what_differs(lab, model_dir, other_model):
    task = ("--task", "toy/letters", LAX)
    lab.rlvr("eval", model_dir, *task, "--out", "a")
    lab.rlvr("eval", other_model, *task, "--out", "b")
    lab.rlvr("eval", other_model, *task, "--with", "stop=e", "--out", "stops")
    refused = lab.rlvr("compare", "a", "stops", check=2)
    assert 'options.stop: "" and "e"' in refused.stderr
    assert "problems.sha256" in refused.stderr
    (found,) = lab.json("compare", "a", "b")["tasks"]
    first, second = (lines(lab.folder / f / "toy_letters" / "results.jsonl") for f in "ab")
    pairs = {
        one["problem_id"]: (one["passed"], other["passed"])
        for one, other in zip(first, second, strict=True)
    }
    assert found["gained"] == [id_ for id_, pair in pairs.items() if pair == (False, True)]
    assert found["lost"] == [id_ for id_, pair in pairs.items() if pair == (True, False)]
    change = sum(two - one for one, two in pairs.values()) / 24
    assert found["difference"]["value"] == pytest.approx(change)
    assert found["n"] == 24
    assert found["differs"] == []
    shown = lab.rlvr("compare", "a/toy_letters", "b/toy_letters").stdout
    assert f"exact paired test (sign flips): p = {found['p']:.4g}\n" in shown
    assert found["p_holm"] == found["p"]

    # a line that went missing is noticed, not averaged away
    results = lab.folder / "b" / "toy_letters" / "results.jsonl"
    results.write_text("".join(results.read_text().splitlines(keepends=True)[1:]))
    assert "without results: p0, 1 in all" in lab.rlvr("compare", "a", "b", check=2).stderr


def test_t38_a_base_model_is_compared_with_a_run_when_asked_in_the_same_way(lab, model_dir):
    lab.write_run_config(model_dir)
    config = yaml.safe_load((lab.folder / "config.yaml").read_text())
    lab.run(model_dir, data=config["data"] | {"prompt": {"system": "Be brief. "}})
    task = ("--task", "toy/letters", "--with", "count=3", LAX)
    lab.rlvr("eval", "lab", "--step", "1", *task, "--out", "first")
    lab.rlvr("eval", model_dir, *task, "--out", "base")
    refused = lab.rlvr("compare", "base", "first", check=2)
    assert 'prompt.system: null and "Be brief. "' in refused.stderr
    same = ("--set", "prompt.system='Be brief. '")
    lab.rlvr("eval", model_dir, *task, *same, "--out", "same")
    assert lab.json("compare", "same", "first")["tasks"][0]["n"] == 3


def evaluation(folder, task, counts, n=2):
    """A result folder of a task, whose problem i passed counts[i] of n times."""
    ids = [f"p{i}" for i in range(len(counts))]
    spec = {"task": task, "n": n, "problems": {"n": len(ids), "ids": ids_hash(ids)}}
    head = {"spec": spec, "hash": Spec(spec).hash, "model": {}, "engine": {}, "versions": {}}
    rows = [
        {"problem_id": id_, "sample": i, "passed": i < count, "score": float(i < count)}
        for id_, count in zip(ids, counts, strict=True)
        for i in range(n)
    ]
    folder = folder / task.replace("/", "_")
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps(head))
    problems = [{"id": id_} for id_ in ids]
    for name, lines in (("problems", problems), ("results", rows)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))


def test_several_completions_and_tasks_have_p_values(tmp_path, capsys):
    # a: changes 2, 1, 0, 1, 0; of 8 signs of 2, 1, 1 two have a sum of 4: p = 1/4
    # b: six times 1: p = 2/64, doubled by Holm as the smaller of two
    for run, a, b in (
        ("before", [0, 1, 2, 0, 1], [0, 1, 0, 1, 0, 1]),
        ("after", [2, 2, 2, 1, 1], [1, 2, 1, 2, 1, 2]),
    ):
        evaluation(tmp_path / run, "toy/a", a)
        evaluation(tmp_path / run, "toy/b", b)
    found = compare(tmp_path / "before", tmp_path / "after")
    assert [(one.task, one.p, one.p_holm) for one in found] == [
        ("toy/a", pytest.approx(0.25), pytest.approx(0.25)),
        ("toy/b", pytest.approx(0.03125), pytest.approx(0.0625)),
    ]
    assert found[0].data()["p_holm"] == pytest.approx(0.25)
    assert found[0].difference.value == pytest.approx(0.4)
    assert found[1].difference.low < 0.5 < found[1].difference.high
    assert not main(["compare", str(tmp_path / "before"), str(tmp_path / "after")])
    shown = capsys.readouterr().out
    assert "exact paired test (sign flips): p = 0.03125, 0.0625 for 2 tasks (Holm)" in shown
