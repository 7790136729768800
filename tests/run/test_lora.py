"""Runs with LoRA from the config to the exported model, and references that move."""

import os
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from rlvr_core.lora.export import write_merged
from tests.support.run_records import lines

LORA = {"rank": 4, "alpha": 8}
STEPS = {"steps": 4, "lr": 1e-2, "warmup_steps": 1}
KL = {"use": "grpo", "with": {"beta": 0.1}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, make_lab, model_dir):
    """A laboratory and its finished run with LoRA and a KL term."""
    lab = make_lab(tmp_path_factory.mktemp("trained"))
    return lab, lab.run(model={"path": str(model_dir), "lora": LORA}, train=STEPS, loss=KL)


def answers(lab, model, *options):
    """Greedy answers of a model, by problem."""
    out = lab.folder / f"out{len(list(lab.folder.glob('out*')))}"
    task = ("--task", "math/arithmetic-heldout-greedy", "--limit", "6", "--allow-truncation")
    lab.rlvr("eval", str(model), *task, *options, "--out", str(out))
    (found,) = out.rglob("completions.jsonl")
    return {row["problem_id"]: row["token_ids"] for row in lines(found)}


def test_a_checkpoint_is_the_adapter_alone(trained):
    folder = trained[1] / "checkpoints" / "step000004"
    names = {path.name for path in folder.iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "trainer", "COMPLETE"} <= names
    assert "model.safetensors" not in names
    moments = load_file(folder / "trainer" / "optimizer.safetensors")
    assert len(moments) == 3 * 28  # two moments and a count for each of 28 matrices
    files = {path.name for path in (folder / "trainer").iterdir()}
    assert files == {"optimizer.safetensors", "state.json"}


def test_trainer_and_engine_agree_and_the_reference_is_the_base(trained):
    metrics = lines(trained[1] / "metrics.jsonl")
    assert all(line["parity/k3"] < 1e-7 for line in metrics[:2])
    assert metrics[0]["kl/mean"] == pytest.approx(0.0, abs=1e-9)
    assert all(line["kl/mean"] > 1e-4 for line in metrics[1:])


@pytest.mark.slow
def test_eval_takes_an_adapter_for_the_model_it_stands_for(trained, model_dir):
    lab, run = trained
    folder = run / "checkpoints" / "step000004"
    found = answers(lab, folder)
    assert answers(lab, "last") == found
    assert found != answers(lab, model_dir)
    write_merged(folder, lab.folder / "merged", torch.float32)
    assert answers(lab, "merged") == found


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize("way", ["merged", "adapter"])
def test_vllm_follows_the_adapter_and_evaluates_the_checkpoint(lab, model_dir, way):
    pytest.importorskip("vllm")
    config = AutoConfig.from_pretrained(model_dir)
    config.head_dim = 32  # vLLM's CPU build has no kernel for 16
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(lab.folder / "wider")
    AutoTokenizer.from_pretrained(model_dir).save_pretrained(lab.folder / "wider")
    run = lab.run(
        model={"path": "wider", "lora": LORA},
        train=STEPS,
        loss=KL,
        engine={"use": "vllm", "with": {"kv_cache_mb": 64, "lora": way}},
    )
    metrics = lines(run / "metrics.jsonl")
    # at version 1 the engine has the adapter's first update, or the guard would have stopped
    assert [line["version"] for line in metrics] == [0, 1, 2, 3]
    assert all(line["parity/k3"] < 1e-7 for line in metrics[:2])
    assert all(line["mismatch/abs_mean"] < 1e-4 for line in metrics)
    ours = answers(lab, "last", "--engine", "transformers")
    theirs = answers(lab, "last", "--engine", "vllm")
    assert sum(ours[name] != theirs[name] for name in ours) <= 1  # a near tie may fall either way


def test_dropout_half_precision_and_recomputed_layers_with_adapters(lab, model_dir):
    lora = LORA | {"target_modules": ["q_proj", "v_proj"], "dropout": 0.2}
    model = {"path": str(model_dir), "lora": lora, "dtype": "bfloat16"}
    run = lab.run(model=model, train=STEPS | {"gradient_checkpointing": "all"}, loss=KL)
    metrics = lines(run / "metrics.jsonl")
    assert all(line["parity/k3"] < 1e-2 for line in metrics[:2])
    assert all(line["grad_norm"] > 0 for line in metrics)
    assert metrics[-1]["kl/mean"] > 1e-5


