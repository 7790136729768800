"""What a run on a GPU says of its attention: which it takes, and why not the fastest there is."""

import pytest
import torch

from rlvr_core.packing import attention_mask, packed, way
from rlvr_core.packing.attention_mask import HeadSizes, flash_fault
from tests.support.train.small import small_model

GPU = torch.device("cuda")
HEADS = HeadSizes(4, 2, 8, 8)


def of(model, *paths, dtype=torch.bfloat16):
    found = way.way_of_run(model, paths or ("core/packed",), dtype)
    assert found.name == "attention"
    (said,) = found.lines
    assert found.record["reason"] in said
    return found.record["rows"], found.record["kernel"], found.record["reason"]


@pytest.fixture
def fault(monkeypatch):
    """The flash kernel works for heads of 8, and for no others."""

    def answer(device, dtype, heads):
        return "" if heads.dim == 8 else f"no heads of {heads.dim}"

    monkeypatch.setattr(way, "flash_fault", answer)


def test_the_fastest_way_has_no_reason(fault):
    assert of(small_model()) == ("packed", "flash", "")


def test_heads_without_a_kernel_are_computed_in_grids(fault):
    assert of(small_model(head_dim=16)) == ("packed", "grids", "no heads of 16")


def test_a_model_that_cannot_be_packed_says_what_rules_it_out(fault, monkeypatch):
    assert of(small_model(), "cluster/context-parallel") == (
        *("padded", "its own", "model.forward_paths has no core/packed"),
    )
    eager = small_model()
    eager.set_attn_implementation("eager")
    assert of(eager)[:2] == ("padded", "its own")
    assert of(eager)[2].startswith("model.attention is eager")
    windows = small_model()
    windows.config.layer_types = ["sliding_attention"]
    assert of(windows)[2] == "its attention has windows"
    odd = small_model()
    monkeypatch.setattr(packed, "packed_rows", lambda *_: torch.zeros(1))
    assert of(odd)[2] == "packed rows do not give what whole rows give"


def test_why_the_flash_kernel_is_not_taken(monkeypatch):
    why = flash_fault.__wrapped__
    if attention_mask._FLASH is None:
        monkeypatch.setattr(attention_mask, "_FLASH", print)
    assert why(torch.device("cpu"), torch.bfloat16, HEADS) == "it needs a GPU"
    assert why(GPU, torch.float32, HEADS) == "it does not compute in float32"
    other = HeadSizes(4, 2, 192, 128)
    assert why(GPU, torch.bfloat16, other) == "heads are of 192 for keys and of 128 for values"

    def refused(*_):
        raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.\nMore.")

    on_cpu = attention_mask._example(torch.device("cpu"))
    monkeypatch.setattr(attention_mask, "_example", lambda _: on_cpu)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *_, **__: self)
    monkeypatch.setattr(attention_mask.VarlenMask, "attend", refused)
    assert why(GPU, torch.bfloat16, HEADS) == (
        "it failed: RuntimeError: FlashAttention only supports Ampere GPUs or newer."
    )
    monkeypatch.setattr(attention_mask, "_FLASH", None)
    assert why(GPU, torch.bfloat16, HEADS).endswith("has no flash attention of varying lengths")


def test_a_kernel_that_gives_other_numbers_is_found_out(monkeypatch):
    """Grids take the place of the kernel, as they are and with larger values."""
    why = flash_fault.__wrapped__
    on_cpu = attention_mask._example(torch.device("cpu"))
    monkeypatch.setattr(attention_mask, "_FLASH", print)
    monkeypatch.setattr(attention_mask, "_example", lambda _: on_cpu)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *_, **__: self)

    class Varlen:
        more = 1.0

        @classmethod
        def of(cls, batch):
            grid = attention_mask.GridMask.of(batch)
            cls.attend = lambda self, q, k, v, scale: grid.attend(q, k, cls.more * v, scale)
            return cls()

    monkeypatch.setattr(attention_mask, "VarlenMask", Varlen)
    assert why(GPU, torch.bfloat16, HEADS) == ""
    Varlen.more = 1.2
    assert why(GPU, torch.bfloat16, HEADS) == "its results are not those of grids"
