from hypothesis import given
from hypothesis import strategies as st

from rlvr_core.step.batch import Row, shard_rows


def row(prompt, length, *, masked=False):
    mask = (False,) * length if masked else (True,) * length
    return Row((prompt,) * 4, (1,) * length, mask, (0.0,) * length, 1.0)


def test_one_process_gets_the_rows_as_they_are():
    rows = [row(1, 3), row(2, 5, masked=True), row(1, 2)]
    assert shard_rows(rows, 1) == [rows]


def test_rows_of_a_prompt_stay_together_and_loads_are_even():
    rows = [row(prompt, 10) for prompt in (1, 2, 3, 4) for _ in range(3)]
    first, second = shard_rows(rows, 2)
    assert len(first) == len(second) == 6
    assert not {one.prompt_ids for one in first} & {one.prompt_ids for one in second}


def test_one_prompt_is_parted_among_processes():
    assert [len(hand) for hand in shard_rows([row(1, 10)] * 8, 2)] == [4, 4]


def test_more_processes_than_rows_leave_some_without():
    assert [len(hand) for hand in shard_rows([row(1, 5), row(2, 3)], 4)] == [1, 1, 0, 0]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30), st.booleans()), max_size=20),
    st.integers(2, 5),
)
def test_every_row_with_a_loss_token_is_dealt_once(rows, world):
    made = [row(prompt, length, masked=masked) for prompt, length, masked in rows]
    dealt = [id(one) for hand in shard_rows(made, world) for one in hand]
    assert sorted(dealt) == sorted(id(one) for one in made if any(one.loss_mask))