@pytest.mark.parametrize(("lora", "every"), [({}, 2), ({"lora": LORA}, 1)], ids=["whole", "lora"])
def test_a_reference_that_is_copied_is_the_policy_itself(lab, model_dir, lora, every):
    """The KL is 0 whenever it has just been made."""
    train = STEPS | {"reference": {"sync_every": every}}
    run = lab.run(model={"path": str(model_dir), **lora}, train=train, loss=KL)
    metrics = lines(run / "metrics.jsonl")
    assert all(line["parity/k3"] < 1e-7 for line in metrics[:2])
    assert all(line["grad_norm"] > 0 for line in metrics)
    assert [line["kl/mean"] < 1e-9 for line in metrics] == [step % every == 0 for step in range(4)]


@pytest.mark.slow
def test_two_processes_do_the_run_of_one_with_adapters(lab, model_dir):
    """With DDP from the start, and with FSDP2 from the checkpoint of one process."""
    lab.write(
        model={"path": str(model_dir), "lora": LORA},
        train=STEPS | {"tokens_per_micro_batch": 60, "reference": {"sync_every": 2, "ema": 0.5}},
        loss=KL,
        checkpoint={"every": 2, "keep": 9},
    )
    lab.rlvr("run", "config.yaml", "--display", "none")
    alone = lab.runs()[-1]
    stopped = lab.folder / "runs" / "stopped"
    shutil.copytree(alone, stopped, symlinks=True)
    shutil.rmtree(stopped / "checkpoints" / "step000004")
    two = ["--processes", "2", "--display", "none"]
    lab.rlvr("launch", "--resume", str(stopped), "--set", "train.parallel=fsdp", *two)
    lab.rlvr("launch", "config.yaml", *two)
    (ddp,) = set(lab.runs()) - {alone, stopped}
    wanted = lines(alone / "metrics.jsonl")
    for run in (stopped, ddp):
        found = lines(run / "metrics.jsonl")
        assert [line["kl/mean"] > 1e-9 for line in found] == [False, True, True, True]
        for ours, theirs in zip(wanted, found, strict=True):
            # a sharded policy would have to be gathered once more for these
            whole = {"sync/read_back", "loss/backward"}
            assert ours.keys() ^ theirs.keys() <= whole
            alike = (ours.keys() & theirs.keys()) - whole
            same = {key: theirs[key] for key in alike}
            assert {key: ours[key] for key in alike} == pytest.approx(same, rel=1e-3, abs=1e-5)
        for name in ("adapter_model", "trainer/optimizer", "trainer/reference"):
            first, second = (
                load_file(one / "checkpoints" / "step000004" / f"{name}.safetensors")
                for one in (alone, run)
            )
            torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        (
            {"model": {"lora": {"target_modules": ["qproj"]}}},
            ["'qproj'", "did you mean: q_proj", "k_proj, v_proj", "config.yaml:"],
        ),
        ({"train": {"reference": {"ema": 0.5}}}, ["ema has no effect without sync_every"]),
        ({"train": {"reference": {"sync_every": 2}}}, ["no loss has a KL term", "beta above 0"]),
    ],
    ids=["target", "mix", "no-reference"],
)
def test_mistakes_are_explained(lab, model_dir, sections, words):
    model = {"path": str(model_dir)} | sections.get("model", {})
    lab.write(model=model, train=STEPS | sections.get("train", {}))
    done = lab.rlvr("run", "config.yaml", "--display", "none", check=2)
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr
    assert lab.runs() == []


def test_t92_peft_that_is_missing_is_named_before_anything_is_loaded(lab, tmp_path, monkeypatch):
    broken = tmp_path / "broken" / "peft"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('no peft here')")
    path = f"{broken.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    monkeypatch.setenv("PYTHONPATH", path)
    lab.write(model=lab.config["model"] | {"lora": LORA})
    done = lab.rlvr("run", "config.yaml", "--display", "none", check=4)
    assert "LoRA needs peft" in done.stderr
    assert "pip install 'rlvr-core[lora]'" in done.stderr
    assert "Traceback" not in done.stderr
    lab.write()
    lab.rlvr("run", "config.yaml", "--display", "none", "--set", "train.steps=1")
