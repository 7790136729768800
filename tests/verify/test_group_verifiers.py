"""Verifiers that judge a group in one call and compare its completions with each other."""

import json
import math
import shutil
import textwrap

import pytest

from rlvr_core.api import Completion, PluginError, Problem
from rlvr_core.cli.main import main
from rlvr_core.plugins.host import load_host
from rlvr_core.verify.pool import VerifierPool, VerifierSpec
from tests.support.run_records import digest, lines

PROBLEM = Problem("p1", "Say it.", "v", {"answer": "x"}, "toy")
# the longest of n completions scores 1, the shortest 0; rank by rank in between
RANKS = '''
import time
from rlvr_core.api import NoConfig, Verdict


class ByLength:
    """Ranks the completions of a group by their length."""

    Config = NoConfig

    def __init__(self, config):
        pass

    def check(self, problem):
        pass

    def verify_group(self, problem, completions):
        texts = [one.text for one in completions]
        if "raise" in texts:
            raise ValueError("no rank")
        while "hang" in texts:
            time.sleep(1)
        if "short" in texts:
            return [Verdict(1.0)]
        if "none" in texts:
            return None
        if "number" in texts:
            return [1.0 for _ in texts]
        if "slow" in texts:
            time.sleep(1.5)
        ordered = sorted(set(map(len, texts)))
        top = max(1, len(ordered) - 1)
        return [
            Verdict(ordered.index(len(text)) / top, passed=len(text) == ordered[-1])
            for text in texts
        ]


class OneByOneToo(ByLength):
    """What ``verify`` gives says nothing of a group."""

    def verify(self, problem, completion):
        return Verdict(0.25, detail="alone")


class Words(OneByOneToo):
    @staticmethod
    def time_limit(config):
        return "soon"


class OddTraits(OneByOneToo):
    traits = {"reward_range": [0, 1]}


def longest(completions):
    """The same in TRL's form."""
    ordered = sorted(set(map(len, completions)))
    top = max(1, len(ordered) - 1)
    return [ordered.index(len(one)) / top for one in completions]
'''


