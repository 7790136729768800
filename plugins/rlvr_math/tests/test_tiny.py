"""Tiny models: the folder, determinism, the cache, the command."""

import re
import subprocess
import sys
import time

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr_core.api import ConfigError, RlvrError
from rlvr_core.plugins.host import load_host
from rlvr_core.tiny import tiny
from rlvr_core.tiny.tiny import make_tiny_model, resolve_tiny
from rlvr_core.tiny.tiny_warm import batches_of
from rlvr_math.arithmetic import Arithmetic

SOURCE = Arithmetic(Arithmetic.Config())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("tiny") / "model"
    losses = []
    report = make_tiny_model(
        out,
        SOURCE,
        seed=1,
        steps=40,
        progress=lambda done, of, loss: losses.append((done, of, loss)),
    )
    return out, report, losses


def test_report_and_learning(made):
    out, report, losses = made
    assert report.path == str(out)
    assert (report.seed, report.steps, report.size) == (1, 40, "0.2M")
    assert 150_000 < report.parameters < 250_000
    assert [(done, of) for done, of, _ in losses] == [(i, 40) for i in range(1, 41)]
    assert losses[-1][2] == report.loss < losses[0][2] / 3


def test_folder_loads_and_holds_what_generation_needs(made):
    out, report, _ = made
    names = {path.name for path in out.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= names
    model = AutoModelForCausalLM.from_pretrained(out)
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert model.num_parameters() == report.parameters
    assert len(tokenizer) == report.vocab_size == model.config.vocab_size
    assert tokenizer.eos_token == "<|endoftext|>"
    assert tokenizer.eos_token_id != tokenizer.pad_token_id
    for config in (model.config, model.generation_config):
        assert config.eos_token_id == tokenizer.eos_token_id
        assert config.pad_token_id == tokenizer.pad_token_id
    assert model.config.max_position_embeddings >= 1024
    assert model.config.tie_word_embeddings
    assert not [path for path in out.parent.iterdir() if path.name.startswith(".")]


def test_any_text_survives_the_tokenizer_and_digits_stay_single(made):
    tokenizer = AutoTokenizer.from_pretrained(made[0])
    texts = [
        "What is 37+48?",
        "Größe 日本 \N{GRINNING FACE}",
        "\x00\t  two  spaces\n\n\r\n",
        " \\boxed{85}.",
    ]
    texts += ["".join(map(chr, range(1, 500)))]
    for text in texts:
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    pieces = tokenizer.convert_ids_to_tokens(tokenizer("37+148=185").input_ids)
    assert pieces == list("37+148=185")


def test_same_seed_same_bytes_other_seed_other_bytes(made, tmp_path):
    before = torch.get_rng_state()
    make_tiny_model(tmp_path / "again", SOURCE, seed=1, steps=40)
    assert torch.equal(torch.get_rng_state(), before)
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (made[0] / name).read_bytes()
    make_tiny_model(tmp_path / "other", SOURCE, seed=2, steps=2)
    assert (tmp_path / "other" / "model.safetensors").read_bytes() != (
        made[0] / "model.safetensors"
    ).read_bytes()


def test_an_existing_folder_is_replaced_only_on_request_and_only_if_a_model(tmp_path):
    out = tmp_path / "m"
    make_tiny_model(out, SOURCE, seed=1, steps=1)
    first = (out / "model.safetensors").read_bytes()
    with pytest.raises(ConfigError, match="exists"):
        make_tiny_model(out, SOURCE, seed=2, steps=1)
    assert (out / "model.safetensors").read_bytes() == first
    make_tiny_model(out, SOURCE, seed=2, steps=1, replace=True)
    assert (out / "model.safetensors").read_bytes() != first
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="not a model"):
        make_tiny_model(tmp_path / "home", SOURCE, seed=2, steps=1, replace=True)
    assert (tmp_path / "home" / "thesis.tex").exists()


def test_a_failure_half_way_leaves_nothing(tmp_path):
    def fail(done, of, loss):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_tiny_model(tmp_path / "m", SOURCE, seed=1, steps=3, progress=fail)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RLVR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tiny, "STEPS", 2)
    return tmp_path / "cache" / "tiny"


