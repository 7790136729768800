# ruff: noqa: RUF001
"""IFBench: arguments, wordings, trivial passes, hostile responses, the benchmark's own files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_core.api import DataError
from rlvr_core.testing.clock import cpu_limit
from rlvr_ifeval.constraint import Bound
from rlvr_ifeval.ifbench import IFBENCH
from rlvr_ifeval.tagger import TAGGED
from tests.support.tables import table

DATA = Path(os.environ.get("RLVR_DATA", Path(__file__).parents[4] / "shared" / "data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no benchmark data at {DATA}")

ARGS: dict[str, dict[str, Any]] = {
    "count:word_count_range": {"min_words": 3.0, "max_words": 5},
    "count:unique_word_count": {"N": 3},
    "count:conjunctions": {"small_n": 3},
    "count:person_names": {"N": 2},
    "count:numbers": {"N": 2},
    "count:words_japanese": {"N": 3},
    "count:pronouns": {"N": 3},
    "count:keywords_multiple": {f"keyword{n}": f"w{n}" for n in range(1, 6)},
    "ratio:stop_words": {"percentage": 50},
    "ratio:overlap": {"reference_text": "abcdefgh", "percentage": 50},
    "words:repeats": {"small_n": 2},
    "words:keywords_specific_position": {"keyword": "sea", "n": 2, "m": 3},
    "words:words_position": {"keyword": "sea"},
    "sentence:keyword": {"word": "C++", "N": 2},
    "sentence:increment": {"small_n": 2},
    "format:options": {"options": "yes/no/maybe"},
    "format:list": {"sep": "!?!?"},
    "repeat:repeat_change": {"prompt_to_repeat": "Write a poem."},
    "repeat:repeat_span": {"prompt_to_repeat": "Write a poem.", "n_start": 0, "n_end": 1},
}
BOUND = [IFBENCH.parse(id, ARGS.get(id)) for id in IFBENCH.ids]
UNTAGGED = [bound for bound in BOUND if bound.id != TAGGED]  # NLTK's tagger needs data


@pytest.mark.parametrize("bound", BOUND, ids=lambda bound: bound.id)
def test_wording_says_every_argument(bound: Bound) -> None:
    assert bound.wording.endswith((".", "]", "maybe", "cdefgh", "requests."))
    for name, value in bound.args.model_dump().items():
        said = {"n_start": "0", "n_end": "1"}.get(name, str(value))
        assert said in bound.wording, name


@pytest.mark.parametrize("id", IFBENCH.ids)
def test_t55_unexpected_or_missing_arguments_are_errors(id: str) -> None:
    given = ARGS.get(id, {})
    with pytest.raises(DataError, match="unexpected argument 'surprise'"):
        IFBENCH.parse(id, {**given, "surprise": 1})
    for name in given:
        with pytest.raises(DataError, match=name):
            IFBENCH.parse(id, {**given, name: None})


@pytest.mark.parametrize(
    ("id", "args"),
    table(__file__, "arguments nobody can follow"),
)
def test_t55_arguments_nobody_can_follow_are_errors(id: str, args: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=id):
        IFBENCH.parse(id, args)


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        st.text(max_size=300),
        st.text("aA1 .?!*-\"'\n\t()[]{}<i>/“”’。？é한字😀\ufe0f\u200d\x00\r,;:", max_size=300),
    )
)
def test_hostile_text_never_raises(text: str) -> None:
    for bound in UNTAGGED:
        assert bound.follows(text, as_is=True) in (True, False)


HUGE = ["a" * 100_000, "a." * 50_000, "\n" * 99_999 + "a", "<i>" * 33_000, "(" * 100_000]
HUGE += [
    '"' * 100_000,
    "'a'" * 33_000,
    "* a\n- b\n" * 12_000,
    "Question 1\n" * 9_000,
    "Why? " * 20_000,
]
HUGE += ["1," * 50_000, "a, " * 33_000 + ".", "。" * 100_000, "😀" * 50_000, "e\u0301" * 50_000]
HUGE += ["-a" * 50_000]


@pytest.mark.parametrize("at", range(len(HUGE)))
def test_a_huge_response_takes_little_time(at: int) -> None:
    for bound in UNTAGGED:
        with cpu_limit(5, bound.id):
            bound.follows(HUGE[at], as_is=True)


def _rows() -> Iterator[dict[str, Any]]:
    with (DATA / "ifbench" / "IFBench_test.jsonl").open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _parse(row: dict[str, Any]) -> tuple[Bound, ...]:
    return IFBENCH.parse_all(row["instruction_id_list"], row["kwargs"], str(row["key"]))


@needs_data
def test_t54_all_300_rows_parse() -> None:
    rows = list(_rows())
    assert len(rows) == 300
    seen = {bound.id for row in rows for bound in _parse(row)}
    assert seen == set(IFBENCH.ids)
