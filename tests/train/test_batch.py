"""Micro-batches: every trained row once, within the budget, nothing inferred from token ids."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_core.step.batch import Row, micro_batches


def row(prompt, tokens, advantage=1.0, mask=None):
    mask = (True,) * len(tokens) if mask is None else tuple(mask)
    return Row(tuple(prompt), tuple(tokens), mask, (-0.5,) * len(tokens), advantage)


prompt_sets = st.lists(
    st.lists(st.integers(0, 5), min_size=1, max_size=6).map(tuple),
    min_size=1,
    max_size=4,
    unique=True,
)


@st.composite
def rows_and_budget(draw):
    prompts = draw(prompt_sets)
    rows = []
    for _ in range(draw(st.integers(0, 25))):
        tokens = draw(st.lists(st.integers(0, 5), max_size=12))
        mask = draw(st.lists(st.booleans(), min_size=len(tokens), max_size=len(tokens)))
        rows.append(row(draw(st.sampled_from(prompts)), tokens, len(rows), mask))
    return rows, draw(st.integers(1, 80))


def padded_tokens(batch):
    """Prompt and completion positions, padding included: what the budget counts."""
    return batch.prompt_ids_SP.numel() + batch.completion_ids_BT.numel()


@settings(max_examples=150, deadline=None)
@given(rows_and_budget())
def test_every_row_with_a_loss_token_appears_once_and_whole(case):
    rows, budget = case
    batches = micro_batches(rows, tokens_per_micro_batch=budget)
    seen = [i for batch in batches for i in batch.row_index_B.tolist()]
    assert sorted(seen) == [i for i, r in enumerate(rows) if any(r.loss_mask)]
    for batch in batches:
        assert padded_tokens(batch) <= budget or len(batch.row_index_B) == 1
        for b, i in enumerate(batch.row_index_B.tolist()):
            source = rows[i]
            s, n = int(batch.prompt_of_row_B[b]), len(source.token_ids)
            length = int(batch.prompt_len_S[s])
            assert tuple(batch.prompt_ids_SP[s, :length].tolist()) == source.prompt_ids
            assert int(batch.completion_len_B[b]) == n
            assert tuple(batch.completion_ids_BT[b, :n].tolist()) == source.token_ids
            assert batch.valid_BT[b].tolist() == [t < n for t in range(batch.valid_BT.shape[1])]
            assert tuple(batch.mask_BT[b, :n].tolist()) == source.loss_mask
            assert not batch.mask_BT[b, n:].any()
            assert float(batch.advantage_B[b]) == source.advantage
            assert batch.behaviour_logp_BT[b, :n].tolist() == list(source.logprobs)
        prompts = {rows[i].prompt_ids for i in batch.row_index_B.tolist()}
        assert len(prompts) == len(batch.prompt_ids_SP)


def test_a_shared_prompt_is_held_once():
    rows = [row((1, 2, 3), (4, 5)) for _ in range(8)]
    (batch,) = micro_batches(rows, tokens_per_micro_batch=3 + 16)
    assert batch.prompt_ids_SP.shape == (1, 3)
    assert padded_tokens(batch) == 19
    assert len(micro_batches(rows, tokens_per_micro_batch=18)) == 2


def test_rows_of_like_length_go_together():
    rows = [row((i,), (1,) * n) for i, n in enumerate((10, 1, 10, 1))]
    batches = micro_batches(rows, tokens_per_micro_batch=22)
    assert [sorted(b.row_index_B.tolist()) for b in batches] == [[0, 2], [1, 3]]


def test_longest_first():
    rows = [row((i,), (1,) * n) for i, n in enumerate((2, 9, 5))]
    batches = micro_batches(rows, tokens_per_micro_batch=1)
    assert [b.row_index_B.tolist() for b in batches] == [[1], [2], [0]]


@pytest.mark.parametrize(
    "arguments",
    [((1,), (2,), (True, True), (0.0,), 1.0), ((), (2,), (True,), (0.0,), 1.0)],
    ids=["lengths", "empty prompt"],
)
def test_impossible_rows_are_refused(arguments):
    with pytest.raises(ValueError, match=r"differ in length|empty prompt"):
        Row(*arguments)
