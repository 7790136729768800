"""Tokens as text, and what is said of each; numbers are worked out by hand."""

import pytest
from tokenizers import Tokenizer, decoders, models

from rlvr_view.viewer.compare import differ
from rlvr_view.viewer.tokens import grade, pieces, strength, tokens


def byte_level(*texts):
    """A tokenizer whose tokens are the given texts, as GPT-2 writes bytes."""
    made = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(texts)}, merges=[]))
    made.decoder = decoders.ByteLevel()
    return made


def test_pieces_make_up_the_text_and_bytes_wait_for_their_character():
    # é is the bytes C3 A9, which GPT-2 writes Ã and ©
    tokenizer = byte_level("Ġa", "Ã", "©", "b")
    assert pieces(tokenizer, [0, 1, 2, 3, 1]) == [" a", "", "é", "b", "\ufffd"]


def test_a_leading_space_is_kept_where_decoders_drop_it():
    made = Tokenizer(models.BPE(vocab={"▁a": 0, "▁b": 1, "c": 2}, merges=[]))
    made.decoder = decoders.Metaspace()
    assert pieces(made, [0, 1, 2]) == ["a", " b", "c"]


def test_a_token_says_what_was_recorded_of_it():
    row = {
        "token_ids": [0, 3, 0],
        "logprobs": [0.0, -0.693147, -6.0],
        "loss_mask": [1, 1, 0],
        "token_versions": [4, 5, 5],
    }
    told = tokens(row, byte_level("Ġa", "x", "y", "b"), 10)
    assert [one.text for one in told] == [" a", "b", " a"]
    assert [one.css for one in told] == ["s0 v1", "s2 v0", "s6 out v0"]
    assert told[1].description == (
        "token 2; id 3; log-prob -0.693, probability 50.0%; in the loss; sampled by version 5"
    )
    assert "not in the loss" in told[2].description
    # of |gaps| 0.003, 0.01, 0.03, 0.1, 0.3 and 1 begin the grades
    gaps = tokens({**row, "gaps": [0.002, -0.25, float("nan")]}, None, 10)
    assert [gap.css for gap in gaps] == ["s0 g0 v1", "s2 g4 v0", "s6 out v0"]
    assert "; trainer - engine -0.25 nats; in the loss" in gaps[1].description
    assert len(tokens(row, None, 2)) == 2
    assert [token.text for token in tokens(row, None, 2)] == ["[0]", "[3]"]


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"token_ids": "text"},
        {"token_ids": [1], "gaps": "wide"},
        {"token_ids": [2**40], "logprobs": [None]},
        {"token_ids": [-1, "x"], "logprobs": ["y"], "loss_mask": {}},
    ],
)
def test_odd_records_are_shown_as_far_as_they_go(row):
    told = tokens(row, byte_level("a"), 10)
    assert len(told) == (len(row["token_ids"]) if isinstance(row.get("token_ids"), list) else 0)


def test_grades_and_strengths():
    # at the bounds, in nats and in units of the advantage
    assert [grade(x) for x in (0.0, 0.05, 0.25, 0.7, 1.6, 3.0, 5.0)] == [0, 1, 2, 3, 4, 5, 6]
    told = [strength(x) for x in (None, 0.0, 0.1, -0.25, 0.75, -1.5)]
    assert told == ["a0", "a0", "up1", "down2", "up3", "down4"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "a "), ("a ", ""), ("a b a b", "a b a b"), ("a " * 900, "a " * 950),
        ("a " * 900 + "b " + "a " * 400, "a " * 800 + "c " + "a " * 500), ("ab" * 300, "ba" * 300),
    ],
)  # fmt: skip
def test_differences_lose_nothing_of_either_text(before, after):
    told = list(differ(before.split(" "), after.split(" ")))
    assert "".join(text for kind, text in told if kind != "added") == before.replace(" ", "")
    assert "".join(text for kind, text in told if kind != "removed") == after.replace(" ", "")


def test_differences_are_told_in_order():
    before, after = ["a", " ", "b", " ", "c"], ["a", " ", "x", " ", "c", "!"]
    found = list(differ(before, after))
    assert found == [
        ("same", "a "), ("removed", "b"), ("added", "x"), ("same", " c"), ("added", "!"),
    ]  # fmt: skip
