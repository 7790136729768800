"""What `rlvr compare` refuses, and why: other prompts, problems, verifiers; too many cut off."""

import json
import shutil

import pytest

LAX = "--allow-truncation"
TEMPLATE = (
    "{% for message in messages %}{{ '[' + message['role'] + ']' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<eos>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}"
)


@pytest.fixture
def evaluate(lab):
    """Evaluates a model on the toy task into a folder of this name."""

    def run(model, out, *more):
        lab.rlvr("eval", model, "--task", "toy/letters", LAX, "--out", out, *more)
        return json.loads((lab.folder / out / "toy_letters" / "spec.json").read_text())

    return run


def chat_model(model, folder):
    """A model with a chat template whose turns end where the model stops."""
    shutil.copytree(model, folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": TEMPLATE}))
    return folder


def test_a_chat_template_that_auto_chose_for_one_folder_alone(lab, model_dir, evaluate, tmp_path):
    """The same weights and settings; the second folder's name says that it is a base model."""
    chat = chat_model(model_dir, tmp_path / "chat")
    base = chat_model(model_dir, tmp_path / "chat-base")
    first, second = evaluate(chat, "a"), evaluate(base, "b")
    assert first["spec"]["prompts"]["chats"] == 24
    assert second["spec"]["prompts"]["chats"] == 0
    assert first["spec"]["prompt"] == second["spec"]["prompt"]

    refused = lab.rlvr("compare", "a", "b", check=2).stderr
    assert "prompts.chats: 24 and 0" in refused
    assert "set prompt.chat_template" in refused
    assert "--allow prompt" in refused
    lab.rlvr("compare", "a", "b", "--allow", "code", check=2)
    (found,) = lab.json("compare", "a", "b", "--allow", "prompt")["tasks"]
    assert "prompts.chats: 24 and 0" in found["differs"]

    evaluate(base, "c", "--set", "prompt.chat_template=always")
    (found,) = lab.json("compare", "a", "c")["tasks"]
    (line,) = (one for one in found["differs"] if one.startswith("prompt"))
    assert line == 'prompt.chat_template: "auto" and "always" (prompts are the same)'
    refused = lab.rlvr("compare", "b", "c", check=2).stderr
    assert "prompts.chats: 0 and 24" in refused, "they were asked otherwise"


def test_an_edited_verifier(lab, model_dir, evaluate):
    lab.rlvr("eval", model_dir, "--task", "toy/letters", LAX, "--out", "zero")
    lab.folder.joinpath("mine.py").write_text("def score(text):\n    return float('e' in text)\n")
    use = ("--set", "rewards=[{use: ./mine.py:score}]")
    evaluate(model_dir, "a", *use)
    evaluate(model_dir, "again", *use)
    assert lab.json("compare", "a", "again")["tasks"][0]["differs"] == []
    lab.folder.joinpath("mine.py").write_text("def score(text):\n    return 1.0\n")
    evaluate(model_dir, "b", *use)

    refused = lab.rlvr("compare", "a", "b", check=2).stderr
    assert "code../mine.py:score" in refused
    assert "evaluate again by the present one" in refused
    (found,) = lab.json("compare", "a", "b", "--allow", "code")["tasks"]
    assert any(line.startswith("code../mine.py:score") for line in found["differs"])
    refused = lab.rlvr("compare", "zero", "a", check=2).stderr
    assert "rewards" in refused


def test_a_plugin_that_was_edited(lab, model_dir, evaluate, toy_site, monkeypatch):
    before = evaluate(model_dir, "a")
    (module,) = toy_site.rglob("rlvr_evals_toy.py")
    text = module.read_text()
    try:
        module.write_text(text + "\n# an edit\n")
        after = evaluate(model_dir, "b")
    finally:
        module.write_text(text)
    assert before["spec"]["code"].keys() == after["spec"]["code"].keys() == {"toy/early"}
    assert "code.toy/early" in lab.rlvr("compare", "a", "b", check=2).stderr


def test_another_tokenizer_and_other_weights_at_the_same_path(
    lab, model_dir, other_model, evaluate, tmp_path
):
    """Their texts are the same, so the comparison is made; what differs is said."""
    path = tmp_path / "model"
    shutil.copytree(model_dir, path)
    evaluate(path, "a")
    shutil.rmtree(path)
    shutil.copytree(other_model, path)
    evaluate(path, "b")
    (found,) = lab.json("compare", "a", "b")["tasks"]
    (line,) = found["differs"]
    assert line.startswith("model: ")
    assert "other files" in line

    tokenizer = json.loads((path / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    vocab["S"], vocab["~"] = vocab["~"], vocab["S"]
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    evaluate(path, "c")
    (found,) = lab.json("compare", "b", "c")["tasks"]
    assert "tokenizer: the prompts have other token ids" in found["differs"]


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[::-1],
        lambda rows: [{**rows[0], "a": "x"}, *rows[1:]],
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


def test_a_spoilt_evaluation_is_refused_until_it_is_accepted(lab, model_dir, other_model):
    """Two tokens are too few for any answer: every one of the 24 is cut off."""
    short = ("--task", "toy/letters", "--with", "max_tokens=2")
    lab.rlvr("eval", model_dir, *short, "--out", "a", check=1)
    assert json.loads((lab.folder / "a/toy_letters/summary.json").read_text())["spoilt"] is True
    lab.rlvr("eval", other_model, *short, "--out", "b", "--allow-truncation")

    for pair in (("a", "b"), ("b", "a"), ("a", "a")):
        refused = lab.rlvr("compare", *pair, check=2)
        assert refused.stdout == ""
        assert "spoilt: 100.0% of its answers were cut off at 2 tokens" in refused.stderr
        assert "max_tokens" in refused.stderr
        assert "--allow-truncation" in refused.stderr
        lab.rlvr("compare", *pair, "--json", check=2)
    (lab.folder / "a/toy_letters/summary.json").unlink()  # killed before its summary
    lab.rlvr("compare", "a", "b", check=2)

    lab.rlvr("eval", model_dir, *short, "--out", "a", "--allow-truncation")
    assert "cut off at the token cap, before and after: 100.0% and 100.0%" in (
        lab.rlvr("compare", "a", "b").stdout
    )
    assert lab.json("compare", "a", "b")["tasks"][0]["truncated"] == [1.0, 1.0]
