"""A policy for the stand-in of a vLLM server, and requests to an engine of such servers."""

import time
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from rlvr_core.api import EngineContext, GenerationRequest, SamplingParams
from tests.support import fake_vllm
from tests.support.embedded import make_tokenizer

EOS = make_tokenizer().eos_token_id


class Policy(nn.Module):
    """The trainer's side of the stand-in's model: softmax(w) after anything."""

    def __init__(self, shift=0.0):
        super().__init__()
        w = torch.from_numpy(fake_vllm.first_weights())
        self.w = nn.Parameter(w + shift * torch.arange(w.numel()) / 16)

    def forward(self, input_ids, use_cache, logits_to_keep):
        return SimpleNamespace(logits=self.w.expand(1, logits_to_keep, -1))

    @property
    def logp(self):
        return self.w.detach()[0].double().log_softmax(-1)


def context(dtype=torch.float32):
    config = SimpleNamespace(eos_token_id=EOS)
    model = SimpleNamespace(config=config, generation_config=None)
    return EngineContext("somewhere", model, make_tokenizer(), dtype, 64, 7)


def request(seeds, name="r", prompt=(5, 6, 7), **params):
    params = SamplingParams(**{"max_tokens": 12, **params})
    return GenerationRequest(name, tuple(prompt), params, tuple(seeds))


def sample(engine, seeds=range(8), **params):
    future = engine.submit(request(seeds, **params))
    engine.drain(60)
    return future.result(0)


def check(answers, policy, version):
    for one in answers:
        expected = [float(policy.logp[token]) for token in one.token_ids]
        assert np.allclose(one.logprobs, expected, atol=1e-5)
        assert one.version == version
        ended = one.token_ids[-1] == EOS
        assert one.finish_reason == ("stop" if ended else "length")
        assert ended or len(one.token_ids) == 12


def servers(engine):
    return engine._running.fleet.servers


def until(there, seconds=120):
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end
        time.sleep(0.02)
