import itertools
import json
from pathlib import Path

import pytest

from rlvr_lab.passk import pass_at_k
from tests.support.tables import table

LAX = "--allow-truncation"
TASK = ("--task", "toy/letters", "--with", "count=10", LAX)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def brute(outcomes: list[bool], k: int) -> float:
    subsets = list(itertools.combinations(outcomes, k))
    return sum(map(any, subsets)) / len(subsets)


def test_pass_at_k_difficulty_and_curriculum(lab, model_dir):
    stop = ("--with", "stop=C")  # without one, the random model hardly ever ends
    arguments = ("passk", model_dir, *TASK, *stop, "--n", "6", "--k", "1,2,6", "--out", "out")
    order = ("--curriculum", "order.txt", "--min", "0.01", "--max", "0.99", "--sft", "sft.jsonl")
    summary = lab.json(*arguments, *order)["tasks"]["out/toy_letters"]
    out = lab.folder / "out" / "toy_letters"
    rows = lines(out / "results.jsonl")
    assert [(r["problem_id"], r["sample"]) for r in rows] == [
        (f"p{i}", sample) for i in range(10) for sample in range(6)
    ]
    outcomes = {
        f"p{i}": [r["passed"] for r in rows if r["problem_id"] == f"p{i}"] for i in range(10)
    }
    assert len({tuple(one) for one in outcomes.values()}) > 3  # it is really sampled
    for k in (1, 2, 6):
        mean = sum(brute(one, k) for one in outcomes.values()) / 10
        assert summary["pass_at_k"][str(k)]["value"] == pytest.approx(mean)

    difficulty = lines(out / "difficulty.jsonl")
    rates = {row["id"]: row["pass_rate"] for row in difficulty}
    assert rates == {id_: pytest.approx(sum(one) / 6) for id_, one in outcomes.items()}
    assert difficulty[4]["tags"] == {"level": 1, "kinds": ["a"], "row": 4}
    chosen = [id_ for id_, rate in rates.items() if 0.01 <= rate <= 0.99]
    ordered = (lab.folder / "order.txt").read_text().split()
    assert ordered == sorted(chosen, key=lambda id_: -rates[id_])
    assert 0 < len(ordered) < 10 or len(chosen) == 10

    said = lines(out / "completions.jsonl")
    good = {
        (one["problem_id"], one["text"])
        for one, row in zip(said, rows, strict=True)
        if row["passed"] and not row["truncated"] and one["text"]
    }
    assert good
    sft = lines(lab.folder / "sft.jsonl")
    assert {(row["problem_id"], row["completion"]) for row in sft} == good
    assert len(sft) == len(good) == len({row["id"] for row in sft})

    assert "pass@8" in lab.rlvr(*arguments, "--k", "8", check=2).stderr


def test_an_unscored_completion_is_no_failure(lab, model_dir):
    options = ("--task", "toy/letters", "--with", "count=6", "--with", "hopeless=2", LAX)
    arguments = ("passk", model_dir, *options, "--n", "2", "--k", "2", "--out", "out")
    summary = lab.json(*arguments)["tasks"]["out/toy_letters"]
    found = summary["pass_at_k"]["2"]
    rows = lines(lab.folder / "out" / "toy_letters" / "results.jsonl")
    solved = {row["problem_id"] for row in rows if row["passed"]}
    assert (found["n"], found["left_out"]) == (4, 2)
    assert found["value"] == pytest.approx(len(solved) / 4)
    assert summary["solved_never"] == 4 - len(solved)


def test_t72_truncated_answers_are_an_error_and_nothing_is_lost(lab, model_dir):
    arguments = ("passk", model_dir, *TASK[:-1], "--n", "2", "--out", "out", "--sft", "sft.jsonl")
    done = lab.rlvr(*arguments, check=1)
    out = lab.folder / "out" / "toy_letters"
    said = lines(out / "completions.jsonl")
    share = sum(row["finish_reason"] == "length" for row in said) / 20
    assert share > 0.02
    assert f"{share:.1%} of the answers were cut off at 12 tokens, more than 2.0%" in done.stderr
    assert f"truncated {share:.1%}" in done.stdout
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["truncation_rate"], summary["spoilt"]) == (pytest.approx(share), True)
    assert not (lab.folder / "sft.jsonl").exists()  # nothing is made of spoilt numbers

    stamps = [(out / name).stat().st_mtime_ns for name in ("completions.jsonl", "results.jsonl")]
    again = lab.rlvr(*arguments, LAX)
    assert "loading" not in again.stderr
    assert stamps == [
        (out / name).stat().st_mtime_ns for name in ("completions.jsonl", "results.jsonl")
    ]
    assert json.loads((out / "summary.json").read_text())["spoilt"] is False
    assert (lab.folder / "sft.jsonl").exists()
    # a limit of one's own, either way
    lab.rlvr(*arguments, "--set", "max_truncated=1.0")
    lab.rlvr(*arguments, "--set", "max_truncated=0", check=1)


@pytest.mark.parametrize(("words", "text"), table(__file__, "mistakes"))
def test_mistakes_are_explained(lab, model_dir, words, text):
    done = lab.rlvr("passk", model_dir, *TASK, "--n", "2", *words, check=2)
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert not (lab.folder / "evals").exists()


@pytest.mark.parametrize("n", [1, 4, 7])
def test_t77_pass_at_k_is_the_share_of_all_subsets(n):
    for correct, k in itertools.product(range(n + 1), range(1, n + 1)):
        assert pass_at_k(n, correct, k) == pytest.approx(brute([i < correct for i in range(n)], k))


def test_pass_at_k_refuses_what_cannot_be_told():
    for n, correct, k in [(4, 2, 5), (4, 2, 0), (4, 5, 1), (4, -1, 1)]:
        with pytest.raises(ValueError, match="cannot be estimated"):
            pass_at_k(n, correct, k)
    assert pass_at_k(512, 1, 256) == 0.5
