"""Stop strings: across tokens, inside multi-byte characters, cheaply."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.convert_slow_tokenizer import bytes_to_unicode

from rlvr_core.api import SamplingParams
from rlvr_core.engines.decode import RowPlan, decode
from rlvr_core.engines.sampling import StopStrings
from tests.support.embedded import generate, make_model, make_tokenizer, request, start

TOKENIZER = make_tokenizer()
CPU = torch.device("cpu")


class Recital:
    """A decoder that can only say one given text."""

    device = CPU
    vocabulary = len(TOKENIZER)

    def __init__(self, token_ids):
        self._ids = list(token_ids)
        self._t = 0

    def _logits(self):
        logits = torch.full((1, self.vocabulary), -torch.inf)
        logits[0, self._ids[min(self._t, len(self._ids) - 1)]] = 0.0
        self._t += 1
        return logits

    def prefill(self, prompts, counts):
        return self._logits()

    def step(self, token_B):
        return self._logits()

    def select(self, rows_K):
        raise AssertionError("one row is never compacted")


def recite(token_ids, stop):
    params = SamplingParams(stop=stop, max_tokens=len(token_ids))
    (result,) = decode(
        Recital(token_ids),
        [(1,)],
        [[RowPlan(params, 0, len(token_ids))]],
        eos_ids=(),
        stop_strings=StopStrings(TOKENIZER),
    )
    return result


def first_end(token_ids, stop):
    """The obvious way: decode everything after every token."""
    for n in range(1, len(token_ids) + 1):
        text = TOKENIZER.decode(token_ids[:n], skip_special_tokens=True)
        if any(s in text for s in stop):
            return n
    return None


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        ("The answer is 85.\n\nQuestion: more", ("\n\n",)),
        ("The answer is 85.\n\nQuestion: more", ("Question:",)),
        ("naïve café 日本 and more", ("日本",)),
        ("naïve café 日本 and more", ("本",)),
        ("price ½ and more", ("½",)),
        ("no such thing", ("xyz",)),
        ("abababac tail", ("abac",)),
        ("What is 37+48?", ("9", "8?", "+4")),
        ("stop here", ("s",)),
        ("end of it", (" it",)),
    ],
)
@pytest.mark.parametrize("bytewise", [False, True])
def test_stops_end_where_decoding_everything_would_end_them(text, stop, bytewise):
    # one token a byte: every string and character is split
    ids = _byte_tokens(text) if bytewise else TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == text
    result = recite(ids, stop)
    expected = first_end(ids, stop)
    assert len(result.token_ids) == (expected or len(ids))
    assert result.finish_reason == ("length" if expected is None else "stop")


def _byte_tokens(text):
    letters = bytes_to_unicode()
    return [TOKENIZER.convert_tokens_to_ids(letters[byte]) for byte in text.encode()]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, len(TOKENIZER) - 1), min_size=1, max_size=40),
    st.lists(st.text(st.sampled_from("ab .s\n8é日T"), min_size=1, max_size=3), max_size=3),
)
def test_any_tokens_any_stops(ids, stops):
    stop = tuple(stops)
    result = recite(ids, stop)
    expected = first_end(ids, stop) if stop else None
    assert len(result.token_ids) == (expected or len(ids))


def test_long_texts_are_searched_through_a_window():
    ids = TOKENIZER.encode("What is 37+48? " * 60 + "STOP now, and more")
    stop_strings = StopStrings(TOKENIZER)
    decoded = []
    original = stop_strings.text
    stop_strings.text = lambda tokens: decoded.append(len(tokens)) or original(tokens)
    params = SamplingParams(stop=("P no",), max_tokens=len(ids))
    (result,) = decode(
        Recital(ids), [(1,)], [[RowPlan(params, 0, len(ids))]], eos_ids=(),
        stop_strings=stop_strings,
    )  # fmt: skip
    assert result.finish_reason == "stop"
    assert TOKENIZER.decode(result.token_ids).endswith("STOP now")
    assert sorted(decoded)[-2] < 40  # all but the last look were short
    assert len(decoded) < len(ids) / 4


def test_t63_text_and_tokens_agree_and_hold_the_stop_string():
    model = make_model(TOKENIZER)
    engine = start(model, TOKENIZER)
    (group,) = generate(engine, request((1, 2, 3), n=60, max_tokens=30, stop=("a", "1", " t")))
    ended = [answer for answer in group if answer.finish_reason == "stop"]
    assert len(ended) > 10
    for answer in group:
        assert answer.text == TOKENIZER.decode(answer.token_ids, skip_special_tokens=True)
        assert len(answer.logprobs) == len(answer.token_ids)
    for answer in ended:
        if answer.token_ids[-1] != TOKENIZER.eos_token_id:
            assert any(stop in answer.text for stop in ("a", "1", " t"))
            before = TOKENIZER.decode(answer.token_ids[:-1], skip_special_tokens=True)
            assert not any(stop in before for stop in ("a", "1", " t"))


def test_a_stop_string_that_is_a_special_token_ends_the_row():
    model = make_model(TOKENIZER)
    engine = start(model, TOKENIZER)
    (group,) = generate(engine, request((1, 2), n=80, max_tokens=30, stop=("<pad>",)))
    ends = {answer.token_ids[-1] for answer in group if answer.finish_reason == "stop"}
    assert TOKENIZER.pad_token_id in ends
    assert all(TOKENIZER.pad_token_id not in answer.token_ids[:-1] for answer in group)


def test_problems_have_their_own_stop_strings():
    model = make_model(TOKENIZER)
    engine = start(model, TOKENIZER)
    a = request((1, 2), n=30, max_tokens=25, stop=("e",))
    b = request((1, 2), n=30, max_tokens=25)
    alone = generate(engine, a)
    together = generate(engine, b, a)
    assert [x.token_ids for x in together[1]] == [x.token_ids for x in alone[0]]
    assert any("e" in x.text[:-2] for x in together[0])