def test_resolve_makes_once_and_names_what_it_holds(cache):
    said = []
    host = load_host()
    cache.mkdir(parents=True)
    first = resolve_tiny("tiny:math/arithmetic?seed=3", host, said.append)
    assert first.parent == cache
    assert first.name.startswith("math-arithmetic-0.2M-seed3-")
    assert any("making" in line for line in said)
    said.clear()
    assert resolve_tiny("tiny:math/arithmetic?seed=3", host, said.append) == first
    assert said == []
    assert resolve_tiny("tiny:arithmetic", host, said.append).name.startswith(
        "math-arithmetic-0.2M-seed0-"
    )


def test_resolve_clears_what_a_killed_process_left(cache):
    host = load_host()
    done = resolve_tiny("tiny:math/arithmetic", host, lambda line: None)
    half = cache / f".{done.name}.abc"
    done.rename(half)
    assert resolve_tiny("tiny:math/arithmetic", host, lambda line: None) == done
    assert not half.exists()


@pytest.mark.slow
def test_two_processes_at_once_make_it_once(tmp_path):
    code = (
        "import sys; from rlvr_core.tiny import tiny; tiny.STEPS = 30\n"
        "from rlvr_core.plugins.host import load_host\n"
        "print(tiny.resolve_tiny('tiny:math/arithmetic', load_host()))"
    )
    env = {"RLVR_CACHE": str(tmp_path), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=env, text=True, stdout=-1, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    done = [one.communicate(timeout=300) for one in both]
    assert [one.returncode for one in both] == [0, 0], done
    assert done[0][0] == done[1][0]
    assert sum("made tiny:" in err for _, err in done) == 1


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("tiny:", "needs a task"),
        ("tiny:math/arithmetc", "arithmetic"),
        ("tiny:math/gsm8k", "datasets that do: .*math/arithmetic"),
        ("tiny:math/arithmetic?sede=3", "no option 'sede'"),
        ("tiny:math/arithmetic?seed=x", "whole number"),
        ("tiny:math/arithmetic?size=7B", "sizes: 0.2M"),
    ],
)
def test_a_wrong_reference_says_what_is_right(cache, path, message):
    with pytest.raises(RlvrError) as caught:
        resolve_tiny(path, load_host(), lambda line: None)
    assert re.search(message, str(caught.value), re.DOTALL)
    assert not cache.exists()


@pytest.mark.slow
def test_the_full_recipe_is_quick_and_leaves_something_to_learn(tmp_path):
    start = time.process_time()
    report = make_tiny_model(tmp_path / "m", SOURCE, seed=11)
    assert time.process_time() - start < 60
    assert report.loss < 0.6

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "m")
    problems = list(Arithmetic(Arithmetic.Config(split="heldout", n=256)).load())
    ids = tokenizer([problem.prompt for problem in problems], return_tensors="pt").input_ids
    torch.manual_seed(0)
    out = model.generate(ids, do_sample=True, top_k=0, temperature=1.0, max_new_tokens=44)
    texts = tokenizer.batch_decode(out[:, ids.shape[1] :], skip_special_tokens=True)
    answers = [f"\\boxed{{{problem.spec['answer']}}}" for problem in problems]
    right = sum(text.endswith(answer) for text, answer in zip(texts, answers, strict=True))
    assert 0.12 < right / len(problems) < 0.40


def test_every_twentieth_step_hides_its_prompts_in_long_text(made):
    tokenizer = AutoTokenizer.from_pretrained(made[0])
    pairs = [(problem.prompt, text) for problem, text in SOURCE.demonstrations(40 * 32, seed=1)]
    batches = batches_of(tokenizer, pairs, seed=1)
    assert batches == batches_of(tokenizer, pairs, seed=1)
    assert [i for i, rows in enumerate(batches) if len(rows) != 32] == [10, 30]
    for i, rows in enumerate(batches):
        for row, (prompt, answer) in zip(rows, pairs[i * 32 :], strict=False):
            text = tokenizer.decode(row.prompt_ids)
            assert prompt in text if i in (10, 30) else prompt == text
            assert tokenizer.decode(row.token_ids) == answer + tokenizer.eos_token
            assert all(row.loss_mask)
    assert max(len(row.prompt_ids) for row in batches[10]) > 100
