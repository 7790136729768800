"""One half-precision copy of what several layers are given: bit for bit what each's own gives."""

import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from rlvr_core.builtin.casts.shared import in_half, share_casts
from rlvr_core.step.model import enable_checkpointing

sys.path.insert(0, str(Path(__file__).parent))
from small import small_model  # type: ignore

IDS = torch.arange(12).view(2, 6) % 20


def shared(model, *, compiled=None, autocast=torch.bfloat16):
    precision = SimpleNamespace(autocast=autocast)
    return share_casts(SimpleNamespace(model=model, compiled=compiled, precision=precision))


class Casts(TorchDispatchMode):
    """Counts copies of activations to another dtype."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs or {})
        if func._schema.name == "aten::_to_copy" and args[0].ndim == 3:
            self.counts[args[0].dtype, out.dtype] += 1
        return out


def run(model, dtype):
    """Logits and every gradient, and the casts of the forward pass."""
    with torch.autocast("cpu", dtype=dtype, cache_enabled=False), Casts() as casts:
        logits = model(input_ids=IDS, use_cache=False).logits
    model.zero_grad()
    (logits.float().log_softmax(-1)[..., 3] * torch.arange(12.0).view(2, 6)).sum().backward()
    return [logits.detach(), *(p.grad.clone() for p in model.parameters())], casts.counts


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_outputs_and_gradients_are_the_same_bits(dtype, again):
    results, counts = [], []
    for change in (lambda _: None, shared):
        model = small_model(num_hidden_layers=2)
        if again:
            enable_checkpointing(model, "all")
            model.train()
        change(model)
        found, casts = run(model, dtype)
        results.append(found)
        counts.append(casts[torch.float32, dtype])
    assert all(map(torch.equal, *results))
    # of each layer queries, keys and values have one copy, and gate and up another
    assert counts[0] - counts[1] == 2 * 3


def test_a_copy_is_made_anew_when_its_source_has_changed():
    x = torch.ones(2, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first = in_half(x)
        assert in_half(x).data_ptr() == first.data_ptr()
        x += 1
        assert in_half(x).tolist() == [[2.0] * 3] * 2
        assert first.tolist() == [[1.0] * 3] * 2
    with torch.autocast("cpu", dtype=torch.float16):
        assert in_half(x).dtype == torch.float16


def test_outside_of_autocast_nothing_is_cast():
    x = torch.ones(2, 3)
    assert in_half(x) is x
    half = x.bfloat16()
    with torch.autocast("cpu", dtype=torch.float16):
        assert in_half(half) is half
        assert in_half(x.double()).dtype == torch.float64


def test_layers_that_are_compiled_or_in_float32_are_left_alone():
    for options in ({"compiled": object()}, {"autocast": None}):
        model = small_model()
        assert shared(model, **options).record == {"layers": 0}
        assert not any("forward" in vars(one) for one in model.modules())
    # seven of its layer, and the LM head
    report = shared(small_model())
    assert (report.name, report.record) == ("casts", {"layers": 8})


def test_a_layer_that_is_more_than_linear_keeps_its_own():
    class Scaled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model = nn.Sequential(Scaled(2, 2))
    assert shared(model).record == {"layers": 0}
    assert "forward" not in vars(model[0])
