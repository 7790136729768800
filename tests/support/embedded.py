"""A tiny model, its tokenizer and a started transformers engine, for the tests beside this."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rlvr_core.api import EngineContext, EngineTraits, GenerationRequest, RunError, SamplingParams
from rlvr_core.engines.scripted import ScriptedEngine
from rlvr_core.engines.sync import ModuleSource
from rlvr_core.engines.transformers import TransformersEngine
from rlvr_core.lora.adapter import write_adapter
from rlvr_core.tiny.tiny_tokenizer import train_tokenizer

TEXTS = [
    "What is 37+48? The answer is 85.\n\nQuestion: naïve café 日本 ½",
    "stop here, STOP now",
] * 3


def make_tokenizer():
    return train_tokenizer(TEXTS, 300)


def make_model(tokenizer, *, vocab_size=None, dtype=torch.float32, **changes):
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            **{
                "vocab_size": vocab_size or len(tokenizer),
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 16,
                "initializer_range": 0.3,
                "max_position_embeddings": 256,
                "bos_token_id": None,
                "eos_token_id": None,
                **changes,
            }
        )
    )
    return model.to(dtype).eval()


def start(model, tokenizer, *, max_model_len=256, dtype=None, **options):
    engine = TransformersEngine(TransformersEngine.Config(**options))
    dtype = dtype or model.dtype
    engine.start(EngineContext("", model, tokenizer, dtype, max_model_len, 0))
    return engine


def request(prompt_ids, n=1, seed=0, id="r", **params):
    seeds = tuple(range(seed, seed + n))
    return GenerationRequest(id, tuple(prompt_ids), SamplingParams(**params), seeds)


def generate(engine, *requests):
    futures = [engine.submit(one) for one in requests]
    engine.drain()
    return [future.result() for future in futures]


def exact_logits(model, prompt_ids, token_ids):
    """(T, V) float64 logits that predict each token, from the model's own forward."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt_ids, *token_ids]])).logits[0]
    return logits[len(prompt_ids) - 1 : -1].double()


def check_logprobs(model, prompt_ids, answer, tolerance=2e-5):
    """The log-probs of an answer are those of the model's own forward."""
    logp = exact_logits(model, prompt_ids, answer.token_ids).log_softmax(-1)
    exact = logp.gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0].tolist()
    assert list(answer.logprobs) == pytest.approx(exact, abs=tolerance)


class Own(TransformersEngine):
    """One with a model of its own, which takes weights by name."""

    traits = EngineTraits(own_weights=True)

    def start(self, context):
        self.mine = Qwen3ForCausalLM.from_pretrained(context.model_path).to(context.dtype).eval()
        super().start(replace(context, model=self.mine))

    @torch.no_grad()
    def load_weights(self, version, source):
        assert source.module is None
        own = dict(self.mine.named_parameters())
        for name, tensor in source.tensors():
            own[name].copy_(tensor)
        super().load_weights(version, ModuleSource(self.mine))


class Adapting(Own):
    """One that takes adapters, to put them on a base model of its own."""

    traits = EngineTraits(own_weights=True, takes_adapter=True)

    def start(self, context):
        self.path = context.model_path
        super().start(context)

    def load_weights(self, version, source):
        from peft import PeftModel

        base = Qwen3ForCausalLM.from_pretrained(self.path)
        with tempfile.TemporaryDirectory() as folder:
            write_adapter(Path(folder), source.adapter())
            self.mine = PeftModel.from_pretrained(base, folder).merge_and_unload().eval()
        TransformersEngine.load_weights(self, version, ModuleSource(self.mine))


class TwoWordsError(RunError):
    """Pickles, and cannot be made again from what it pickles to."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


class Complaining(ScriptedEngine):
    """Takes no request."""

    def submit(self, request):
        raise TwoWordsError("no", "thanks")
