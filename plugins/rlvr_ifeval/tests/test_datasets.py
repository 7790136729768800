"""The data sets, the evaluation tasks, and what the plugin registers."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlvr_core.api import Completion, DataError, EvalTask, Group, Judged
from rlvr_ifeval import datasets, evals
from rlvr_ifeval.commands import list_constraints
from rlvr_ifeval.ifbench import IFBENCH
from rlvr_ifeval.multi import MULTI
from rlvr_ifeval.rlvr import RLVR

DATA = Path(os.environ.get("RLVR_DATA", Path(__file__).parents[4] / "shared" / "data"))
real = pytest.mark.skipif(not DATA.exists(), reason=f"no benchmark data at {DATA}")
MESSAGES = [{"role": "user", "content": "Say hi"}, {"role": "assistant", "content": "hi"}]
LOWER = json.dumps({"func_name": "validate_lowercase", "N": None})


def write(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def load(dataset, path, **options):
    return list(dataset(dataset.Config(path=path, **options)).load())


@real
@pytest.mark.parametrize(
    ("dataset", "file", "n", "first"),
    [
        (datasets.Ifeval, "ifeval/input_data.jsonl", 541, "ifeval_1000"),
        (datasets.Ifbench, "ifbench/IFBench_test.jsonl", 300, "ifbench_0"),
        (datasets.Ifbench, "rlvr/nemo_gym_ifbench_5.jsonl", 5, "ifbench_0"),
        (datasets.MultiConstraints, "rlvr/nemo_gym_instruction_following_5.jsonl", 5,
         "if-multi_17616"),
    ],
)  # fmt: skip
def test_real_files_load_and_every_row_is_valid(dataset, file, n, first):
    found = load(dataset, str(DATA / file))
    assert len({problem.id for problem in found}) == len(found) == n
    assert found[0].id == first
    verifier = dataset.CHECKER(dataset.CHECKER.Config())
    for problem in found:
        verifier.check(problem)
        assert set(problem.spec) <= set(dataset.FIELDS)


def test_rows_with_messages_and_ground_truth(tmp_path):
    path = write(tmp_path, {"messages": MESSAGES, "ground_truth": LOWER, "dataset": "ifeval"})
    (one,) = load(datasets.RlvrIfeval, path)
    assert one.prompt == "Say hi"
    assert one.verifier == "ifeval/rlvr"
    assert one.spec == {"ground_truth": LOWER}
    assert one.tags == {"constraints": 1, "constraint": "validate_lowercase"}


def test_t42_ids_have_a_prefix_of_their_own_and_do_not_depend_on_order(tmp_path):
    rows = [
        {
            "messages": [{"role": "user", "content": text}],
            "ground_truth": LOWER,
            "dataset": "ifeval",
        }
        for text in ("a", "b", "a")
    ]
    forward = load(datasets.RlvrIfeval, write(tmp_path, *rows))
    backward = load(datasets.RlvrIfeval, write(tmp_path, *rows[::-1]))
    assert len({problem.id for problem in forward}) == 3
    assert {p.id for p in forward} == {p.id for p in backward}
    assert {p.id: p.prompt for p in forward} == {p.id: p.prompt for p in backward}
    kinds = (datasets.Ifeval, datasets.Ifbench, datasets.RlvrIfeval, datasets.MixedIf,
             datasets.MultiConstraints)  # fmt: skip
    assert len({kind.PREFIX for kind in kinds}) == len({kind.NAME for kind in kinds}) == 5


def test_the_mixed_set_gives_its_instruction_following_rows_only(tmp_path):
    path = write(
        tmp_path,
        {"messages": MESSAGES, "ground_truth": "3", "dataset": "gsm8k"},
        {"messages": MESSAGES, "ground_truth": LOWER, "dataset": "ifeval"},
        {"messages": MESSAGES, "ground_truth": "x", "dataset": "MATH"},
    )
    (one,) = load(datasets.MixedIf, path)
    assert one.dataset == "ifeval/mixed-if"
    with pytest.raises(DataError, match="no rows"):
        load(datasets.MixedIf, write(tmp_path, {"prompt": "a", "ground_truth": "3"}))


def test_t55_invalid_rows_are_all_named_or_left_out_when_asked_for(tmp_path, caplog):
    good = {"prompt": "a", "ground_truth": LOWER}
    path = write(
        tmp_path,
        good,
        {"prompt": "b", "ground_truth": json.dumps({"func_name": "validate_lowercas"})},
        {"prompt": "c", "ground_truth": json.dumps({"func_name": "validate_lowercase", "N": 3})},
    )
    with pytest.raises(DataError) as caught:
        load(datasets.RlvrIfeval, path)
    said = str(caught.value)
    for part in ("rows.jsonl:2", "validate_lowercas'", "rows.jsonl:3", "unexpected argument 'N'"):
        assert part in said
    with caplog.at_level(logging.WARNING):
        assert len(load(datasets.RlvrIfeval, path, drop_invalid=True)) == 1
    assert "2 invalid rows left out" in caplog.text


@pytest.mark.parametrize("row", [{}, {"prompt": " "}, {"prompt": 3}, {"messages": []}])
def test_a_row_without_a_prompt_is_refused(tmp_path, row):
    with pytest.raises(DataError, match="no prompt"):
        load(datasets.RlvrIfeval, write(tmp_path, {**row, "ground_truth": LOWER}))


def test_limit_counts_rows(tmp_path):
    rows = [{"prompt": str(i), "ground_truth": LOWER} for i in range(5)]
    assert len(load(datasets.RlvrIfeval, write(tmp_path, *rows), limit=2)) == 2


def test_t45_rows_from_the_hub_with_nulls_and_json_text(monkeypatch):
    ids = ["length_constraints:number_words"]
    kwargs = [{"num_words": 3, "relation": "at least", "language": None, "keywords": None}]
    rows = [
        (1, {"key": 1, "prompt": "a", "instruction_id_list": ids, "kwargs": kwargs}),
        (2, {"key": 2, "prompt": "b", "instruction_id_list": ids, "kwargs": json.dumps(kwargs)}),
    ]
    asked = []
    monkeypatch.setattr(datasets, "hub_rows", lambda *what: asked.append(what) or iter(rows))
    loader = datasets.Ifeval(datasets.Ifeval.Config(revision="abc"))
    assert [problem.id for problem in loader.load()] == ["ifeval_1", "ifeval_2"]
    assert asked == [("google/IFEval", None, "train", "abc")]


def test_the_task_is_greedy_and_reports_by_hand_counted_numbers(tmp_path):
    ids = ["punctuation:no_comma", "startend:quotation"]
    rows = [
        {"key": i, "prompt": f"p{i}", "instruction_id_list": ids, "kwargs": [{}, {}]}
        for i in range(2)
    ]
    task = evals.Ifeval(evals.Ifeval.Config(path=write(tmp_path, *rows), max_tokens=99))
    assert isinstance(task, EvalTask)
    assert (task.n, task.sampling.temperature, task.sampling.max_tokens) == (1, 0.0, 99)
    a, b = task.problems()

    def answered(problem, text, finish, n):
        completion = Completion((1,), (0,) * n, (0.0,) * n, (True,) * n, text, finish)
        return Group(problem, (Judged(completion, {}, None, None),), 0)

    found = task.score([answered(a, 'Sure:\n"yes"', "stop", 4), answered(b, '"a, b"', "length", 6)])
    assert found.n == 2
    assert found.metrics == pytest.approx(
        {
            "accuracy": 0.0,
            "prompt_strict": 0.0,
            "instruction_strict": 0.5,
            "prompt_loose": 0.5,
            "instruction_loose": 0.75,
            "truncated": 0.5,
            "length": 5.0,
            "strict/punctuation:no_comma": 0.5,
            "strict/startend:quotation": 0.5,
        }
    )
    assert task.score([]).metrics == {}


def test_verifiers_download_nothing():
    code = (
        "import socket\n"
        "def refuse(*a, **k): raise AssertionError('network')\n"
        "socket.socket.connect = refuse\n"
        "from rlvr_ifeval.text import tokens\n"
        "from rlvr_ifeval.language import detect\n"
        "print(len(tokens('Dr. No met her. Yes!')), detect('This is an English sentence.'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["7", "en"]


def test_the_command_lists_every_constraint():
    told = CliRunner().invoke(list_constraints, [], catch_exceptions=False).output
    for constraint in (*MULTI, *RLVR, *IFBENCH):
        assert constraint.id in told
    told = CliRunner().invoke(list_constraints, ["rlvr"], catch_exceptions=False).output
    assert "validate_lowercase" in told
    assert "punctuation:no_comma" not in told
