"""Comparisons of evaluations that did not ask or judge the same."""

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
