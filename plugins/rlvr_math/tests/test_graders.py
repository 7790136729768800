"""``rlvr eval`` of grade-school maths, by several graders."""

import json

from tests.support.eval_fixtures import lab, model_dir, toy_site

__all__ = ["lab", "model_dir", "toy_site"]

LAX = "--allow-truncation"


def test_t73_t78_maths_is_judged_by_several_graders_without_being_asked(lab, model_dir):
    """The first answer is right and the last number is not: each grader says its own."""
    rows = [{"question": f"How many are {i}?", "answer": f"#### {i}"} for i in range(4)]
    (lab.folder / "gsm8k.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = {f"are {i}?": [f"The answer is {i}. Not 77."] for i in range(3)} | {"": ["?"]}
    engine = {"use": "scripted", "with": {"answers": said, "logprob": -1.0}}
    (lab.folder / "eval.yaml").write_text(json.dumps({"engine": engine}))
    words = ("eval", model_dir, "--config", "eval.yaml", "--task", "math/gsm8k-test", LAX)
    summary = lab.json(*words, "--with", "path=gsm8k.jsonl")["tasks"]["math/gsm8k-test"]
    found = {
        name: (one["passed"]["value"], one["extracted"]["value"])
        for name, one in summary["graders"].items()
    }
    assert found == {
        "math/gsm8k": (0.75, 0.75),
        "math/gsm8k-strict": (0.75, 0.75),
        "math/gsm8k-flexible": (0.0, 0.75),
    }
    # with other tasks beside it there are none that all of them want
    task = {"use": "math/gsm8k-test", "with": {"path": "gsm8k.jsonl"}}
    (lab.folder / "both.yaml").write_text(
        json.dumps({"engine": engine, "tasks": [task, "toy/letters"]})
    )
    both = lab.json("eval", model_dir, "--config", "both.yaml", LAX, "--out", "both")
    assert list(both["tasks"]["math/gsm8k-test"]["graders"]) == ["math/gsm8k"]
