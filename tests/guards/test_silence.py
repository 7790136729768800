"""What is right draws no warning: runs of a few steps with the guards that are on by default."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from rlvr_core.testing.fork_server import run_rlvr
from rlvr_core.testing.lab import Lab
from rlvr_core.testing.random_model import save_random_model

ROOT = Path(__file__).parents[2]
LIMIT = 1700
THINGS = [
    *("a kitchen", "a garden", "a zoo", "a school", "a harbour"),
    *("a market", "a train", "a forest", "a hotel", "a museum"),
    *("a library", "a farm", "a bakery", "a beach", "a castle"),
    *("a theatre", "a stable", "a garage", "a cellar", "an attic"),
    *("an office", "an airport", "an orchard", "an island", "a village"),
    *("a bridge", "a river", "a desert", "a factory", "a hospital"),
    *("a bank", "a church", "a prison", "a stadium", "a cinema"),
    *("a park", "a pool", "a tower", "a cave", "a lighthouse"),
]
PATTERNS = (
    "Name some things that one finds in {}.",
    "What makes {} pleasant?",
    "Say what people do in or at {}.",
    "Describe the sounds of {}.",
    "Who works in or at {}?",
    "How does {} look at night?",
    "Tell me why somebody would avoid {}.",
    "Which smells do you expect of {}?",
)
RULE = " Write only small letters, no capital letters, and at most twelve words."

SMALL = '''
"""Small letters, and not too many of them: there is no reference to compare with."""


def small(problem, completion):
    text = completion.text
    letters = [one for one in text if one.isalpha()]
    return sum(one.islower() for one in letters) / max(1, len(letters))


def short(problem, completion):
    return float(len(completion.text) < 12)
'''


def rows(name, asked):
    return {f"{name}.jsonl": "".join(json.dumps({"prompt": text}) + "\n" for text in asked)}


def patterned():
    """240 requests to train on and 80 held out, all of the same 8 patterns and 40 things."""
    texts = [pattern.format(thing) + RULE for thing in THINGS for pattern in PATTERNS]
    held_out = texts[::4]
    return rows("train", [text for text in texts if text not in held_out]) | rows("test", held_out)


def source(path):
    return {"use": "core/jsonl", "with": {"path": path, "prompt": "prompt"}}


def config_of(model, path, *, dtype="float32", **sections):
    return {
        "run": {"name": "silent", "seed": 3},
        "model": {"path": str(model), "dtype": dtype},
        "data": {"sources": [source(path)]},
        "rewards": [{"use": "./letters.py:small"}, {"use": "./letters.py:short", "weight": 0.5}],
        "sampling": {"n": 8, "max_tokens": 16},
        "engine": "core/transformers",
        "loss": "core/dapo",
        "sampler": {"use": "core/shuffle", "with": {"refill": 0}},
        "train": {"steps": 3, "prompts_per_step": 4, "lr": 1e-3, "warmup_steps": 1},
        **sections,
    }


class Quiet(Lab):
    """A laboratory whose runs have to end well and say nothing."""

    def write(self, files):
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def run(self, *arguments, **env):
        done = run_rlvr("run", *arguments, cwd=self.folder, env=self.env() | env, timeout=LIMIT)
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        assert "warning" not in output.lower(), output
        (run,) = self.runs()
        assert not json.loads((run / "run.json").read_text()).get("warnings"), output
        return run


@pytest.fixture
def quiet(tmp_path):
    lab = Quiet(tmp_path)
    lab.write({"letters.py": SMALL, **rows("some", [f"Say {i}." for i in range(40)])})
    return lab


def trained(quiet, config):
    (quiet.folder / "config.yaml").write_text(yaml.safe_dump(config))
    run = quiet.run("config.yaml")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == config["train"]["steps"]
    assert lines[-1]["version"] > 0
    return lines


@pytest.mark.essential
def test_rewards_without_any_reference(quiet):
    trained(quiet, config_of(save_random_model(quiet.folder / "model"), "some.jsonl"))


@pytest.mark.essential
def test_a_pad_token_that_is_the_end_token(quiet):
    """As most instruct models have it."""
    folder = save_random_model(quiet.folder / "model")
    tokenizer, config = AutoTokenizer.from_pretrained(folder), AutoConfig.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(folder)
    config.pad_token_id = tokenizer.eos_token_id
    config.save_pretrained(folder)
    generation = folder / "generation_config.json"
    fields = json.loads(generation.read_text()) | {"pad_token_id": tokenizer.eos_token_id}
    generation.write_text(json.dumps(fields))
    assert AutoTokenizer.from_pretrained(folder).pad_token == tokenizer.eos_token
    trained(quiet, config_of(folder, "some.jsonl"))


@pytest.mark.essential
def test_bfloat16(quiet):
    folder = save_random_model(quiet.folder / "model")
    trained(quiet, config_of(folder, "some.jsonl", dtype="bfloat16"))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_mixture_of_experts(quiet, dtype):
    folder = save_random_model(quiet.folder / "model")
    config = AutoConfig.for_model(
        "qwen3_moe",
        **{key: getattr(AutoConfig.from_pretrained(folder), key) for key in SHARED},
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    trained(quiet, config_of(folder, "some.jsonl", dtype=dtype))


SHARED = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim"),
    *("num_attention_heads", "num_key_value_heads", "initializer_range", "tie_word_embeddings"),
    *("eos_token_id", "pad_token_id", "bos_token_id"),
)


@pytest.mark.slow
def test_data_of_patterns_with_an_evaluation_of_the_same_ones(quiet):
    quiet.write(patterned())
    tasks = [{"use": "core/dataset", "with": {"data": source("test.jsonl")}}]
    lines = trained(
        quiet,
        config_of(
            save_random_model(quiet.folder / "model"),
            "train.jsonl",
            eval={"every": 2, "tasks": tasks},
        ),
    )
    assert len(lines) == 3


FEW = ("train.steps=3", "train.warmup_steps=1", "train.prompts_per_step=8")
EXAMPLES = {
    "quickstart.yaml": (),
    "lora.yaml": (),
    "sweep-base.yaml": (),
    "json.yaml": (),
    "gym.yaml": (),
    "constraints.yaml": (),
    "tools.yaml": (),
    "web-tiny.yaml": (),
    "agent/config.yaml": (),
    "reward_function/config.yaml": (),
    "trl_script/config.yaml": (),
    "gsm8k-cpu.yaml": ("engine={use: core/transformers}",),
}


@pytest.mark.slow
@pytest.mark.timeout(LIMIT + 60)
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example(quiet, name, request):
    cache = request.config.cache.mkdir("tiny-models")
    options = [word for text in (*FEW, *EXAMPLES[name]) for word in ("--set", text)]
    data = os.environ.get("RLVR_DATA", str(ROOT.parent / "shared" / "data"))
    config = ROOT / "examples" / name
    if config.name == "config.yaml":  # it names files of its folder by their relative paths
        shutil.copytree(config.parent, quiet.folder, dirs_exist_ok=True)
    quiet.run(str(config), *options, RLVR_CACHE=str(cache), RLVR_DATA=data)
