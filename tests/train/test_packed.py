"""All rows of a micro-batch as one sequence, against each of them with its own prompt."""

import copy
import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rlvr_core.compiling.layers import compiled_model
from rlvr_core.packing.attention_mask import (
    GridMask,
    HeadSizes,
    VarlenMask,
    attention_mask_of,
    flash_works,
)
from rlvr_core.packing.joined_attention import JoinedMask
from rlvr_core.packing.packed import heads_of, packed_rows, packed_tokens, predictors
from rlvr_core.step.batch import Row, micro_batches
from rlvr_core.step.forward import completion_logprobs, whole_rows

V = 50
LLAMA_LIKE = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def qwen3(implementation="sdpa", head_dim=8):
    config = Qwen3Config(**LLAMA_LIKE, head_dim=head_dim, attn_implementation=implementation)
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


HAND = [
    Row((7, 8), (1, 2, 3), (True,) * 3, (0.0,) * 3, 0.0),
    Row((7, 8), (4, 5), (False, True), (0.0,) * 2, 0.0),
    Row((9,), (6,), (True,), (0.0,), 0.0),
]


def test_layout_worked_out_by_hand():
    (batch,) = micro_batches(HAND, tokens_per_micro_batch=1000)
    assert batch.row_index_B.tolist() == [0, 1, 2]
    ids_N, position_N = packed_tokens(batch)
    assert ids_N.tolist() == [7, 8, 9, 1, 2, 4]
    assert position_N.tolist() == [0, 1, 0, 2, 3, 2]
    assert predictors(batch).tolist() == [1, 3, 4, 5, 2]  # the token before 1, 2, 3, 5 and 6


def test_lengths_worked_out_by_hand():
    (batch,) = micro_batches(HAND, tokens_per_micro_batch=1000)
    lengths = VarlenMask.of(batch)
    # prompts 7 8 and 9, then rows 1 2, 4 and nothing, each of the last three behind its prompt
    assert lengths.first_query_R1.tolist() == [0, 2, 3, 5, 6, 6]
    assert lengths.keys_M.tolist() == [0, 1, 2, 0, 1, 3, 4, 0, 1, 5, 2]
    assert lengths.first_key_R1.tolist() == [0, 2, 3, 7, 10, 11]
    assert (lengths.most_queries, lengths.most_keys) == (2, 4)


def one_by_one(q_NhD, k_NhD, v_NhD, lengths, scale):
    """Attention of one query after the other; the last query of a sequence sees its last key."""
    starts = lengths.first_query_R1.tolist(), lengths.first_key_R1.tolist()
    share = q_NhD.shape[1] // k_NhD.shape[1]
    out = []
    for r in range(len(starts[0]) - 1):
        (q0, q1), (k0, k1) = (s[r : r + 2] for s in starts)
        keys = lengths.keys_M[k0:k1]
        for i in range(q1 - q0):
            seen = keys[: len(keys) - (q1 - q0) + i + 1]
            k, v = (x[seen].repeat_interleave(share, dim=1) for x in (k_NhD, v_NhD))
            weights = torch.einsum("hd,khd->hk", q_NhD[q0 + i], k).mul(scale).softmax(-1)
            out.append(torch.einsum("hk,khd->hd", weights, v))
    return torch.stack(out)


LENGTHS = st.lists(
    st.lists(st.integers(1, 6), min_size=2, max_size=4).map(tuple), min_size=1, max_size=4
)


