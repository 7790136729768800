"""A prompt with all its completions as one sequence, against each of them with its own prompt."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rlvr_core.train.batch import Row, micro_batches
from rlvr_core.train.forward import _whole_rows, completion_logprobs
from rlvr_core.train.tree import Plan, Trees, saving_plan, takes_trees, tree_rows

V = 50
LLAMA_LIKE = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def qwen3(implementation="sdpa"):
    config = Qwen3Config(**LLAMA_LIKE, head_dim=8, attn_implementation=implementation)
    return seeded(Qwen3ForCausalLM, config)


def mistral(window):
    return seeded(MistralForCausalLM, MistralConfig(**LLAMA_LIKE, sliding_window=window))


def gpt2(implementation="sdpa"):
    config = GPT2Config(
        vocab_size=V,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        attn_implementation=implementation,
    )
    return seeded(GPT2LMHeadModel, config)


def bloom():
    return seeded(BloomForCausalLM, BloomConfig(vocab_size=V, hidden_size=32, n_layer=2, n_head=4))


def seeded(kind, config):
    torch.manual_seed(0)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def rows_of(lengths, seed=0):
    """One list of completion lengths a prompt, whose own length comes first."""
    draw = torch.Generator().manual_seed(seed)

    def ids(n):
        return tuple(torch.randint(0, V, (n,), generator=draw).tolist())

    rows = []
    for prompt_length, *completions in lengths:
        prompt = (*ids(prompt_length - 1), len(rows) % V)
        rows += [Row(prompt, ids(n), (True,) * n, (0.0,) * n, 1.0) for n in completions]
    return rows


def batch_of(lengths, seed=0):
    (batch,) = micro_batches(rows_of(lengths, seed), tokens_per_micro_batch=10_000)
    return batch


RAGGED = [(9, 4, 7, 1), (3, 6), (5, 2, 2, 8), (2, 3)]


def test_layout_worked_out_by_hand():
    rows = [
        Row((7, 8), (1, 2, 3), (True,) * 3, (0.0,) * 3, 0.0),
        Row((7, 8), (4, 5), (True,) * 2, (0.0,) * 2, 0.0),
        Row((9,), (6,), (True,), (0.0,), 0.0),
    ]
    (batch,) = micro_batches(rows, tokens_per_micro_batch=1000)
    assert batch.row_index_B.tolist() == [0, 1, 2]
    plan = Plan.of(batch, apart=False)
    trees = Trees.of(batch, plan)
    assert trees.ids_GL.tolist() == [[7, 8, 1, 2, 4], [9, 0, 0, 0, 0]]
    assert trees.position_GL.tolist() == [[0, 1, 2, 3, 2], [0, 0, 0, 0, 0]]
    assert trees.segment_GL.tolist() == [[0, 0, 1, 1, 2], [0, -1, -1, -1, -1]]
    assert plan.place_B.tolist() == [2, 4, 1]
    first, _ = trees.visible()
    assert first.int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]


def test_rows_share_a_sequence_worked_out_by_hand():
    rows = [
        Row((7, 8), (1, 2, 3, 0), (True,) * 4, (0.0,) * 4, 0.0),
        Row((7, 8), (4, 5), (True,) * 2, (0.0,) * 2, 0.0),
        Row((9,), (6, 0), (True,) * 2, (0.0,) * 2, 0.0),
    ]
    (batch,) = micro_batches(rows, tokens_per_micro_batch=1000)
    assert batch.row_index_B.tolist() == [0, 1, 2]
    plan = Plan.of(batch, apart=True)
    trees = Trees.of(batch, plan)
    assert trees.ids_GL.tolist() == [[7, 8, 1, 2, 3], [7, 8, 4, 9, 6]]
    assert trees.position_GL.tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 0, 1]]
    assert trees.tree_GL.tolist() == [[0] * 5, [1, 1, 1, 2, 2]]
    _, second = trees.visible()
    assert second.int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 1, 1],
    ]


@pytest.mark.parametrize("apart", [False, True], ids=["prompts", "rows"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("make", [qwen3, gpt2])
def test_states_and_gradients_are_those_of_whole_rows(make, implementation, apart):
    model = make(implementation).double()
    assert takes_trees(model, _whole_rows)
    plan = Plan.of(batch_of(RAGGED), apart=apart)
    assert plan.shape[0] < len(plan.prompt_of_tree_U)  # some share a sequence
    found = []
    for run in (lambda b: tree_rows(model, b, plan, model.dtype), lambda b: _whole_rows(model, b)):
        model.zero_grad()
        logits = run(batch_of(RAGGED))
        (logits.log_softmax(-1)[:, 3] * torch.arange(len(logits))).sum().backward()
        found.append((logits.detach(), [p.grad.clone() for p in model.parameters()]))
    (trees, tree_grads), (whole, whole_grads) = found
    torch.testing.assert_close(trees, whole, rtol=1e-6, atol=1e-6)
    for ours, theirs in zip(tree_grads, whole_grads, strict=True):
        assert (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max().clamp(min=1e-3)


LENGTHS = st.lists(
    st.lists(st.integers(1, 6), min_size=2, max_size=4).map(tuple), min_size=1, max_size=4
)


@given(LENGTHS, st.integers(0, 100), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_shape_of_batch(lengths, seed, apart):
    model = MODEL
    batch = batch_of(lengths, seed)
    plan = Plan.of(batch, apart=apart)
    with torch.no_grad():
        trees, whole = tree_rows(model, batch, plan, model.dtype), _whole_rows(model, batch)
    torch.testing.assert_close(trees, whole, rtol=1e-4, atol=1e-4)


MODEL = gpt2()


def test_trees_are_taken_where_they_pay():
    model = qwen3()
    one = saving_plan(model, batch_of([(60, *[6] * 8)]))
    assert one.shape == (1, 100)  # for eight rows of 66
    # hardly fewer as one sequence, whose attention is long
    assert saving_plan(model, batch_of([(4, *[60] * 8)])) is None
    assert saving_plan(model, batch_of([(8, 8), (8, 8)])) is None  # nothing to share


def test_short_rows_share_a_sequence_where_lengths_are_skewed():
    skewed = [(3, 50), *[(3, 8)] * 5, (4, 12, 12)]
    plan = saving_plan(qwen3(), batch_of(skewed))
    # 52 positions; ten for each of five rows; 4 + 2 x 11 for a tree of two
    assert plan.shape == (3, 52)
    assert len(plan.prompt_of_tree_U) == 7


@pytest.mark.parametrize("make", [lambda: mistral(16), bloom], ids=["window", "alibi"])
def test_a_model_that_needs_its_own_mask_keeps_it(make):
    model = make().double()
    batch = batch_of([(40, *[5] * 6)])
    assert saving_plan(model, batch) is not None
    assert not takes_trees(model, _whole_rows)
    whole = _whole_rows(model, batch).log_softmax(-1)
    expected_N = whole.gather(1, batch.completion_ids_BT[batch.mask_BT][:, None])[:, 0]
    logp_BT = completion_logprobs(model, batch, temperature=1.0)
    torch.testing.assert_close(logp_BT[batch.mask_BT], expected_N, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("way", ["checkpointing", "bfloat16", "half the model"])
def test_log_probs_in_every_precision_and_with_checkpointing(way):
    model = qwen3()
    batch = batch_of([(40, *[5] * 6)])
    expected = completion_logprobs(copy.deepcopy(model).double(), batch, temperature=0.7)
    autocast, tolerance = None, 1e-5
    if way == "checkpointing":
        model.train()
        model.gradient_checkpointing_enable()
    elif way == "bfloat16":
        autocast, tolerance = torch.bfloat16, 0.05
    else:
        model, tolerance = model.bfloat16(), 0.05
    positions = []
    model.model.layers[0].register_forward_hook(lambda _, i, __: positions.append(i[0].shape[:2]))
    logp_BT = completion_logprobs(model, batch, temperature=0.7, autocast_dtype=autocast)
    logp_BT.sum().backward()
    assert (1, 40 + 6 * 4) in positions  # not six rows of 45
    torch.testing.assert_close(logp_BT.double(), expected, rtol=tolerance, atol=tolerance)
