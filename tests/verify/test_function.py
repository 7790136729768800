"""Plain functions as verifiers: the three forms, and what goes wrong in them."""

from __future__ import annotations

import math

import pytest

from rlvr_core.api import Completion, ConfigError, DataError, Message, NoConfig, Problem, Verdict
from rlvr_core.plugins.host import load_host
from rlvr_core.plugins.verifier_functions import verifier_of
from rlvr_core.verify.pool import VerifierPool, VerifierSpec


def problem(prompt="2+2=", **spec):
    return Problem("p1", prompt, "none", spec, "toy", where="rows.jsonl:4")


def made(function):
    return verifier_of(function)(NoConfig())


def answers(*texts):
    return [Completion.from_text(text) for text in texts]


def test_text_and_answer():
    def same(text, answer):
        return text == answer

    verifier = made(same)
    assert verifier.verify(problem(answer="4"), answers("4")[0]) == Verdict(1.0, passed=True)
    assert verifier.verify(problem(answer="4"), answers("5")[0]) == Verdict(0.0, passed=False)
    assert not hasattr(verifier, "verify_group")


def test_problem_and_completion():
    def share(problem, completion):
        return len(completion.text) / problem.spec["longest"]

    assert made(share).verify(problem(longest=4), answers("abc")[0]) == Verdict(0.75)

    def whole(problem, completion):
        return Verdict(0.5, passed=True, parts={"a": 0.25})

    assert made(whole).verify(problem(), answers("")[0]).parts == {"a": 0.25}


def test_prompts_and_completions_are_lists_over_the_group_with_columns():
    seen = {}

    def reward(prompts, completions, answer, **columns):
        seen.update(prompts=prompts, completions=completions, answer=answer, columns=columns)
        return [float(c == a) for c, a in zip(completions, answer, strict=True)]

    got = made(reward).verify_group(problem(answer="4", level=3), answers("4", "5", "4"))
    assert [one.score for one in got] == [1.0, 0.0, 1.0]
    assert seen["prompts"] == ["2+2="] * 3
    assert seen["answer"] == ["4"] * 3
    assert seen["columns"] == {"level": [3] * 3, "completion_ids": [[], [], []]}


def test_chats_come_as_trl_gives_them():
    def reward(completions, prompts):
        assert prompts == [[{"role": "user", "content": "hi"}]]
        return [len(completions[0][0]["content"])]

    verifier = made(reward)
    got = verifier.verify_group(problem((Message("user", "hi"),)), answers("hello"))[0]
    assert got.score == 5


def test_none_in_a_group_is_no_score():
    def reward(completions):
        return [None, 1.0]

    got = made(reward).verify_group(problem(), answers("a", "b"))
    assert [(one.status, one.score) for one in got] == [("unscorable", None), ("ok", 1.0)]


def test_a_field_that_a_problem_lacks_is_told_when_the_data_is_loaded():
    def same(text, answer, level=0):
        return 1.0

    with pytest.raises(DataError) as caught:
        made(same).check(problem(solution="4"))
    said = str(caught.value)
    assert "the reward function same takes 'answer'" in said
    assert "rows.jsonl:4" in said
    assert "its fields are: solution" in said
    made(same).check(problem(answer="4"))  # level has a default


def _both(text, completions): ...
def _neither(x): ...
def _starred(text, *more): ...
def _more(problem, completion, answer): ...
async def _later(text): ...
def _generator(text):
    yield 1.0


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (_both, "fits several forms"),
        (_neither, "has the parameters of no form"),
        (_starred, "cannot be given by name: more"),
        (_more, "cannot be given by name: answer"),
        (_later, "is a coroutine or a generator"),
        (_generator, "is a coroutine or a generator"),
    ],
)
def test_a_function_of_no_form_is_told_with_the_forms(function, says):
    with pytest.raises(ConfigError) as caught:
        verifier_of(function)
    assert says in str(caught.value)
    assert f"test_function.py:{function.__code__.co_firstlineno}" in str(caught.value)


BAD = """
ODD = {"nan": float("nan"), "none": None, "str": "1.0", "list": [1.0]}

def quiet(text):
    return ODD.get(text, 1.0)

def together(completions):
    return [quiet(one) for one in completions]
"""

EXPECTED = {
    "fine": ("ok", ""),
    "nan": ("error", "score is nan"),
    "none": ("error", "returned NoneType, not a number"),
    "str": ("error", "returned str, not a number"),
    "list": ("error", "score is list, not a number"),
}


@pytest.mark.parametrize("name", ["quiet", "together"])
def test_a_bad_function_is_a_status_and_never_zero(name, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text(BAD)
    target = load_host({"RLVR_PLUGINS": ""}).entry("verifier", f"./bad.py:{name}").target
    expected = dict(EXPECTED)
    if name == "together":
        expected["none"] = ("unscorable", "gave None")  # TRL's way to leave one out
    spec = VerifierSpec(target, {})
    with VerifierPool({"v": spec}, workers=1, timeout=1.0, memory_mb=500) as pool:
        rows = pool.submit_group(problem(), answers(*expected), ["v"]).result(120)
    got = [row["v"] for row in rows]
    assert [one.status for one in got] == [status for status, _ in expected.values()]
    for verdict, (status, detail) in zip(got, expected.values(), strict=True):
        assert detail in verdict.detail
        assert verdict.score == (1.0 if status == "ok" else None)
        assert verdict.score is None or math.isfinite(verdict.score)
