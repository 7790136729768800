"""What a run is made of: recorded, compared by ``rlvr diff``, and refused when it is resumed."""

import json
import shutil

import pytest

from rlvr_core.testing.random_model import save_random_model

TEMPLATE = (
    "{% for message in messages %}{{ '[' + message['role'] + ']' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<eos>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}"
)


def record(run):
    return json.loads((run / "run.json").read_text())


def diff(lab, *runs):
    return json.loads(lab.rlvr("diff", *map(str, runs), "--json").stdout)


def text_of(found, part):
    return "\n".join(one["text"] for one in found["differences"][part])


def resume(lab, run, *more, check=0):
    command = ("run", "--resume", str(run), "--set", "train.steps=4", "--display", "plain")
    return lab.rlvr(*command, *more, check=check).stderr


@pytest.fixture
def own_model(lab, model_dir):
    """A copy of the model that a test may change."""
    shutil.copytree(model_dir, lab.folder / "model")
    lab.config["model"] = {"path": "model"}
    return lab.folder / "model"


def run_of(lab, **sections):
    return lab.run(**{"train": {"steps": 2, "lr": 1e-3, "warmup_steps": 1}} | sections)


def swap_tokens(model):
    path = model / "tokenizer.json"
    content = json.loads(path.read_text())
    vocab = content["model"]["vocab"]
    vocab["S"], vocab["~"] = vocab["~"], vocab["S"]
    path.write_text(json.dumps(content))


def test_equal_runs_are_equal_in_every_part(lab, own_model):
    first, second = run_of(lab), run_of(lab)
    found = diff(lab, first, second)
    assert found["differences"] == {}
    assert found["unknown"] == {}
    assert found["same"] == [
        "config",
        "code",
        "verifiers",
        "data",
        "prompts",
        "model",
        "tokenizer",
        "versions",
        "machine",
        "threads",
        "environment",
    ]
    identity = record(first)["identity"]
    assert identity["verifiers"].keys() == {"toy/early"}
    assert {"rlvr_core", "rlvr_toy"} <= identity["code"].keys()
    state = json.loads(
        (first / "checkpoints" / "step000002" / "trainer" / "state.json").read_text()
    )
    assert state["identity"] == identity

    # elsewhere the same model has another path, and that alone is no other model
    own_model.rename(lab.folder / "moved")
    third = run_of(lab, model={"path": "moved"})
    assert list(diff(lab, first, third)["differences"]) == ["config"]


@pytest.mark.slow
def test_another_model_and_tokenizer_at_the_same_path(lab, own_model):
    first = run_of(lab)
    shutil.rmtree(own_model)
    save_random_model(own_model, seed=5)
    second = run_of(lab)
    found = diff(lab, first, second)
    assert list(found["differences"]) == ["model"]
    assert [one["key"] for one in found["differences"]["model"]] == ["sha256", "weights"]
    assert "the model is not the one the run began with" in resume(lab, first, check=2)

    swap_tokens(own_model)
    third = run_of(lab)
    found = diff(lab, second, third)
    assert list(found["differences"]) == ["prompts", "model", "tokenizer"]
    refused = resume(lab, second, check=2)
    assert "the tokenizer is not the one the run began with" in refused
    assert "the prompts are not rendered as when the run began" in refused
    assert "resumed" not in record(second) or record(second)["resumed"] == []
    resume(lab, third)


@pytest.mark.slow
def test_other_prompts_of_an_evaluation(lab, own_model):
    """The training data are the same, the held-out problems are not."""
    rows = (lab.folder / "data.jsonl").read_text().splitlines()
    source = lab.config["data"]["sources"][0]["with"] | {"path": "held-out.jsonl"}
    task = {
        "use": "core/dataset",
        "with": {"data": {"use": "core/jsonl", "with": source}},
    }
    evaluated = {"eval": {"tasks": [task], "max_contaminated": 1.0}}
    runs = []
    for kept in (rows[:4], rows[1:5]):
        (lab.folder / "held-out.jsonl").write_text("\n".join(kept) + "\n")
        runs.append(run_of(lab, **evaluated))
    found = diff(lab, *runs)
    (one,) = found["differences"]["prompts"]
    assert one["key"].startswith("evaluations.")


def test_an_edited_verifier_and_the_file_that_was_edited(lab, own_model, toy_site):
    first = run_of(lab)
    module = toy_site / "rlvr_toy.py"
    before = module.read_text()
    try:
        module.write_text(before.replace('c < "n"', 'c < "m"'))
        second = run_of(lab)
        found = diff(lab, first, second)
        assert list(found["differences"]) == ["code", "verifiers"]
        assert text_of(found, "code").startswith('rlvr_toy: "1.0 (')
        shown = lab.rlvr("diff", str(first), str(second)).stdout
        assert "toy/early" in shown
        refused = resume(lab, first, check=2)
        assert "the code of verifier toy/early is not that the run began with" in refused
        (digest,) = (one["values"][1] for one in found["differences"]["verifiers"])
        assert f"run.accept_changed=[{digest[:8]}]" in refused
        said = resume(lab, first, "--set", f"run.accept_changed=[{digest[:8]}]")
        assert "not as when the run began: verifiers: toy/early" in said
        assert 'code: rlvr_toy: "1.0 (' in said
    finally:
        module.write_text(before)
    (over,) = record(first)["resumed_over"]
    assert any("toy/early" in line for line in over["differences"])
    assert record(first)["identity"]["verifiers"]["toy/early"] == digest


