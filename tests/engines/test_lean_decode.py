"""Rows that share a prompt's keys and values: the slots, and the logits of any order of ends."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Qwen3Config, Qwen3ForCausalLM

from rlvr_core.builtin.tiny.lean import recognise
from rlvr_core.builtin.tiny.lean_decode import LeanDecoder, Sharing
from rlvr_core.engines.decode import HuggingFaceDecoder
from rlvr_core.parallel.model_adapter import adapter_of


def test_even_groups_need_no_slots():
    assert Sharing.of(torch.tensor([0, 0, 1, 1]), 2) == Sharing(2, None, None)


def test_slots_of_uneven_groups_worked_out_by_hand():
    sharing = Sharing.of(torch.tensor([0, 1, 1, 1, 2, 2]), 3)
    assert sharing.slots == 3
    assert sharing.slot_of_row_B.tolist() == [0, 3, 4, 5, 6, 7]
    assert sharing.row_of_slot_R.tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 0]
    value_hBgX = torch.arange(6.0).view(1, 6, 1, 1)
    slots = sharing.by_prompt(value_hBgX).view(1, 3, 3, 1)
    assert slots.flatten().tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 0]
    assert torch.equal(sharing.by_row(slots, 6), value_hBgX)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        initializer_range=0.3,
    )
    return Qwen3ForCausalLM(config).eval()


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_logits_are_the_models_own_whichever_rows_go_on(model, data):
    lengths = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    counts = [data.draw(st.integers(1, 4)) for _ in lengths]
    prompts = [tuple((7 * s + 3 * p) % 40 for p in range(n)) for s, n in enumerate(lengths)]
    decoders = [LeanDecoder(recognise(model, adapter_of(model))), HuggingFaceDecoder(model)]
    with torch.inference_mode():
        logits = [decoder.prefill(prompts, counts, 8) for decoder in decoders]
        torch.testing.assert_close(logits[0], logits[1], rtol=1e-4, atol=1e-4)
        B = sum(counts)
        for t in range(5):
            tokens = torch.tensor([(11 * row + 5 * t) % 40 for row in range(B)])
            logits = [decoder.step(tokens) for decoder in decoders]
            torch.testing.assert_close(logits[0], logits[1], rtol=1e-4, atol=1e-4)
            kept = data.draw(st.sets(st.integers(0, B - 1), min_size=1)) if t < 3 else set(range(B))
            for decoder in decoders:
                decoder.select(torch.tensor(sorted(kept)))
            B = len(kept)
