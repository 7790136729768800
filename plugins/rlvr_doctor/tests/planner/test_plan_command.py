"""``rlvr plan``: verdicts of cards, advice that is true, and errors with remedies."""

import json

import pytest
import yaml

from plugins.rlvr_doctor.tests.planner.places import config_of, model, planned, planner
from plugins.rlvr_doctor.tests.planner.tables import ROOT
from rlvr_core.api import ConfigError, MachineError
from rlvr_doctor.cards import CARDS
from rlvr_doctor.planner.advice import advise
from tests.support.tables import table

GSM8K = ROOT / "examples" / "gsm8k.yaml"


def path(size):
    return f"model.path={model(size)}"


@pytest.mark.parametrize(
    ("gpu", "fits"), [("l4-24", False), ("a100-40", False), ("h100-80", True), ("h200", True)]
)
def test_whole_1_7b_with_a_colocated_engine_needs_more_than_40_gib(gpu, fits):
    """22.4 GiB between steps and 1.5 of CUDA; beside them half a card of 40 GB does not fit."""
    memory = planned(GSM8K, path("1.7B"), gpu=gpu).memory
    assert (memory.lack == 0) is fits
    held = memory.held.total + memory.reserved
    assert held / 2**30 == pytest.approx(22.43 + 1.5, abs=0.01)
    assert memory.generating == held + 0.5 * CARDS[gpu].memory
    assert memory.left == CARDS[gpu].memory - max(memory.training, memory.generating)


@pytest.mark.parametrize(
    ("gpu", "size"), [("l4-24", "1.7B"), ("a100-40", "1.7B"), ("h100-80", "8B")]
)
def test_every_advice_makes_it_fit_and_was_planned_with_it(gpu, size):
    asked = planner(GSM8K, path(size), gpu=gpu)
    found = asked.plan(1)
    assert not found.fits
    changes = advise(asked, found, 1)
    assert changes
    for change in changes:
        again = planned(GSM8K, path(size), *change.settings, gpu=gpu, count=change.count)
        assert again.fits
        assert again.memory == change.plan.memory
        for setting in change.settings:  # none is there for nothing
            fewer = [one for one in change.settings if one != setting]
            if not setting.startswith(("train.parallel", "model.lora")):
                less = planned(GSM8K, path(size), *fewer, gpu=gpu, count=change.count)
                assert not less.fits, change.settings


def test_a_model_too_large_for_one_gpu_is_advised_more_or_an_adapter():
    asked = planner(GSM8K, path("8B"), gpu="h100-80")
    ways = {
        (one.count > 1, "model.lora.rank=16" in one.settings)
        for one in advise(asked, asked.plan(1), 1)
    }
    assert ways == {(True, False), (False, True)}


def test_where_it_fits_the_advice_is_faster():
    asked = planner(GSM8K, path("1.7B"), gpu="h200")
    found = asked.plan(1)
    changes = advise(asked, found, 1)
    assert changes
    steps = [change.plan.speed.step for change in changes]
    assert steps == sorted(steps)
    assert all(change.plan.fits and change.plan.speed.step < found.speed.step for change in changes)


def test_an_engine_that_works_ahead_gets_what_training_leaves():
    share = "engine.with.gpu_memory_utilization=0.7"
    asked = planner(GSM8K, path("1.7B"), "train.max_staleness=1", share, gpu="h100-80")
    found = asked.plan(1)
    assert found.memory.training - found.memory.engine == pytest.approx(37.86 * 2**30, rel=0.01)
    assert not found.fits
    (best, *_) = advise(asked, found, 1)
    assert best.settings == (
        "engine.with.gpu_memory_utilization=0.50",
    )  # 41.8 of 79.6 GiB are left


def test_no_change_helps_a_completion_that_nothing_holds(tmp_path):
    case = {"size": "8B", "groups": 1, "n": 2, "prompt": 8, "tokens": 10**7, "budget": 64}
    asked = planner(config_of(case, tmp_path), gpu="l4-24")
    assert advise(asked, asked.plan(1), 1) == []


def test_the_command_says_all_of_it_for_people_and_programs(lab):
    words = ["plan", str(GSM8K), "--gpu", "a100-40", "--set", path("1.7B")]
    shown = lab.rlvr(*words).stdout
    for part in (
        "1.72B parameters; 1 x a100-40 train and generate", "weights  ", "6.41", "optimizer",
        "= training at its most: backward of the last layer", "bottleneck: ", "seconds",
        "DOES NOT FIT: 43.93 GiB at generation, 3.93 more than the card's 40.00",
        "with this it fits (--set)", "engine.with.gpu_memory_utilization=0.40",
        "not measured on a GPU",
    ):  # fmt: skip
        assert part in shown, part
    found = json.loads(lab.rlvr(*words, "--json").stdout)
    assert found["fits"] is False
    assert found["lack"] / 2**30 == pytest.approx(3.93, abs=0.01)
    assert found["memory"]["moment"] == "generation"
    assert found["changes"][0]["settings"] == ["engine.with.gpu_memory_utilization=0.40"]
    assert found["changes"][0]["peak"] < found["card"]["memory"]
    parts = ("generation", "scoring", "gradient", "optimizer", "sync")
    assert sum(found["seconds"][part] for part in parts) == pytest.approx(found["seconds"]["step"])


