"""Whether `rlvr compare` refuses by what differs, says the true reason, and lets alike ones be."""

import json

import pytest

LAX = "--allow-truncation"


@pytest.fixture
def letters(lab, model_dir, other_model):
    """Evaluates one of two models on the toy task."""
    models = {"a": model_dir, "b": other_model}

    def run(out, *more):
        lab.rlvr("eval", models[out[0]], "--task", "toy/letters", LAX, "--out", out, *more)

    return run


def test_auto_that_came_to_raw_text_is_never(lab, letters):
    letters("a")
    letters("b", "--set", "prompt.chat_template=never")
    (found,) = lab.json("compare", "a", "b")["tasks"]
    assert found["differs"] == ['prompt.chat_template: "auto" and "never" (prompts are the same)']
    letters("b2", "--set", "prompt.prefix='Now. '")
    refused = lab.rlvr("compare", "a", "b2", check=2).stderr
    assert "in other words" in refused


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[::-1],
        lambda rows: [{**rows[0], "q": "Say 9:"}, *rows[1:]],
        lambda rows: [{**rows[0], "a": "x"}, *rows[1:]],
        lambda rows: rows[1:],
    ],
)
def test_problems_that_differ_are_the_reason_and_not_the_prompt(
    lab, model_dir, other_model, change
):
    rows = [{"id": f"r{i}", "q": f"Say {i}:", "a": str(i)} for i in range(8)]
    file = lab.folder / "rows.jsonl"
    (lab.folder / "own.py").write_text(
        "def score(text, answer):\n    return float(answer in text)\n"
    )
    source = "data={use: core/jsonl, with: {path: rows.jsonl, prompt: q, id: id, verifier: "
    source += "./own.py:score, spec: {answer: a}}}"
    task = ("--task", "core/dataset", "--with", source, "--with", "max_tokens=4", LAX)
    for model, out, now in ((model_dir, "a", rows), (other_model, "b", change(rows))):
        file.write_text("".join(json.dumps(row) + "\n" for row in now))
        lab.rlvr("eval", model, *task, "--out", out)
    refused = lab.rlvr("compare", "a", "b", check=2).stderr
    assert "other problems, or in another order" in refused
    assert "prompt.chat_template" not in refused
    assert "prompts." not in refused
