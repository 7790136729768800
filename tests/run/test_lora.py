"""Runs with LoRA from the config to the exported model, and references that move."""

import os
import shutil

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from rlvr_core.lora.export import write_merged
from tests.support.run_records import digest, killed_after, lines

LORA = {"rank": 4, "alpha": 8}
STEPS = {"steps": 4, "lr": 1e-2, "warmup_steps": 1}
KL = {"use": "grpo", "with": {"beta": 0.1}}


@pytest.fixture
def run(lab, model_dir):
    """A finished run with LoRA and a KL term."""
    return lab.run(model={"path": str(model_dir), "lora": LORA}, train=STEPS, loss=KL)


def answers(lab, model, *options):
    """Greedy answers of a model, by problem."""
    out = lab.folder / f"out{len(list(lab.folder.glob('out*')))}"
    task = ("--task", "math/arithmetic-heldout-greedy", "--limit", "6", "--allow-truncation")
    lab.rlvr("eval", str(model), *task, *options, "--out", str(out))
    (found,) = out.rglob("completions.jsonl")
    return {row["problem_id"]: row["token_ids"] for row in lines(found)}


def test_a_checkpoint_is_the_adapter_alone_and_peft_loads_it(lab, run, model_dir):
    folder = run / "checkpoints" / "step000004"
    names = {path.name for path in folder.iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "trainer", "COMPLETE"} <= names
    assert "model.safetensors" not in names
    moments = load_file(folder / "trainer" / "optimizer.safetensors")
    assert len(moments) == 3 * 28  # two moments and a count for each of 28 matrices
    assert {path.name for path in (folder / "trainer").iterdir()} == {
        "optimizer.safetensors",
        "state.json",
    }

    base = AutoModelForCausalLM.from_pretrained(model_dir)
    ids = torch.arange(20)[None] * 7
    with torch.no_grad():
        before = base(ids).logits
        ours = PeftModel.from_pretrained(base, folder)(ids).logits
        write_merged(folder, lab.folder / "merged", torch.float32)
        merged = AutoModelForCausalLM.from_pretrained(lab.folder / "merged")(ids).logits
    assert (ours - before).abs().max() > 0.1
    torch.testing.assert_close(merged, ours, rtol=1e-4, atol=1e-4)


def test_trainer_and_engine_agree_and_the_reference_is_the_base(run):
    metrics = lines(run / "metrics.jsonl")
    assert all(line["parity/k3"] < 1e-7 for line in metrics[:2])
    assert metrics[0]["kl/mean"] == pytest.approx(0.0, abs=1e-9)
    assert all(line["kl/mean"] > 1e-4 for line in metrics[1:])


@pytest.mark.slow
def test_eval_takes_an_adapter_for_the_model_it_stands_for(lab, run, model_dir):
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


@pytest.mark.parametrize(
    "sections",
    [
        {"lora": LORA, "dtype": "bfloat16"},
        {"lora": LORA, "dtype": "float16"},
        {
            "lora": LORA | {"target_modules": ["q_proj", "v_proj"], "dropout": 0.2},
            "checkpointing": True,
        },
        {"reference": {"sync_every": 2}},
        {"reference": {"sync_every": 1, "ema": 0.5}, "dtype": "bfloat16"},
        {"lora": LORA, "reference": {"sync_every": 1}},
    ],
    ids=["bf16", "fp16", "dropout", "copied", "average", "lora-copied"],
)
def test_modes_run_and_trainer_and_engine_agree(lab, model_dir, sections):
    train = STEPS | {"gradient_checkpointing": "all" if "checkpointing" in sections else "none"}
    train |= {"reference": sections["reference"]} if "reference" in sections else {}
    model = {key: sections[key] for key in ("lora", "dtype") if key in sections}
    run = lab.run(model={"path": str(model_dir), **model}, train=train, loss=KL)
    metrics = lines(run / "metrics.jsonl")
    assert all(line["parity/k3"] < (1e-2 if "dtype" in sections else 1e-7) for line in metrics[:2])
    assert metrics[-1]["version"] > 0
    if sections.get("dtype") != "float16":  # whose loss scale has to be found first
        assert all(line["grad_norm"] > 0 for line in metrics)
    kl = [line["kl/mean"] for line in metrics]
    if "reference" in sections and "dtype" not in sections:
        # a copy is the policy itself: the KL is 0 whenever it has just been made
        every = sections["reference"]["sync_every"]
        assert [value < 1e-9 for value in kl] == [step % every == 0 for step in range(4)]
    elif "lora" in sections:
        assert kl[-1] > 1e-5


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


EIGHT = STEPS | {"steps": 8, "reference": {"sync_every": 2, "ema": 0.5}}


@pytest.mark.slow
def test_t94_a_killed_run_with_lora_resumes_bit_for_bit(lab, model_dir):
    """Adapter, optimizer, dropout, and a reference that follows, killed at two moments."""
    sections = {
        "model": {"path": str(model_dir), "lora": LORA | {"dropout": 0.1}},
        "train": EIGHT,
        "loss": KL,
        "checkpoint": {"every": 2, "keep": 9},
    }
    straight = digest(lab.run(**sections))
    assert len(straight) == 6
    run = killed_after(lab, 3)
    killed_after(lab, 5, "--resume", "last")
    lab.rlvr("run", "--resume", "last", "--display", "none")
    assert digest(run) == straight


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"model": {"lora": {"rank": 0}}}, ["model.lora.rank"]),
        ({"model": {"lora": {"ranks": 4}}}, ["ranks", "rank"]),
        (
            {"model": {"lora": {"target_modules": ["qproj"]}}},
            ["'qproj'", "did you mean: q_proj", "k_proj, v_proj", "config.yaml:"],
        ),
        ({"engine": {"use": "vllm", "with": {"lora": "adapter"}}}, ["there are none"]),
        ({"train": {"reference": {"ema": 0.5}}}, ["ema has no effect without sync_every"]),
        ({"train": {"reference": {"sync_every": 2}}}, ["no loss has a KL term", "beta above 0"]),
    ],
    ids=["rank", "misspelt", "target", "engine", "mix", "no-reference"],
)
def test_mistakes_are_explained(lab, model_dir, sections, words):
    model = {"path": str(model_dir)} | sections.get("model", {})
    engine = sections.get("engine", "transformers")
    lab.write(model=model, engine=engine, train=STEPS | sections.get("train", {}))
    done = lab.rlvr("run", "config.yaml", "--display", "none", check=2)
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr
    assert lab.runs() == []


def test_an_adapter_is_no_model_to_go_on_from(lab, run):
    checkpoint = run / "checkpoints" / "step000004"
    lab.write(model={"path": str(checkpoint)})
    done = lab.rlvr("run", "config.yaml", check=4)
    assert "rlvr export" in done.stderr
    assert "--merge" in done.stderr


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