@pytest.mark.parametrize(("words", "said"), table(__file__, "wrong words"))
def test_wrong_words_are_errors_with_remedies(lab, words, said):
    done = lab.rlvr("plan", str(GSM8K), "--set", path("1.7B"), *words, check=None)
    assert done.returncode in (2, 4)
    assert "Traceback" not in done.stderr
    for part in said:
        assert part in done.stderr, done.stderr


SERVERS = "engine.use=servers/vllm-server"
SHARED = "engine={use: servers/vllm-shared, with: {tensor_parallel_size: 2, kv_cache_mb: 4096}}"


@pytest.mark.parametrize(("count", "changes", "more", "said"), table(__file__, "refused GPUs"))
def test_gpus_that_do_not_go_together_are_refused(count, changes, more, said):
    with pytest.raises(ConfigError, match=said) as error:
        planned(GSM8K, path("1.7B"), "engine.with={}", *changes, count=count, **more)
    assert error.value.complaints[0].remedy


def test_gpus_are_shared_out_between_trainers_and_engines():
    def gpus(count, *changes, **more):
        setup = planned(GSM8K, path("1.7B"), *changes, count=count, **more).setup
        return setup.trainers, setup.engine.gpus, setup.engine.width

    bare = ("engine.with={}", SERVERS)
    assert gpus(8) == (8, 8, 1)
    assert gpus(8, *bare) == (7, 1, 1)
    assert gpus(8, *bare, engine_gpus=4) == (4, 4, 1)
    assert gpus(8, *bare, "engine.with.tensor_parallel=2", engine_gpus=4) == (4, 4, 2)
    assert gpus(8, *bare, "engine.with.servers=3") == (5, 3, 1)
    assert gpus(8, "train.max_staleness=1", engine_gpus=4) == (4, 4, 1)
    assert gpus(2, *bare, 'engine.with.urls=["http://a:1"]') == (2, 1, 1)
    assert gpus(4, SHARED) == (4, 4, 2)


def test_an_engine_of_two_gpus_has_half_of_the_weights_on_each():
    """1.72e9 numbers of two bytes: 3.44 GB on the GPU of an engine of one, 1.72 on each of two."""
    one, two = (
        planned(GSM8K, path("1.7B"), SHARED, f"engine.with.tensor_parallel_size={size}", count=4)
        for size in (1, 2)
    )
    params = one.setup.shape.params
    assert one.setup.engine.memory - two.setup.engine.memory == params  # 2 bytes, half of them
    assert params == pytest.approx(1.72e9, rel=0.01)
    # the same room for keys and values a GPU, and half of each token's on it
    assert two.memory.kv_room == pytest.approx(one.memory.kv_room)
    assert two.memory.kv_needed == one.memory.kv_needed / 2
    assert one.memory.generating - two.memory.generating == params


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "gpt2"}, "GPT2LMHeadModel is not a model whose memory"),
        ({"model_type": "gemma2", "head_dim": 8}, "Gemma2ForCausalLM is not a model"),
        ({"model_type": "qwen3_moe"}, "Qwen3MoeForCausalLM is not a model"),
        ({"model_type": "nothing"}, "built from its config.json"),
    ],
)
def test_an_unknown_architecture_is_refused(tmp_path, config, said):
    few = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 100}
    few |= {"num_attention_heads": 4, "n_embd": 32, "n_layer": 2, "n_head": 4}
    (tmp_path / "config.json").write_text(json.dumps(few | config), encoding="utf-8")
    with pytest.raises(MachineError, match=said) as error:
        planned(GSM8K, f"model.path={tmp_path}")
    assert error.value.complaints[0].remedy


def test_an_adapter_for_no_layer_is_refused():
    with pytest.raises(ConfigError, match="no linear layer is named nowhere"):
        planned(GSM8K, path("1.7B"), "model.lora.target_modules=[nowhere]")


def test_what_is_assumed_is_said(tmp_path):
    changes = ["train.compile=true", "model.lora.rank=8", "model.lora.dropout=0.1"]
    notes = " ".join(planned(GSM8K, path("1.7B"), *changes).notes)
    for part in ("half of sampling.max_tokens", "train.compile", "dropout", "not measured"):
        assert part in notes
    assert "max_tokens long" not in " ".join(planned(GSM8K, path("1.7B"), mean_tokens=9).notes)
    assert yaml.safe_load(GSM8K.read_text())["engine"]["use"] == "core/vllm"


def test_a_row_that_is_too_long_for_a_gpu_is_advised_to_be_split():
    """Of 394k tokens, with all layers recomputed over shards; shorter ones need no split."""

    def settings(cap):
        row = [f"sampling.max_tokens={cap}", f"train.tokens_per_micro_batch={cap + 1024}"]
        least = ["train.parallel=fsdp", "train.gradient_checkpointing=all", "loss.with.beta=0"]
        changes = ["engine.with={}", SERVERS, *row, *least]
        asked = planner(GSM8K, path("1.7B"), *changes, gpu="h100-80", engine_gpus=4)
        plan = asked.plan(8)
        return plan.fits, [one.settings for one in advise(asked, plan, 8)]

    assert settings(262_144) == (True, [])
    fits, found = settings(393_216)
    assert not fits
    assert found[0] == ("train.context_parallel=2",)
