# ruff: noqa: RUF001
"""10,000 hostile inputs a verifier: none raises, hangs, or scores outside its range."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr_core.api import Completion, DataError, Problem
from rlvr_core.testing.clock import cpu_limit
from rlvr_ifeval import synthetic, verifiers
from rlvr_ifeval.ifeval import IFEVAL

HERE = Path(__file__).parent
ROWS = [json.loads(line) for line in (HERE / "constraints.jsonl").open(encoding="utf-8")]
JUDGED = [json.loads(line) for line in (HERE / "official_verdicts.jsonl").open(encoding="utf-8")]

Asked = tuple[str, dict[str, Any]]
WRITTEN: dict[str, list[Asked]] = {
    name: [(row["id"], row["args"]) for row in ROWS if row["set"] == name]
    for name in ("multi", "rlvr")
}
ASKED: dict[str, list[Asked]] = {
    "ifeval": [(id, args) for id, args in WRITTEN["multi"] if id in IFEVAL],
    **WRITTEN,
    "ifbench": [(row["id"], row["args"]) for row in JUDGED if row["set"] == "ifbench"],
    "synthetic": [("exact_words", {"n": 2}), ("lowercase", {}), ("end", {"mark": "!"})],
}
VERIFIERS: dict[str, type[verifiers.Constraints]] = {
    "ifeval": verifiers.Ifeval,
    "multi": verifiers.Multi,
    "rlvr": verifiers.Rlvr,
    "ifbench": verifiers.Ifbench,
    "synthetic": synthetic.Verifier,
}

_MARKS = """*** ****** ** * - -- [ ] [[ ]] << >> <<< >>> <b> </i> P.S. P.P.S SECTION Section1
```json ``` { } {"a": "b"} [1,2] NaN 1e999 " ' “ ” « ( ) ((( # ## | \\ $ & <think> </think> <answer>
My answer is yes. e.g. U.S. Dr. A. ... … ? ! , ; : 0 ١ Ⅷ ½ İ ß ẞ ΟΔΟΣ ﬁ 漢字 カナ हिन्दी ไทย عربي
👨‍👩‍👧 🏳️‍🌈 e\u0301 \u200b \ufeff \u202e \x00 \ud7ff \U0010ffff https:// a@b.c"""
_SPACES = ("", " ", " ", "\n", "\n", "\n\n", "\t", "\r\n", "\x0b", "\u2028", "\u3000", "\x1c")
_LETTERS = "aAeEzZ09éÉßñøΣςσЖжאبनि가あ漢字ｱǅŉ\u0301\u0e35\u200d\ufe0f"
PIECES = (*_MARKS.split(), *_SPACES, *_LETTERS, "the ", "The ", "*" * 60, "[" * 60, ". " * 60)
# A byte a piece: quick to draw and to shrink.
TEXT = st.binary(max_size=60).map(
    lambda drawn: "".join(PIECES[byte % len(PIECES)] for byte in drawn)
) | st.text(max_size=40)
THOROUGH = settings(
    max_examples=10_000,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _spec(name: str, asked: list[Asked]) -> dict[str, Any]:
    ids, kwargs = [id for id, _ in asked], [args for _, args in asked]
    if name == "rlvr":
        return {"ground_truth": {"func_name": ids[0], **kwargs[0]}}
    if name == "multi":
        return {"ground_truth": [{"instruction_id": ids, "kwargs": kwargs}]}
    return {"instruction_id_list": ids, "kwargs": kwargs}


@pytest.mark.slow
@pytest.mark.parametrize("name", VERIFIERS)
def test_10_000_hostile_responses(name: str) -> None:
    verifier = VERIFIERS[name]

    @THOROUGH
    @given(TEXT, st.sampled_from(ASKED[name]), st.sampled_from(ASKED[name]), st.integers(0, 15))
    def judge(text: str, one: Asked, other: Asked, bits: int) -> None:
        asked = [one] if name == "rlvr" else [one, other]
        options: dict[str, Any] = {
            "loose": bool(bits & 1),
            "answer_only": bool(bits & 4),
            "scoring": "mean" if bits & 8 else "all",
        }
        if name in ("multi", "rlvr"):
            options["min_content"] = bool(bits & 2)
        problem = Problem("p", "q", "v", _spec(name, asked), "d")
        with cpu_limit(2, name):
            verdict = verifier(verifier.Config(**options)).verify(
                problem, Completion.from_text(text)
            )
        assert verdict.status == "ok", verdict.detail
        assert verdict.score is not None
        assert 0 <= verdict.score <= 1
        assert verdict.passed == (verdict.score == 1)
        assert set(verdict.parts.values()) <= {0.0, 1.0}
        assert len(verdict.parts) == len(asked)

    judge()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 10**12)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([one.id for one in IFEVAL])
    | st.sampled_from(["[", "{}", "[{}]", "'a'", "9" * 5000, "__import__('os')"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["instruction_id", "kwargs", "func_name", "N", "relation"])
            | st.text(max_size=5),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
FIELDS = st.dictionaries(
    st.sampled_from(["instruction_id_list", "kwargs", "ground_truth"]), JSON, max_size=3
)


def _complaint(verifier: verifiers.Constraints, problem: Problem) -> str:
    try:
        verifier.check(problem)
    except DataError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", VERIFIERS)
def test_hostile_rows_are_refused_by_name_or_judged(name: str) -> None:
    verifier = VERIFIERS[name](VERIFIERS[name].Config())

    @settings(THOROUGH, max_examples=300)
    @given(FIELDS)
    def judge(spec: dict[str, Any]) -> None:
        problem = Problem("row_7", "q", "v", spec, "d")
        verdict = verifier.verify(problem, Completion.from_text("Two words"))
        complaint = _complaint(verifier, problem)
        assert verdict.status == ("unscorable" if complaint else "ok")
        assert (verdict.score is None) == bool(complaint)
        assert not complaint or "row_7" in complaint

    judge()
