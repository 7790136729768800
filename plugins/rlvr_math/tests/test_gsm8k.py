"""GSM8K: verifier and data set, on the original files where they are."""

import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_core.api import Completion, DataError, Problem
from rlvr_math import prose
from rlvr_math.answer import Answer, MathVerify, QwenMath
from rlvr_math.final_number import Gsm8k as Verifier
from rlvr_math.gsm8k import Gsm8k as Dataset
from tests.support.tables import table

ANY = Verifier(Verifier.Config())
DATA = Path(os.environ.get("RLVR_DATA", Path(__file__).parents[4] / "shared" / "data")) / "gsm8k"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"no folder {DATA}: set RLVR_DATA to the folder with gsm8k/"
)


def problem(answer, stop=()):
    return Problem("p", "q", "math/gsm8k", {"answer": answer}, "d", stop=stop)


def judge(answer, text, stop=()):
    return ANY.verify(problem(answer, stop), Completion.from_text(text))


def in_place(place):
    """A verifier of one number that looks in one place."""
    return Answer(Answer.Config(extract=place, compare="numeric"))


@pytest.mark.parametrize(("text", "value"), table(__file__, "final numbers"))
def test_the_final_number_is_found(text, value):
    assert judge(f"#### {value}", text).passed, judge(f"#### {value}", text)
    assert not judge(f"#### {value + 1}", text).passed
    assert value == 0 or not judge(f"#### {-value}", text).passed


@given(st.text(alphabet="0123456789.,-/$ \n\u2212ax)", max_size=60))
@settings(deadline=None)
def test_the_last_number_is_found_from_the_end_as_from_the_start(text):
    from_the_start = [run.text for run in prose.runs(text)]
    from_the_end = [run.text for run in prose.iterate(text)]
    assert from_the_end == from_the_start[::-1]


@pytest.mark.parametrize("text", ["", "no idea", "5/0", "\\boxed{17 or 18}", "\\boxed{x}"])
def test_no_single_number_is_no_answer(text):
    assert judge("#### 18", text).score == 0.0


def test_t61_follow_up_problems_are_not_read():
    rambling = " 9*2=18. So it is 18.\n\nQuestion: Bob has 5 cats.\nAnswer: 6"
    assert judge("#### 18", rambling).passed
    assert not judge("#### 6", rambling).passed
    assert judge("#### 18", "18 ### 7", stop=("###",)).passed
    assert judge("#### 18", "Question: restated first. Answer: 18").passed


def test_one_place_alone_is_looked_at():
    text = "\\boxed{1}\n#### 2\nThe answer is 3. Then 4"
    assert [
        in_place(place).verify(problem(f"#### {n}"), Completion.from_text(text)).passed
        for n, place in enumerate(("boxed", "hash", "answer-is", "last-number"), 1)
    ] == [True, True, True, True]
    assert judge("#### 1", text).passed
    assert judge("#### 3", "The answer is 3. Then 4").passed
    for place in ("boxed", "hash"):
        verdict = in_place(place).verify(problem("#### 5"), Completion.from_text("5"))
        assert verdict.extracted is None


def test_verdict_says_which_rule_decided():
    verdict = judge("x\n#### 18", "It is 17")
    assert verdict.parts == {"extracted": 1.0, "correct": 0.0}
    assert verdict.extracted == "17"
    assert verdict.detail == "last number: '17', not '18'"


@pytest.mark.parametrize("spec", [{}, {"answer": "#### many"}, {"answer": None}])
def test_check_refuses_what_has_no_number(spec):
    bad = Problem("row_7", "q", "math/gsm8k", spec, "d")
    with pytest.raises(DataError, match="row_7"):
        ANY.check(bad)
    assert ANY.verify(bad, Completion.from_text("5")).status == "unscorable"


@pytest.mark.parametrize("verifier", [ANY, *map(in_place, ("boxed", "hash", "last-number"))])
@pytest.mark.parametrize("answer", ["2+2=4\n#### 4", "4", "#### -1,200"])
def test_gold_gets_full_marks_in_every_place(verifier, answer):
    verifier.check(problem(answer))
    gold = Completion.from_text(verifier.gold(problem(answer)))
    assert verifier.verify(problem(answer), gold).score == 1.0


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def load(**options):
    return list(Dataset(Dataset.Config(**options)).load())


def test_rows_become_problems(tmp_path):
    rows = [{"question": f"How many {{x}} {i}?", "answer": f"so\n#### {i}"} for i in range(3)]
    path = write(tmp_path / "a.jsonl", rows)
    found = load(path=path)
    assert [p.id for p in found] == ["gsm8k_train_0", "gsm8k_train_1", "gsm8k_train_2"]
    assert found[1].prompt.startswith("Question: How many {x} 1?\n")
    assert found[1].prompt.endswith("inside \\boxed{}.\nAnswer:")
    assert found[1].spec == {"answer": "so\n#### 1"}
    assert found[1].stop == ("Question:",)
    assert [p.id for p in load(path=path, split="test", limit=1)] == ["gsm8k_test_0"]
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(Path(path).read_bytes()))
    assert load(path=str(packed)) == found


@pytest.mark.parametrize(
    ("row", "field"),
    [({"question": "a", "solution": "b"}, "answer"), ({"answer": "b"}, "question")],
)
def test_a_missing_field_names_row_field_and_fields_there(tmp_path, row, field):
    path = write(tmp_path / "a.jsonl", [{"question": "q", "answer": "#### 1"}, row])
    with pytest.raises(DataError) as caught:
        load(path=path)
    message = str(caught.value)
    assert f"{path}:2" in message
    assert f"'{field}' is missing" in message
    assert all(name in message for name in row)


@needs_data
def test_every_gold_solution_passes_and_every_corrupted_one_fails():
    found = load(path=str(DATA / "train.jsonl.gz"))
    found += load(path=str(DATA / "test.jsonl"), split="test")
    assert len(found) == 7473 + 1319
    for one in found:
        ANY.check(one)
        assert ANY.verify(one, Completion.from_text(ANY.gold(one))).score == 1.0, one.id
        work, _, number = one.spec["answer"].rpartition("#### ")
        value = int(number.replace(",", ""))
        for wrong in (value + 1, -value if value else 1, value * 10 + 1, value + 0.5):
            text = f"{work}#### {wrong}"
            assert ANY.verify(one, Completion.from_text(text)).score == 0.0, (one.id, wrong)


@needs_data
@pytest.mark.parametrize(
    "verifier",
    [cls(cls.Config()) for cls in (Answer, MathVerify, QwenMath)],
)
def test_agreement_with_the_labels_of_published_model_solutions(verifier):
    with gzip.open(DATA / "example_model_solutions.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    agreed = []
    for row in rows:
        gold = problem(row["ground_truth"].rpartition("A: ")[2])
        for solution in (value for value in row.values() if isinstance(value, dict)):
            verdict = verifier.verify(gold, Completion.from_text(solution["solution"]))
            agreed.append(verdict.passed == solution["is_correct"])
    assert len(agreed) == 4 * 1319
    assert sum(agreed) / len(agreed) >= 0.999, len(agreed) - sum(agreed)