@pytest.mark.slow
def test_other_code_of_a_plugin_that_judges_nothing_is_named_and_not_refused(lab, own_model):
    first = run_of(lab)
    path = first / "run.json"
    fields = record(first)
    fields["identity"]["code"]["rlvr_core"] = "0.0.1 (0123456789abcdef)"
    fields["identity"]["threads"]["OMP_NUM_THREADS"] = "7"
    fields["versions"]["libraries"]["torch"] = "1.0"
    path.write_text(json.dumps(fields))
    said = resume(lab, first)
    assert "not as when the run began: code: rlvr_core" in said
    assert 'threads: OMP_NUM_THREADS: "7" and "1"' in said
    assert 'versions: libraries.torch: "1.0" and' in said


@pytest.mark.slow
def test_the_choice_of_auto_goes_with_the_checkpoint(lab, own_model):
    """By its name the model is a base model; the folder of a checkpoint does not say so."""
    config = own_model / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": TEMPLATE}))
    base = own_model.rename(lab.folder / "tiny-base")
    run = run_of(lab, model={"path": "tiny-base"})
    assert record(run)["identity"]["prompts"]["text_as_chat"] is False
    checkpoint = run / "checkpoints" / "step000002"
    shutil.copytree(checkpoint, lab.folder / "copied")
    shutil.copytree(base, lab.folder / "tiny")
    source = {"use": "core/jsonl", "with": lab.config["data"]["sources"][0]["with"]}
    task = f"tasks=[{{use: core/dataset, with: {{data: {json.dumps(source)}}}}}]"
    chats = {}
    for name in (str(checkpoint), "copied", "tiny-base", "tiny"):
        out = f"out-{len(chats)}"
        command = ("eval", name, "--set", task, "--limit", "4", "--out", out, "--set")
        lab.rlvr(*command, "max_truncated=1.0", "--allow-contamination")
        (spec,) = (lab.folder / out).rglob("spec.json")
        chats[name] = json.loads(spec.read_text())["spec"]["prompts"]["chats"]
    assert chats == {str(checkpoint): 0, "copied": 0, "tiny-base": 0, "tiny": 4}
    lab.rlvr("compare", "out-2", "out-0")
    # a second stage that starts from the checkpoint asks as the first one did
    second = run_of(lab, model={"path": str(checkpoint)})
    assert record(second)["identity"]["prompts"]["text_as_chat"] is False


@pytest.mark.slow
def test_a_run_that_records_no_identity(lab, own_model):
    config = lab.config["run"]
    first, second = run_of(lab), run_of(lab, run=config | {"identity": False})
    assert "identity" not in record(second)
    found = diff(lab, first, second)
    assert list(found["differences"]) == ["config"]
    assert found["unknown"].keys() == {
        "code",
        "verifiers",
        "prompts",
        "model",
        "tokenizer",
        "threads",
        "environment",
    }
    resume(lab, second)


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("TOKENIZERS_PARALLELISM", "false", True),
        ("CUDA_LAUNCH_BLOCKING", "1", True),
        ("PYTHONHASHSEED", "7", True),
        ("VLLM_ATTENTION_BACKEND", "X", True),
        ("HF_TOKEN", "hf_abc", False),
        ("hf_hub_token", "abc", False),
        ("RLVR_STORE_KEY", "abc", False),
        ("NCCL_AuthMode", "abc", False),
        ("VLLM_API_SECRET", "abc", False),
        ("TORCH_PASSWORD", "abc", False),
        ("TOKENIZERS_TOKEN", "abc", False),
        ("EDITOR", "vi", False),
        ("HF_HOME", "/cache", False),
        ("CUDA_VISIBLE_DEVICES", "1", False),
    ],
)
def test_variables_that_may_change_results_are_recorded_and_secrets_never(
    monkeypatch, name, value, kept
):
    from rlvr_core.record.provenance.environment import environment

    monkeypatch.setenv(name, value)
    assert environment().get(name) == (value if kept else None)


def test_diff_names_another_variable(lab):
    runs = [lab.run(train={"steps": 1, "lr": 1e-3}) for _ in range(2)]
    for run, value in zip(runs, (None, "false"), strict=True):
        fields = record(run)
        found = {"PYTHONHASHSEED": "0"} | ({"TOKENIZERS_PARALLELISM": value} if value else {})
        fields["identity"]["environment"] = found
        (run / "run.json").write_text(json.dumps(fields))
    found = diff(lab, *runs)
    assert list(found["differences"]) == ["environment"]
    assert text_of(found, "environment") == 'TOKENIZERS_PARALLELISM: none and "false"'
