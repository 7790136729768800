"""Problems as the data sets give them."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from rlvr_code.acecode import AceCode
from rlvr_code.humaneval import HumanEval
from rlvr_code.mbpp import Mbpp
from rlvr_code.tested import Call, Stdin
from rlvr_code.verifiers import Mbpp as Verifier
from rlvr_core.api import ConfigError, DataError
from tests.support.tables import table

DATA = Path(os.environ.get("RLVR_DATA", "../shared/data"))
needs_data = pytest.mark.skipif(not (DATA / "mbpp").exists(), reason=f"no benchmark data in {DATA}")


def load(loader, **options):
    return list(loader(loader.Config(**options)).load())


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@needs_data
def test_mbpp_splits_and_ids():
    path = str(DATA / "mbpp" / "mbpp.jsonl")
    sizes = {
        s: len(load(Mbpp, path=path, split=s)) for s in ("train", "validation", "test", "prompt")
    }
    assert sizes == {"train": 374, "validation": 90, "test": 500, "prompt": 10}
    assert load(Mbpp, path=path, split="test", limit=1)[0].id == "mbpp_11"


@needs_data
def test_mbpp_prompt_is_that_of_lm_eval():
    path = str(DATA / "mbpp" / "mbpp.jsonl")
    problem = load(Mbpp, path=path, split="test", shots=1)[0]
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
    two, eleven = rows[1], rows[10]

    def ask(row):
        return (
            f"You are an expert Python programmer, and here is your task: {row['text']} Your code "
            f"should pass these tests:\n\n" + "\n".join(row["test_list"]) + "\n[BEGIN]\n"
        )

    shown = two["code"].replace("\r\n", "\n").rstrip()
    assert problem.prompt == f"{ask(two)}{shown}\n[DONE]\n\n{ask(eleven)}"
    assert problem.stop == ("[DONE]",)
    assert "```python" in load(Mbpp, path=path, style="instruct", limit=1)[0].prompt


def test_t47_all_tests_are_joined_however_many(tmp_path):
    rows = [
        {
            "task_id": 601 + n,
            "text": "Do it.",
            "code": "def f(): pass",
            "test_list": ["assert f()"] * n,
        }
        for n in (1, 2, 7)
    ]
    for problem, row in zip(load(Mbpp, path=write(tmp_path / "a.jsonl", rows)), rows, strict=True):
        assert problem.prompt.count("assert f()") == len(row["test_list"])


def test_mbpp_faults_name_the_row(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"task_id": 601, "text": "x", "code": "y"}])
    with pytest.raises(DataError, match="test_list") as caught:
        load(Mbpp, path=path)
    assert f"{path}:1" in str(caught.value)
    with pytest.raises(DataError, match="worked examples"):
        load(Mbpp, path=path, shots=2)


@needs_data
def test_humaneval():
    problems = load(HumanEval, path=str(DATA / "humaneval" / "HumanEval.jsonl.gz"))
    assert len(problems) == 164
    assert problems[0].id == "humaneval_0"
    assert problems[0].prompt == problems[0].spec["prompt"]
    assert not any(stop.startswith("\ndef") for stop in problems[0].stop)


@needs_data
def test_apps_and_codecontests_and_nemo(caplog):
    apps = str(DATA / "code" / "apps_train_5.jsonl")
    with caplog.at_level(logging.WARNING):
        stdin, call = load(Stdin, path=apps), load(Call, path=apps)
    assert [p.id for p in stdin] == ["stdin_train_0001", "stdin_train_0111", "stdin_train_2287"]
    assert [p.spec["fn_name"] for p in call] == ["findKthPositive", "is_prime"]
    assert [p.spec["wrapped"] for p in call] == [False, True]
    assert stdin[0].tags == {"level": "interview"}
    assert "code/stdin left out rows: 2 with tests by calls" in caplog.text
    assert [p.id for p in load(Call, path=apps, difficulties=("introductory",))] == [
        p.id for p in call
    ]
    contests = load(Stdin, path=str(DATA / "code" / "code_contests_test_165.json.gz"), split="test")
    assert len(contests) == len({p.id for p in contests}) == 165
    assert len(load(Stdin, path=str(DATA / "code" / "nemo_gym_code_gen_5.jsonl"))) == 5
    assert len(load(AceCode, path=str(DATA / "code" / "acecode_sample.jsonl"))) == 1


def test_codecontests_as_deepmind_gives_it(tmp_path):
    def part(*numbers):
        return {"input": [f"{n}\n" for n in numbers], "output": [f"{n * n}\n" for n in numbers]}

    parts = {"private_tests": part(2), "generated_tests": part(3, 4)}
    rows = [
        {"name": "a", "description": "square it", "public_tests": part(1), **parts},
        {"name": "b", "description": "square", "public_tests": part(), "private_tests": part(5)},
        {"name": "c", "description": "none", **dict.fromkeys((*parts, "public_tests"), part())},
        {"name": "d", "description": "d", "public_tests": [{"input": "6", "output": "36"}]},
    ]
    loader = Stdin(Stdin.Config(path=write(tmp_path / "a.jsonl", rows)))
    first, second, third = loader.load()
    assert first.spec["inputs"] == ["1\n", "2\n", "3\n", "4\n"]
    assert first.spec["outputs"] == ["1\n", "4\n", "9\n", "16\n"]
    assert (second.spec["inputs"], third.spec["outputs"]) == (["5\n"], ["36"])
    assert loader.left_out == {"without tests": 1}
    for row in (part(1) | {"output": []}, {"input": ["1"]}, "[1]"):
        path = write(tmp_path / "b.jsonl", [{"description": "d", "public_tests": row}])
        with pytest.raises(DataError):
            load(Stdin, path=path)


@needs_data
def test_all_of_mbpp_and_acecode_can_be_judged():
    verifier = Verifier(Verifier.Config(challenge=True))
    plain = str(DATA / "mbpp" / "mbpp.jsonl")
    clean = str(DATA / "mbpp" / "sanitized-mbpp.json")
    problems = [
        problem
        for split in ("train", "validation", "test", "prompt")
        for path, sanitized in ((plain, False), (clean, True))
        for problem in load(Mbpp, path=path, split=split, sanitized=sanitized)
    ]
    assert len(problems) == 974 + 427
    problems += load(AceCode, path=str(DATA / "code" / "acecode_sample.jsonl"))
    for problem in problems:
        assert verifier.prepare(problem).program


def test_t46_problems_without_tests_are_dropped_and_counted(tmp_path, caplog):
    empty = (
        {"inputs": [], "outputs": []},
        "",
        None,
        "{}",
        json.dumps({"inputs": [], "outputs": []}),
    )
    rows = [{"id": n, "question": "q", "input_output": io} for n, io in enumerate(empty)]
    rows.append({"id": 9, "question": "q", "input_output": {"inputs": [""], "outputs": ["1"]}})
    loader = Stdin(Stdin.Config(path=write(tmp_path / "a.jsonl", rows)))
    with caplog.at_level(logging.WARNING):
        assert [p.id for p in loader.load()] == ["stdin_train_9"]
    assert loader.left_out == {"without tests": 5}
    assert "5 without tests" in caplog.text


KINDS = {"stdin": Stdin, "call": Call}


@pytest.mark.parametrize(("cls", "outputs", "kept"), table(__file__, "without effect", KINDS))
def test_problems_that_a_program_without_effect_would_solve_are_dropped_and_counted(
    tmp_path, cls, outputs, kept
):
    tests = {"inputs": [["1"] if cls is Call else "1"] * len(outputs), "outputs": outputs}
    tests |= {"fn_name": "f"} if cls is Call else {}
    rows = [{"id": 1, "question": "q", "input_output": tests}]
    loader = cls(cls.Config(path=write(tmp_path / "a.jsonl", rows)))
    assert len(list(loader.load())) == kept
    assert loader.left_out == ({} if kept else {"whose tests expect nothing": 1})


def test_t45_huge_integers_in_tests_survive(tmp_path):
    digits = "7" * 10_000
    text = '{"inputs": ["1"], "outputs": [' + digits + "]}"
    rows = [{"id": 1, "question": "q", "input_output": text}]
    (problem,) = load(Stdin, path=write(tmp_path / "a.jsonl", rows))
    assert problem.spec["outputs"] == [digits]


def test_tests_that_do_not_pair_up_are_faults(tmp_path):
    rows = [{"id": 1, "question": "q", "inputs": ["1", "2"], "outputs": ["1"]}]
    with pytest.raises(DataError, match="same length"):
        load(Stdin, path=write(tmp_path / "a.jsonl", rows))
    rows = [{"id": 1, "question": "q", "input_output": "{not json"}]
    with pytest.raises(DataError, match="no JSON"):
        load(Stdin, path=write(tmp_path / "b.jsonl", rows))


def test_a_source_is_needed():
    with pytest.raises(ConfigError, match="path or a hub"):
        Stdin(Stdin.Config())