@given(LENGTHS, st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_every_way_is_attention_one_by_one(lengths, seed):
    batch = batch_of(lengths, seed)
    n = int(batch.prompt_len_S.sum() + batch.fed_lengths().sum())
    draw = torch.Generator().manual_seed(seed)
    q, k, v, along = (
        torch.randn(n, h, 4, generator=draw, dtype=torch.float64, requires_grad=True)
        for h in (4, 2, 2, 4)
    )
    expected = one_by_one(q, k, v, VarlenMask.of(batch), 0.3)
    for way in (JoinedMask.of(batch), GridMask.of(batch)):
        out = way.attend(q, k, v, 0.3)
        torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
        ours, theirs = (
            torch.autograd.grad(x, (q, k, v), along, retain_graph=True) for x in (out, expected)
        )
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("heads", [HeadSizes(16, 8, 128, 128), HeadSizes(4, 4, 64, 64)])
def test_the_flash_kernel_works(heads, dtype):
    device = torch.device("cuda", torch.cuda.current_device())
    assert flash_works(device, dtype, heads)
    batch = batch_of(RAGGED).to(device)
    assert isinstance(attention_mask_of(batch, dtype, [heads], compiled=False), VarlenMask)


def run_packed(model, batch):
    packed_mask = attention_mask_of(batch, model.dtype, heads_of(model), compiled=False)
    return packed_rows(model, batch, packed_mask)


@given(LENGTHS, st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_any_shape_of_batch(lengths, seed):
    batch = batch_of(lengths, seed)
    assert heads_of(MODEL) == {HeadSizes(4, 4, 8, 8)}
    with torch.no_grad():
        packed, whole = run_packed(MODEL, batch), whole_rows(MODEL, batch)
    torch.testing.assert_close(packed, whole, rtol=1e-4, atol=1e-4)


MODEL = gpt2()


@pytest.mark.parametrize(
    "make",
    [lambda: mistral(16), bloom, lambda: qwen3("eager")],
    ids=["window", "alibi", "eager"],
)
def test_a_model_with_attention_of_its_own_keeps_it(make):
    model = make().double()
    batch = batch_of([(40, *[5] * 6)])
    assert not heads_of(model)
    whole = whole_rows(model, batch).log_softmax(-1)
    expected_N = whole.gather(1, batch.completion_ids_BT[batch.mask_BT][:, None])[:, 0]
    logp_BT = completion_logprobs(model, batch, temperature=1.0)
    torch.testing.assert_close(logp_BT[batch.mask_BT], expected_N, rtol=1e-9, atol=1e-9)


def test_the_model_is_what_it_was_for_others():
    ids = torch.arange(12)[None]
    model = mistral(None)
    before = model(input_ids=ids).logits
    assert heads_of(model)
    assert torch.equal(model(input_ids=ids).logits, before)
    with pytest.raises(ValueError, match="not packed"):
        model(input_ids=ids, packed_mask=GridMask.of(batch_of(RAGGED)), softcap=30.0)
    with pytest.raises(ValueError, match="not packed"):  # a mask of the model's own
        model(input_ids=ids, attention_mask=ids > 0, packed_mask=GridMask.of(batch_of(RAGGED)))


def test_whether_a_model_packs_does_not_depend_on_precision_or_kernel():
    model = qwen3()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    with torch.autocast("cpu", dtype=torch.bfloat16), sdpa_kernel(SDPBackend.MATH):
        assert heads_of(model)


def test_values_narrower_than_keys():
    config = DeepseekV3Config(
        **LLAMA_LIKE | {"num_key_value_heads": 4},
        moe_intermediate_size=16,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
        kv_lora_rank=8,
        q_lora_rank=8,
        qk_rope_head_dim=4,
        qk_nope_head_dim=8,
        v_head_dim=8,
    )
    model = seeded(DeepseekV3ForCausalLM, config)
    assert heads_of(model) == {HeadSizes(4, 4, 12, 8)}
    batch = batch_of(RAGGED)
    expected = whole_rows(model, batch).log_softmax(-1)
    expected_N = expected.gather(1, batch.completion_ids_BT[batch.mask_BT][:, None])[:, 0]
    logp_BT = completion_logprobs(model, batch, temperature=1.0)
    torch.testing.assert_close(logp_BT[batch.mask_BT], expected_N, rtol=1e-4, atol=1e-5)


def test_many_rows_add_up_their_prompt_s_gradient_in_float32():
    batch = batch_of([(4, *[3] * 128)])
    n = int(batch.prompt_len_S.sum() + batch.fed_lengths().sum())
    draw = torch.Generator().manual_seed(0)
    q, k, v, along = (torch.randn(n, 2, 8, generator=draw) for _ in range(4))
    along = along + 1.0  # the rows' parts do not cancel
    grads = []
    for dtype in (torch.bfloat16, torch.float64):
        heads = [x.bfloat16().to(dtype).requires_grad_() for x in (q, k, v)]
        out = GridMask.of(batch).attend(*heads, 0.3)
        grads.append(torch.autograd.grad(out, heads, along.bfloat16().to(dtype))[2][:4].double())
    ours, exact = grads
    assert (ours - exact).norm() < 0.004 * exact.norm()


@pytest.mark.parametrize("lengths", [RAGGED, [(3, 1), (2, 1)]])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_mask_that_is_added_is_the_mask(dtype, lengths):
    batch = batch_of(lengths)
    n = int(batch.prompt_len_S.sum() + batch.fed_lengths().sum())
    draw = torch.Generator().manual_seed(0)
    heads = [torch.randn(n, h, 8, generator=draw).to(dtype).requires_grad_() for h in (4, 2, 2)]
    plain, added = GridMask.of(batch), GridMask.of(batch, dtype)
    assert plain.mask_B1TK.dtype == torch.bool
    assert torch.equal(added.mask_B1TK == 0, plain.mask_B1TK)
    assert added.mask_B1TK.dtype == dtype
    # a GPU's kernel takes rows that begin at a multiple of 8 as they are
    assert all(step % 8 == 0 for step in added.mask_B1TK.stride()[:-1])
    found = []
    for way in (plain, added):
        out = way.attend(*heads, 0.3)
        found.append([out, *torch.autograd.grad(out.float().square().sum(), heads)])
    assert all(map(torch.equal, *found))


def test_a_compiled_model_has_one_graph_for_all_layers_and_lengths(monkeypatch):
    model = qwen3(head_dim=22)  # torch takes as many rows as that for the same size
    heads = heads_of(model)
    graphs = []

    def count(graph, example):
        graphs.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=count))
    compiled = compiled_model(model)
    assert len(model.model.layers) > 1
    for seed, lengths in enumerate([RAGGED, [(5, 2, 4), (4, 3, 3)], [(4, 3, 3)] * 2, RAGGED[::-1]]):
        batch = batch_of(lengths, seed)
        packed_mask = attention_mask_of(batch, model.dtype, heads, compiled=True)
        states = packed_rows(compiled.body, batch, packed_mask)
        torch.testing.assert_close(states, whole_rows(model.model, batch), rtol=1e-4, atol=1e-4)
    assert len(graphs) == 1


@pytest.mark.parametrize("way", ["checkpointing", "bfloat16", "half the model"])
def test_t7_log_probs_in_every_precision_and_with_checkpointing(way):
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
    assert logp_BT.dtype == torch.float32  # of half-precision logits too
    assert (1, 40 + 6 * 4) in positions  # not six rows of 45
    torch.testing.assert_close(logp_BT.double(), expected, rtol=tolerance, atol=tolerance)
