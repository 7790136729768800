"""A Qwen3 of a few thousand weights, what trains it, and what counts its operations."""

from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Qwen3Config, Qwen3ForCausalLM

from rlvr_core.algorithm.estimate import Estimator
from rlvr_core.api import NoConfig
from rlvr_core.plugins.host import load_host
from rlvr_core.step.model import Precision
from rlvr_core.step.objective import Objective
from rlvr_core.step.optim import AdamW, Constant, Optimizer
from rlvr_core.step.step import PolicyTrainer

ADAMW, CONSTANT = AdamW(AdamW.Config()), Constant(NoConfig())

SHAPE = {
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
}


def small_model(seed=0, **changes):
    """A model of random weights that computes the same each time."""
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(Qwen3Config(**SHAPE | changes)).eval()


def estimator_for(terms, name="auto", **options):
    """An advantage estimator that comes with rlvr; None if no term uses it."""
    names = [term.traits.advantage for term in terms if term.traits.advantage is not None]
    if not names:
        return None
    registry = load_host().registry
    cls = registry.find("advantage", names[0] if name == "auto" else name).load()
    return Estimator(name, cls(cls.Config(**options)))


def small_trainer(model, terms, train, *, reference=None, temperature=1.0, estimator=None):
    """A trainer of one process in float32, for completions of at most 8 tokens."""
    return PolicyTrainer(
        model=model,
        reference=reference,
        objective=Objective(tuple(terms), estimator or estimator_for(terms)),
        optimizer=Optimizer(model, train, torch.float32, ADAMW, CONSTANT),
        precision=Precision(torch.float32),
        train=train,
        temperature=temperature,
        max_completion_tokens=8,
        reward_weights=lambda step: (1.0,),
    )


class Calls(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **kwargs or {})
