"""GPQA, MMLU-Pro and SuperGPQA from files in their published columns."""

import csv
import json
import logging
from dataclasses import replace

import pyarrow
import pyarrow.parquet
import pytest

from rlvr_checks.choice.datasets import Gpqa, MmluPro, SuperGpqa
from rlvr_checks.choice.verifier import ChoiceVerifier
from rlvr_core.api import Completion, DataError
from tests.support.tables import table

GPQA, MMLU, SUPER = table(__file__, "rows")


def write(folder, *rows):
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def load(cls, path, **options):
    return list(cls(cls.Config(path=str(path), **options)).load())


def texts(problem):
    return problem.spec["options"]["ABCDEFGHIJ".index(problem.spec["answer"])]


@pytest.mark.parametrize(
    ("cls", "row", "right"),
    [(Gpqa, GPQA, "mitochondria"), (MmluPro, MMLU, "4"), (SuperGpqa, SUPER, "5")],
)
def test_a_row_becomes_a_problem_whose_gold_passes(cls, row, right, tmp_path):
    (problem,) = load(cls, write(tmp_path, row))
    assert texts(problem) == right
    assert problem.verifier == "checks/choice"
    for letter, option in zip("ABCDEFGHIJ", problem.spec["options"], strict=False):
        assert f"({letter}) {option}\n" in problem.prompt
    verifier = ChoiceVerifier(ChoiceVerifier.Config())
    verifier.check(problem)
    assert verifier.verify(problem, Completion.from_text(verifier.gold(problem))).passed
    for letter in "ABCDEFGHIJ":
        verdict = verifier.verify(problem, Completion.from_text(f"The answer is ({letter})."))
        assert verdict.passed is (letter == problem.spec["answer"])


def test_gpqa_is_read_from_its_csv(tmp_path):
    path = tmp_path / "gpqa_diamond.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(GPQA))
        writer.writeheader()
        writer.writerow(GPQA)
    (problem,) = load(Gpqa, path)
    assert problem.id.startswith("gpqa_diamond_")
    assert problem.tags == {"subject": "Biology"}


def test_order_is_decided_by_id_and_seed_and_recorded(tmp_path):
    rows = [MMLU | {"question": f"2 + 2? ({n})"} for n in range(60)]
    path = write(tmp_path, *rows)
    problems = load(MmluPro, path)
    assert [p.spec for p in problems] == [p.spec for p in load(MmluPro, path)]
    backwards = load(MmluPro, write(tmp_path, *rows[::-1]))[::-1]
    assert problems == backwards
    for problem in problems:
        assert [MMLU["options"][i] for i in problem.spec["order"]] == problem.spec["options"]
        assert texts(problem) == "4"
    # 60 draws of ten letters: no letter holds the right answer as often as once in three
    letters = [problem.spec["answer"] for problem in problems]
    assert max(letters.count(letter) for letter in letters) < 20
    other = load(MmluPro, write(tmp_path, *rows), seed=1)
    assert [p.id for p in other] == [p.id for p in problems]
    assert [p.spec["answer"] for p in other] != letters
    plain = load(MmluPro, write(tmp_path, *rows), shuffle=False)
    assert {p.spec["answer"] for p in plain} == {"D"}
    assert [p.id for p in plain] == [p.id for p in problems]


@pytest.mark.parametrize(
    "option", ["All of the above", "None of the above", "Both A and B", "A and C only", "Options B"]
)
def test_options_that_speak_of_others_keep_their_order(option, tmp_path):
    rows = [SUPER | {"question": f"? {n}", "options": ["4", "5", option]} for n in range(20)]
    for problem in load(SuperGpqa, write(tmp_path, *rows)):
        assert problem.spec["order"] == [0, 1, 2]


def test_gpqa_is_always_shuffled(tmp_path):
    """Its rows have the right answer first: an order that is kept would tell it."""
    rows = [
        GPQA | {"Question": f"? {n}", "Incorrect Answer 3": "the following, and A and B only"}
        for n in range(60)
    ]
    letters = [problem.spec["answer"] for problem in load(Gpqa, write(tmp_path, *rows))]
    assert max(letters.count(letter) for letter in "ABCD") < 30
    with pytest.raises(ValueError, match="shuffle"):
        Gpqa.Config(path="x", shuffle=False)


