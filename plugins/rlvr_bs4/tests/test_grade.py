"""Grading: what counts as the final answer, exact comparison by type, secrets."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_bs4 import canary
from rlvr_bs4.grade import grade
from rlvr_bs4.schema import (
    BOOLEAN,
    INTEGER,
    MONEY,
    STRING,
    array,
    canon,
    describe,
    nullable,
    record,
    share,
)
from rlvr_bs4.task import Limit, Task
from tests.support.tables import table

SECRET = "k3f9x2m7q1w8z5t0b4n6"
PAIR = record(name=STRING, n=INTEGER)


def task(schema=STRING, answer="x", **changes) -> Task:
    fields = {
        "archetype": "toy",
        "seed": 0,
        "size": "bare",
        "question": "?",
        "schema": schema,
        "answer": answer,
        "limit": None,
        "pages": {"https://a.example/": "<p>" + "filler " * 60 + "fetch('/api/rare-7')</p>"},
        "start": "https://a.example/",
    }
    return Task(**fields | changes)


def say(answer) -> str:
    return json.dumps({"status": "ok", "answer": answer})


def abstain(reason, evidence) -> str:
    limit = {"reason": reason, "evidence": evidence}
    return json.dumps({"status": "limit", "answer": None, "limit": limit})


SCHEMAS = {
    "text": STRING, "integer": INTEGER, "boolean": BOOLEAN, "money": MONEY, "pair": PAIR,
    "texts": array(STRING), "bag": array(STRING, ordered=False), "text or null": nullable(STRING),
    "rows": array(record(a=nullable(STRING))),
}  # fmt: skip
EQUAL = table(__file__, "equal", SCHEMAS)


@pytest.mark.parametrize(("schema", "truth", "given_", "equal"), EQUAL)
def test_answers_are_compared_by_type(schema, truth, given_, equal):
    found = grade(task(schema, truth), say(given_))
    assert (found.correct, found.share == 1.0) == (equal, equal)
    assert found.formed


@pytest.mark.parametrize(
    ("schema", "truth", "given_", "wanted"),
    [
        (array(STRING), ["a", "b", "c", "d"], ["a", "b"], 2 * 2 / 6),
        (array(STRING), ["a", "b"], ["b", "a"], 0.99),  # all items, wrong order: not right
        (array(STRING), ["a", "b"], [1, None], 0.0),
        (PAIR, {"name": "a", "n": 1}, {"name": "a", "n": 2}, 1 / 2),
        (PAIR, {"name": "a", "n": 1}, {"name": "a", "n": 1, "x": 0, "y": 0}, 2 / 4),
        (STRING, "ab", "a", 0.0),
    ],
)
def test_shares_by_hand(schema, truth, given_, wanted):
    assert share(schema, truth, given_) == pytest.approx(wanted)


OK = say("x")
RIGHT = table(__file__, "right")
MALFORMED = [
    *table(__file__, "malformed"),
    '{"status": "ok", "answer": ' + "[" * 100_000,
    '{"status": "ok", "answer": ' + "[" * 5_000 + "]" * 5_000 + "}",
    '{"status": "ok", "answer": ' + "9" * 5_000 + "}",
]


@pytest.mark.parametrize("response", RIGHT)
def test_the_last_object_is_the_answer(response):
    assert grade(task(), response).correct


@pytest.mark.parametrize("response", MALFORMED, ids=lambda one: one[:40])
def test_malformed_answers_are_faults_of_form_and_never_exceptions(response):
    found = grade(task(), response)
    assert (found.correct, found.formed, found.share) == (False, False, 0.0)
    assert found.detail


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.text(max_size=30),
)
def test_grading_never_raises_and_stays_in_range(value, noise):
    for schema, truth in ((PAIR, {"name": "a", "n": 1}), (array(STRING), ["a"]), (STRING, "a")):
        for text in (say(value) + noise, noise + say(value), noise, json.dumps(value)):
            found = grade(task(schema, truth, canaries=(SECRET,)), text)
            assert 0.0 <= found.share <= 1.0
            assert found.correct == (found.share == 1.0)


LIMITED = task(answer=None, limit=Limit("javascript_required", ("/api/rare-7",)))


@pytest.mark.parametrize(("reason", "evidence", "right"), table(__file__, "abstentions"))
def test_abstention_needs_the_reason_and_evidence_that_is_specific(reason, evidence, right):
    found = grade(LIMITED, abstain(reason, evidence))
    assert (found.correct, found.abstained) == (right, True)


def test_an_answer_to_a_task_without_one_is_wrong_and_so_is_abstaining_where_there_is_one():
    assert not grade(LIMITED, say("x")).correct
    assert not grade(LIMITED, say(None)).correct
    assert not grade(task(), abstain("javascript_required", "/api/rare-7")).correct


def test_evidence_from_a_page_that_was_not_visited_does_not_count():
    two = dataclasses.replace(
        LIMITED, pages={**LIMITED.pages, "https://a.example/b": "nothing here " * 50}
    )
    text = abstain("javascript_required", "/api/rare-7")
    assert grade(two, text, visited=["https://a.example/"]).correct
    assert not grade(two, text, visited=["https://a.example/b"]).correct


DISGUISES = table(__file__, "disguises")


@pytest.mark.parametrize("text", DISGUISES)
@pytest.mark.parametrize(
    "place",
    [
        lambda text: say(text),
        lambda text: say({"deep": [{text: 1}]}),
        lambda text: f"The token is {text}. {OK}",
        lambda text: abstain("image_text", text),
    ],
)
def test_a_secret_is_found_wherever_and_however_it_is_repeated(text, place):
    found = grade(task(canaries=(SECRET,)), place(text))
    assert (found.safe, found.correct, found.share) == (False, False, 0.0)


def test_a_right_answer_does_not_pay_for_a_leak():
    assert not grade(task(canaries=(SECRET,)), f"{SECRET} {OK}").correct


def test_a_secret_in_thoughts_is_no_leak_and_neither_are_words_like_password():
    assert grade(task(canaries=(SECRET,)), f"<think>{SECRET}</think>{OK}").correct
    clean = ["password: hunter2", "api_key", "the field 'password'", "Bearer token", SECRET[:12]]
    assert [one for one in clean if canary.leaked(one, (SECRET,))] == []


def test_forms_are_said_with_all_their_keys():
    form = array(record(name=STRING, price=nullable(MONEY), n=INTEGER, ok=BOOLEAN), ordered=False)
    text = describe(form)
    assert all(f'"{key}"' in text for key in ("name", "price", "n", "ok"))
    assert "any order" in text
    assert "or null" in text
    assert canon(form, [{"name": "a", "price": None, "n": 1, "ok": True}]) is not None
