"""What vLLM computes with is read back from its model, packed and fused as it is."""

import copy
import importlib.util

import pytest
import torch

from rlvr_core.api import EngineContext, RunError
from rlvr_core.config.model import LoraSection
from rlvr_core.engines.sync import ModuleSource, weight_checksums
from rlvr_core.engines.vllm.engine import VllmEngine
from rlvr_core.lora import lora
from rlvr_core.lora.adapter import matrices
from tests.support.vllm_models import small_model, word_tokenizer

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]


def started(folder, dtype=torch.float32, *, tied=True, **options):
    model, words = small_model(0, tied=tied), word_tokenizer()
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    engine = VllmEngine(VllmEngine.Config(kv_cache_mb=32, **options))
    engine.start(EngineContext(str(folder), model, words, dtype, 192, 7, adapter_rank=4))
    return engine


def checksums(model, dtype):
    """Every parameter by its Hugging Face name, the head that shares the embedding's too."""
    return weight_checksums(model.named_parameters(remove_duplicate=False), dtype)


@pytest.fixture(scope="module")
def tied(tmp_path_factory):
    engine = started(tmp_path_factory.mktemp("tied"))
    yield engine
    engine.close()


@pytest.mark.essential
def test_every_weight_is_read_back_to_the_bit_before_and_after_a_sync(tied):
    assert tied.fingerprint() == checksums(small_model(0), torch.float32)
    other = small_model(1)
    tied.load_weights(1, ModuleSource(other))
    assert tied.fingerprint() == checksums(other, torch.float32)


def test_in_half_precision_and_with_a_head_of_its_own(tmp_path):
    engine = started(tmp_path, torch.bfloat16, tied=False)
    try:
        other = small_model(1, tied=False)
        engine.load_weights(1, ModuleSource(other))
        assert engine.fingerprint() == checksums(other, torch.bfloat16)
    finally:
        engine.close()


def test_what_did_not_arrive_is_in_the_read_back(tied, monkeypatch):
    before, after = small_model(2), small_model(2)
    with torch.no_grad():
        for _, parameter in after.named_parameters():
            parameter.mul_(1 + 2**-20)  # far below what a probe of log-probs shows
    tied.load_weights(2, ModuleSource(before))
    model = tied._running.llm.model_executor.driver_worker.worker.model_runner.model
    layer = model.model.layers[1].mlp.down_proj
    packed = copy.copy(layer.cpu_linear)
    tied.load_weights(3, ModuleSource(after))
    layer.cpu_linear = packed
    found, sent = tied.fingerprint(), checksums(after, torch.float32)
    assert [n for n in sent if found[n] != sent[n]] == ["model.layers.1.mlp.down_proj.weight"]
    name = "model.layers.1.mlp.down_proj.weight"
    assert found[name] == checksums(before, torch.float32)[name]


def test_parts_of_a_fused_matrix_that_changed_places_differ(tied):
    sent = small_model(3)
    crossed = copy.deepcopy(sent)
    gate, up = (getattr(crossed.model.layers[0].mlp, one) for one in ("gate_proj", "up_proj"))
    gate.weight.data, up.weight.data = up.weight.data, gate.weight.data
    tied.load_weights(4, ModuleSource(crossed))
    found, wanted = tied.fingerprint(), checksums(sent, torch.float32)
    wrong = sorted(name for name in wanted if found[name] != wanted[name])
    assert wrong == [f"model.layers.0.mlp.{one}_proj.weight" for one in ("gate", "up")]


def test_a_prefix_cache_that_outlives_a_sync_is_found_though_nothing_changed(tmp_path, monkeypatch):
    engine = started(tmp_path)
    try:
        same = ModuleSource(small_model(0))
        engine.load_weights(1, same)
        monkeypatch.setattr(engine._running.llm, "reset_prefix_cache", lambda **_: True)
        # the log-probs are right, as the weights are those of before
        with pytest.raises(RunError, match="keys and values of 64 tokens from before"):
            engine.load_weights(2, same)
    finally:
        engine.close()


def test_a_label_that_vllm_does_not_take_is_an_error(tmp_path, monkeypatch):
    engine = started(tmp_path)
    try:
        monkeypatch.setattr(engine._running.llm, "set_weight_version", lambda label: None)
        with pytest.raises(RunError, match="vLLM samples under the label 0"):
            engine.load_weights(1, ModuleSource(small_model(0)))
    finally:
        engine.close()


def test_an_adapter_beside_the_base_is_read_back_with_its_scale(tmp_path):
    engine = started(tmp_path, lora="adapter")
    try:
        policy = small_model(0)
        section = LoraSection(rank=4, alpha=6)
        lora.attach(policy, section, seed=1, compute=torch.float32, path="x", revision=None)
        with torch.no_grad():
            for matrix in matrices(policy).values():
                matrix.copy_(0.1 * torch.randn(matrix.shape))
        engine.load_weights(1, ModuleSource(policy))
        found = engine.fingerprint()
        for name, matrix in matrices(policy).items():
            scaled = matrix * 1.5 if ".lora_B." in name else matrix
            (wanted,) = weight_checksums([(name, scaled)]).values()
            assert found[name.replace(".default.", ".")] == wanted
        base = checksums(small_model(0), torch.float32)
        assert {name: found[name] for name in base} == base
    finally:
        engine.close()