def test_a_question_with_one_option_is_left_out_with_a_warning(tmp_path, caplog):
    one = MMLU | {"options": ["1"], "answer": "A", "answer_index": 0}
    path = write(tmp_path, MMLU, one, one, MMLU | {"question": "3 + 1?"})
    with caplog.at_level(logging.WARNING):
        assert len(load(MmluPro, path)) == 2
    (said,) = [record.getMessage() for record in caplog.records]
    assert "left out 2 rows with a single option" in said
    assert "rows.jsonl:2" in said


@pytest.mark.parametrize("kind", ["json", "parquet", "csv", "numpy"])
def test_every_kind_of_file_gives_the_same_problems(kind, tmp_path):
    """A list in a cell of a CSV file stands there as JSON, as Python or as NumPy prints it."""
    options = ["it's 1", 'a "2", or so', "3,\n4", "\\frac{1}{2}", " five ", "[6]"]
    rows = [
        MMLU | {"options": options, "answer": "C", "answer_index": 2},
        MMLU | {"question": "a, b\nor c?", "options": ["1", "2"], "answer": "A", "answer_index": 0},
    ]
    expected = load(MmluPro, write(tmp_path, *rows))
    assert texts(expected[0]) == "3,\n4"
    if kind == "json":
        path = tmp_path / "rows.json"
        path.write_text(json.dumps(rows))
    elif kind == "parquet":
        path = tmp_path / "rows.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path = tmp_path / "rows.csv"
        show = numpy_shown if kind == "numpy" else str
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(MMLU))
            writer.writeheader()
            writer.writerows(row | {"options": show(row["options"])} for row in rows)
    assert [replace(p, where=None) for p in load(MmluPro, path)] == [
        replace(p, where=None) for p in expected
    ]


def numpy_shown(texts):
    return "[" + "\n ".join(map(repr, texts)) + "]"


@pytest.mark.parametrize(
    "cell", ["['1', 2]", "('1', '2')", "['1', '2'", "1 2", "['1'] + ['2']", ""]
)
def test_a_cell_that_is_no_list_of_texts_is_refused(cell, tmp_path):
    with pytest.raises(DataError, match="'options' must be a list"):
        load(MmluPro, write(tmp_path, MMLU | {"options": cell}))


def test_not_available_is_an_option_unless_it_fills_up_the_end(tmp_path):
    middle = MMLU | {"options": ["1", "N/A", "3", "4", "N/A"], "answer": "D", "answer_index": 3}
    right = MMLU | {"options": ["1", "N/A", "N/A"], "answer": "B", "answer_index": 1}
    one, other = load(MmluPro, write(tmp_path, middle, right))
    assert sorted(one.spec["options"]) == ["1", "3", "4", "N/A"]
    assert texts(one) == "4"
    assert sorted(other.spec["options"]) == ["1", "N/A"]
    assert texts(other) == "N/A"


def test_blanks_around_the_text_of_an_answer_are_no_difference(tmp_path):
    row = SUPER | {"options": ["4 ", " 5", "6"], "answer": " 5"}
    (problem,) = load(SuperGpqa, write(tmp_path, row))
    assert texts(problem) == "5"


def test_equal_rows_get_ids_of_their_own_and_limit_counts(tmp_path):
    path = write(tmp_path, SUPER, SUPER, SUPER | {"question": "3 + 2?"})
    ids = [p.id for p in load(SuperGpqa, path)]
    assert len(set(ids)) == 3
    assert ids[1] == ids[0] + "-2"
    assert [p.id for p in load(SuperGpqa, path, limit=2)] == ids[:2]


@pytest.mark.parametrize(
    ("cls", "row", "said"),
    [
        (Gpqa, {k: v for k, v in GPQA.items() if k != "Correct Answer"}, "'Correct Answer'"),
        (MmluPro, MMLU | {"answer_index": 2}, "'answer_index' 2"),
        (MmluPro, MMLU | {"answer": "K"}, "'answer' must be a letter"),
        (SuperGpqa, SUPER | {"answer": "6"}, "not the text of option B"),
        (SuperGpqa, SUPER | {"options": "4, 5"}, "'options' must be a list"),
        (SuperGpqa, SUPER | {"question": " "}, "'question' must be text"),
    ],
)
def test_a_row_that_lacks_something_is_refused_with_its_place(cls, row, said, tmp_path):
    with pytest.raises(DataError) as caught:
        load(cls, write(tmp_path, row))
    assert said in str(caught.value)
    assert "rows.jsonl:1" in str(caught.value)
