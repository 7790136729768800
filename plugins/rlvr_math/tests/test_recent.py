"""AIME 2025 and 2026, HMMT and DAPO-Math-17k, from files in their published columns."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from rlvr_core.api import DataError
from rlvr_math.competition import content_hash
from rlvr_math.recent import Aime25, Aime26, Dapo, Hmmt

ARENA = [
    {"problem_idx": 1, "problem": "Find $x$.", "answer": 70, "problem_type": ["Algebra"]},
    {"problem_idx": 2, "problem": "Find $y$.", "answer": "588", "problem_type": ["Geometry"]},
]
BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of "
    "the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
BEHIND = '\n\nRemember to put your answer on its own line after "Answer:".'


def load(cls, folder, rows, **options):
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return list(cls(cls.Config(path=str(path), **options)).load())


@pytest.mark.parametrize(("cls", "name"), [(Aime25, "aime25"), (Aime26, "aime26")])
def test_ids_are_hashes_of_the_text(cls, name, tmp_path):
    problems = load(cls, tmp_path, ARENA)
    assert [p.id for p in problems] == [f"{name}_{content_hash(row['problem'])}" for row in ARENA]
    assert [p.id for p in load(cls, tmp_path, ARENA[::-1])] == [p.id for p in problems][::-1]
    assert [p.spec["gold_answer"] for p in problems] == ["70", "588"]


def test_hmmt_rounds_have_ids_and_places_of_their_own(tmp_path):
    rows = [{"problem_idx": 1, "problem": "Find $z$.", "answer": "\\frac{1}{576}"}]
    (one,) = load(Hmmt, tmp_path, rows)
    (other,) = load(Hmmt, tmp_path, rows, round="nov_2025")
    assert one.id == f"hmmt_feb_2025_{content_hash('Find $z$.')}"
    assert other.id == f"hmmt_nov_2025_{content_hash('Find $z$.')}"
    assert one.spec["gold_answer"] == "\\frac{1}{576}"
    assert Hmmt(Hmmt.Config(round="feb_2026")).HUB[0] == "MathArena/hmmt_feb_2026"


def test_both_layouts_of_dapo_give_the_same_problems(tmp_path):
    chats = [
        {
            "data_source": "math_dapo",
            "prompt": [{"role": "user", "content": f"{BEFORE}{question}{BEHIND}"}],
            "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": str(n)},
        }
        for n, (question, answer) in enumerate([("Find $a$.", "34"), ("Find $b$.", "-2")] * 3)
    ]
    plain = [
        {"prompt": "Find $a$.", "solution": "34", "data_source": "math_dapo"},
        {"prompt": "Find $b$.", "solution": "-2", "data_source": "math_dapo"},
    ]
    from_chats, from_plain = load(Dapo, tmp_path, chats), load(Dapo, tmp_path, plain)
    assert from_chats == from_plain
    assert [p.spec["gold_answer"] for p in from_plain] == ["34", "-2"]
    assert from_plain[0].id == f"dapo17k_{content_hash('Find $a$.')}"
    assert "Find $a$." in str(from_plain[0].prompt)
    assert "Remember" not in str(from_chats[0].prompt)


def test_dapo_with_labels_and_a_box_in_the_instruction_gives_the_same_problems(tmp_path):
    before = BEFORE.replace("$Answer (without quotes)", r"\boxed{$Answer}", 1)
    chat = [{"role": "user", "content": f"{before}Find $a$.{BEHIND}"}]
    plain = [{"prompt": "Find $a$.", "solution": "34"}]
    for label in ("34", 34):
        rows = [{"prompt": chat, "label": label}]
        assert load(Dapo, tmp_path, rows) == load(Dapo, tmp_path, plain)


def test_the_published_files_are_parquet_and_may_be_csv(tmp_path):
    chat = {
        "data_source": "math_dapo",
        "prompt": [{"role": "user", "content": f"{BEFORE}Find $a$.{BEHIND}"}],
        "reward_model": {"ground_truth": "34", "style": "rule"},
    }
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([chat, chat]), tmp_path / "d.parquet")
    (problem,) = Dapo(Dapo.Config(path=str(tmp_path / "d.parquet"))).load()
    assert problem.id == f"dapo17k_{content_hash('Find $a$.')}"
    assert problem.spec["gold_answer"] == "34"
    (tmp_path / "a.csv").write_text("problem,answer\nFind $x$.,70\n")
    (problem,) = Aime25(Aime25.Config(path=str(tmp_path / "a.csv"))).load()
    assert problem.id == f"aime25_{content_hash('Find $x$.')}"
    assert problem.spec["gold_answer"] == "70"


def test_a_row_without_an_answer_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"rows\.jsonl:1"):
        load(Dapo, tmp_path, [{"prompt": "Find $a$.", "reward_model": {}}])