@pytest.fixture
def judge(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ranks.py").write_text(RANKS)

    def verdicts(*texts, use="ByLength", timeout=10.0):
        target = load_host({"RLVR_PLUGINS": ""}).entry("verifier", f"./ranks.py:{use}").target
        spec = VerifierSpec(target, {})
        with VerifierPool({"v": spec}, workers=2, timeout=timeout, memory_mb=500) as pool:
            answers = [Completion.from_text(text) for text in texts]
            rows = pool.submit_group(PROBLEM, answers, ["v"]).result(120)
            assert pool.stats()["v"].calls == len(texts)
        return [row["v"] for row in rows]

    return verdicts


@pytest.mark.parametrize("use", ["ByLength", "longest"])
def test_completions_are_ranked_within_their_group(judge, use):
    assert [one.score for one in judge("aaa", "a", "aa", "a", use=use)] == [1.0, 0.0, 0.5, 0.0]
    assert [one.score for one in judge("aaa", use=use)] == [0.0]  # a group of one goes there too


def test_a_call_has_the_time_of_a_verdict_for_each_completion(judge):
    # 1.5 s in one call of three completions, with 0.7 s for each verdict
    assert [one.score for one in judge("slow", "a", "aa", timeout=0.7)] == [1.0, 0.0, 0.5]
    assert [one.status for one in judge("slow", "a", timeout=0.7)] == ["timeout", "ok"]


@pytest.mark.parametrize(("bad", "status"), [("raise", "error"), ("hang", "timeout")])
def test_a_completion_that_breaks_the_call_is_left_out_and_the_others_are_compared(
    judge, bad, status
):
    # never one by one: each of them alone would get 0
    found = judge("aaa", bad, "a", "aa", timeout=1.0)
    assert [one.status for one in found] == ["ok", status, "ok", "ok"]
    assert [one.score for one in found] == [1.0, None, 0.0, 0.5]


@pytest.mark.parametrize(
    ("bad", "detail"),
    [
        ("none", "TypeError: verify_group gave NoneType, not a list of verdicts"),
        ("number", "TypeError: returned float, not a Verdict"),
    ],
)
def test_what_is_no_list_of_verdicts_is_an_error_that_says_so(judge, bad, detail):
    (verdict,) = judge(bad)
    assert (verdict.status, verdict.detail) == ("error", detail)


def test_a_wrong_number_of_verdicts_is_an_error_of_all(judge):
    # alone "short" gets the one verdict it gives: it is the call that is at fault, for everybody
    found = judge("short", "a", "aa")
    assert {one.status for one in found} == {"error"}
    assert {one.detail for one in found} == {
        "ValueError: verify_group gave 1 verdicts for 3 completions"
    }


def test_verdicts_on_each_completion_say_that_the_call_for_the_group_failed(judge):
    found = judge("short", "a", use="OneByOneToo")
    assert [one.score for one in found] == [0.25, 0.25]
    assert {one.detail for one in found} == {
        "alone; judged alone, since verify_group failed: "
        "ValueError: verify_group gave 1 verdicts for 2 completions"
    }
    assert [one.detail for one in judge("aa", "a", use="OneByOneToo")] == ["", ""]


def test_a_time_limit_is_a_number_of_seconds(judge):
    with pytest.raises(PluginError, match="Words gave 'soon', not a number of seconds") as caught:
        judge("a", use="Words")
    assert caught.value.complaints[0].where.endswith("ranks.py")


@pytest.fixture
def ranked(lab, tmp_path):
    """A laboratory whose reward is twice the rank by length."""
    (tmp_path / "ranks.py").write_text(RANKS)
    lab.config["rewards"] = [{"use": "./ranks.py:ByLength", "weight": 2.0}]
    return lab


def test_a_run_trains_on_ranks_and_resumes_exactly(ranked):
    run = ranked.run(checkpoint={"every": 2})
    groups = [one["completions"] for one in lines(run / "traces" / "rollouts.jsonl")]
    assert len(groups) >= 12
    for rows in groups:
        ordered = sorted({len(row["text"]) for row in rows})
        top = max(1, len(ordered) - 1)
        for row in rows:
            assert math.isclose(row["reward"], 2.0 * ordered.index(len(row["text"])) / top)
    assert any(len({row["reward"] for row in rows}) > 1 for rows in groups)

    before = digest(run)
    shutil.rmtree(run / "checkpoints" / "step000004")
    ranked.rlvr("run", "--resume", str(run), "--display", "none")
    assert digest(run) == before


def test_traits_of_another_kind_are_refused_before_the_run(ranked):
    ranked.write(rewards=[{"use": "./ranks.py:OddTraits"}])
    said = ranked.rlvr("run", "config.yaml", "--dry-run", check=3).stderr
    assert "OddTraits are {'reward_range': [0, 1]}, not VerifierTraits" in said
    assert "ranks.py" in said


def test_groups_that_are_drawn_in_parts_cannot_be_compared(ranked):
    adaptive = {"max_completions": 8, "chunk_size": 4, "k_success": 1}
    ranked.write(sampler={"use": "shuffle", "with": {"adaptive": adaptive}})
    said = ranked.rlvr("run", "config.yaml", "--dry-run", check=2).stderr
    assert "compares the completions of a group" in said
    assert "adaptive" in said


def test_rlvr_verify_judges_answers_of_one_id_in_a_row_together(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ranks.py").write_text(textwrap.dedent(RANKS))
    answers = [("p1", "a"), ("p1", "aaa"), ("p2", "aaaa"), ("p2", "aaaaa"), ("p1", "aa")]
    rows = [{"id": id_, "spec": {}, "response": text} for id_, text in answers]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["verify", "./ranks.py:ByLength", "answers.jsonl"]) == 0
    out, err = capsys.readouterr()
    found = [json.loads(line) for line in out.splitlines()]
    assert [(one["id"], one["score"]) for one in found] == [
        ("p1", 0.0),
        ("p1", 1.0),
        ("p2", 0.0),
        ("p2", 1.0),
        ("p1", 0.0),
    ]
    assert "1 rows repeat an id met before" in err
