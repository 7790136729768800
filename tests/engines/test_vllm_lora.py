"""Engine vllm with adapters beside the base, against a plain forward pass of peft's layers."""

import importlib.util

import pytest
import torch

from rlvr_core.api import (
    Adapter,
    ConfigError,
    EngineContext,
    GenerationRequest,
    RunError,
    SamplingParams,
    ScoreRequest,
)
from rlvr_core.config.model import LoraSection
from rlvr_core.engines.sync import ModuleSource
from rlvr_core.engines.vllm.engine import VllmEngine
from rlvr_core.lora import lora
from rlvr_core.lora.adapter import matrices
from tests.support.vllm_models import small_model, word_tokenizer

PROMPT = tuple(range(10, 10 + 80))  # two and a half blocks of 32
needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"
)


def policy(seed, **section):
    """The model with adapters of rank 4 that change what it says."""
    model = small_model(0)
    section = LoraSection(**{"rank": 4, "alpha": 8, **section})
    lora.attach(model, section, seed=seed, compute=torch.float32, path="x", revision=None)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for matrix in matrices(model).values():
            matrix.copy_(0.3 * torch.randn(matrix.shape, generator=draw))
    return model


def context_in(folder, model):
    """Of an engine whose base model is in this folder."""
    words = word_tokenizer()
    small_model(0).save_pretrained(folder)
    words.save_pretrained(folder)
    return EngineContext(str(folder), model, words, torch.float32, 192, 7, adapter_rank=4)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    made = VllmEngine(VllmEngine.Config(kv_cache_mb=64, lora="adapter"))
    made.start(context_in(tmp_path_factory.mktemp("base"), small_model(0)))
    yield made
    made.close()


def sample(engine):
    future = engine.submit(GenerationRequest("r", PROMPT, SamplingParams(max_tokens=24), (0, 1, 2)))
    engine.drain(120)
    return future.result(0)


@torch.no_grad()
def oracle(model, token_ids):
    ids = torch.tensor([[*PROMPT, *token_ids]])
    logits = model(ids).logits[0, len(PROMPT) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, ids[0, len(PROMPT) :, None])[:, 0]


def distance(engine, model):
    """Largest |engine - oracle| over the sampled tokens."""
    parts = [
        oracle(model, answer.token_ids) - torch.tensor(answer.logprobs) for answer in sample(engine)
    ]
    return torch.cat(parts).abs().max().item()


@pytest.mark.vllm
@pytest.mark.slow
@needs_vllm
def test_t19_an_adapter_takes_the_place_of_the_one_before(engine):
    """The prompt is two blocks and more: no keys and values of an old adapter are left."""
    first, second = policy(1), policy(2)
    some = policy(3, rank=3, target_modules=["q_proj", "v_proj", "down_proj"])
    for version, model in enumerate([first, second, first, some]):
        engine.load_weights(version, ModuleSource(model))
        assert distance(engine, model) < 1e-4
        assert {answer.version for answer in sample(engine)} == {version}
    assert distance(engine, second) > 0.5  # they differ: agreement means something
    running = engine._running
    assert len(running.llm.list_loras()) == 1
    assert len(list(running.adapters._place.iterdir())) == 1


@pytest.mark.vllm
@pytest.mark.slow
@needs_vllm
def test_given_texts_are_scored_with_the_adapter(engine):
    model = policy(1)
    engine.load_weights(4, ModuleSource(model))
    tokens = (5, 99, 120, 7)
    (found,) = engine.score([ScoreRequest(PROMPT, tokens)], 120)
    expected = oracle(model, tokens)
    torch.testing.assert_close(torch.tensor(found.logprobs), expected, rtol=0, atol=1e-4)


class Odd(ModuleSource):
    """A source whose adapter names a layer that vLLM's model does not have."""

    def adapter(self):
        found = super().adapter()
        renamed = {name.replace("layers.1.", "layers.7."): t for name, t in found.tensors.items()}
        return Adapter(renamed, found.config)


@pytest.mark.vllm
@pytest.mark.slow
@needs_vllm
def test_t30_layers_that_vllm_would_leave_out_are_an_error(engine):
    with pytest.raises(RunError, match="no place for the adapters of 7 layers"):
        engine.load_weights(5, Odd(policy(2)))
    with pytest.raises(RunError, match="out of order"):
        sample(engine)
    engine._broken = None  # vLLM itself is whole
    engine.load_weights(6, ModuleSource(policy(2)))


@pytest.mark.parametrize(("rank", "words"), [(None, "there are none"), (513, "512 at most")])
def test_an_engine_for_adapters_that_cannot_have_any_is_refused(rank, words):
    engine = VllmEngine(VllmEngine.Config(lora="adapter"))
    context = EngineContext("x", None, None, torch.float32, 8, 0, adapter_rank=rank)
    with pytest.raises(ConfigError, match=words):
        engine.start(context)
