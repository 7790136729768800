"""A rule first, another verifier where the rule says no: statuses, metric and bound."""

import json
import logging
import textwrap
from types import SimpleNamespace

import pytest

from rlvr_checks.first_of import FirstOf
from rlvr_core.api import (
    Completion,
    ConfigError,
    DataError,
    Problem,
    RunError,
    StepFinished,
    Usage,
    Verdict,
)
from rlvr_core.verify.pool import VerifierPool, VerifierSpec
from tests.support.tables import table

PARTS = '''
import time
from rlvr_core.api import ComponentConfig, DataError, NoConfig, Usage, Verdict, VerifierTraits


class Says:
    """Scores an answer by its words; counts what it was asked in a file."""

    class Config(ComponentConfig):
        key: str
        """The letter its words begin with."""
        log: str | None = None
        """File for the answers it was asked about."""

    traits = VerifierTraits(reward_range=(0.0, 1.0))

    def __init__(self, config):
        self.config = config

    def check(self, problem):
        if "answer" not in problem.spec:
            raise DataError(f"{problem.id}: {self.config.key} needs an answer")

    def gold(self, problem):
        return problem.spec.get(self.config.key)

    def verify(self, problem, completion):
        if self.config.log:
            with open(self.config.log, "a") as file:
                print(completion.text, file=file)
        words, key = completion.text.split(), self.config.key
        if f"{key}raises" in words:
            raise ValueError(f"{key} is broken")
        while f"{key}hangs" in words:
            time.sleep(1)
        if f"{key}error" in words:
            return Verdict(None, "error", detail=f"{key} failed")
        if f"{key}unscorable" in words:
            return Verdict(None, "unscorable", detail=f"{key} cannot")
        if f"{key}high" in words:
            return Verdict(7.0)
        if f"{key}half" in words:
            return Verdict(0.5, detail=f"{key} half")
        passed = f"{key}yes" in words
        return Verdict(
            float(passed), passed=passed, parts={key: 0.25}, detail=f"{key} says {passed}",
            usage=Usage(1) if key == "b" else None,
        )


class Slow(Says):
    @staticmethod
    def time_limit(config):
        return 120.0


class Ranks:
    Config = NoConfig

    def __init__(self, config):
        pass

    def verify_group(self, problem, completions):
        return [Verdict(1.0) for _ in completions]


def plain(text, answer):
    return text == answer
'''
PROBLEM = Problem("p", "?", "core/exact", {"answer": "x", "a": None, "b": "byes"}, "toy")


@pytest.fixture(autouse=True)
def _parts(tmp_path, monkeypatch):
    (tmp_path / "parts.py").write_text(textwrap.dedent(PARTS))
    monkeypatch.chdir(tmp_path)


def config(first="a", second="b", log=None, **options):
    def ref(key):
        return {"use": "./parts.py:Says", "with": {"key": key}} if len(key) == 1 else key

    second = ref(second)
    if log:
        second["with"]["log"] = str(log)
    return {"first": ref(first), "second": second} | options


def made(**options):
    return FirstOf(FirstOf.Config(**config(**options)))


def judge(text, **options):
    return made(**options).verify(PROBLEM, Completion.from_text(text))


@pytest.mark.parametrize(
    ("text", "status", "score", "passed", "alone"), table(__file__, "verdicts")
)
def test_the_second_decides_only_where_the_first_says_no(text, status, score, passed, alone):
    verdict = judge(text)
    assert (verdict.status, verdict.score, verdict.passed) == (status, score, passed)
    assert verdict.parts.get("second_alone") == alone


def test_the_second_is_asked_only_about_what_the_first_failed(tmp_path):
    log = tmp_path / "log"
    verifier = made(log=log)
    texts = ["ayes", "no 1", "aerror", "aunscorable", "no 2", "ahalf"]
    both = [Completion.from_text(text) for text in texts]
    verdicts = verifier.verify_group(PROBLEM, both)
    assert log.read_text().splitlines() == ["no 1", "no 2", "ahalf"]
    assert [v.status for v in verdicts] == ["ok", "ok", "error", "unscorable", "ok", "ok"]
    assert verdicts == [verifier.verify(PROBLEM, one) for one in both]


def test_the_verdict_says_who_decided_and_keeps_what_it_cost():
    verdict = judge("byes")
    assert verdict.detail == "second: b says True"
    assert verdict.parts == {"b": 0.25, "first": 0.0, "second": 1.0, "second_alone": 1.0}
    assert verdict.usage == Usage(1)
    verdict = judge("no")
    assert verdict.detail == "a says False; second: b says False"
    assert verdict.usage == Usage(1)


def test_what_raises_or_hangs_is_no_verdict_of_its_group(tmp_path):
    spec = VerifierSpec("rlvr_checks.first_of:FirstOf", config(timeout=1.0))
    texts = ["ayes", "araises byes", "byes", "no", "braises", "ahangs byes"]
    with VerifierPool({"v": spec}, workers=2, timeout=60, memory_mb=2000) as pool:
        found = pool.submit_group(PROBLEM, [Completion.from_text(t) for t in texts], ["v"])
        verdicts = [row["v"] for row in found.result(timeout=120)]
    statuses = [verdict.status for verdict in verdicts]
    assert statuses == ["ok", "error", "ok", "ok", "error", "timeout"]
    assert [verdict.score for verdict in verdicts] == [1.0, None, 1.0, 0.0, None, None]
    assert "a is broken" in verdicts[1].detail


def test_auto_is_the_problems_own_verifier():
    verifier = made(first="auto")
    assert verifier.verify(PROBLEM, Completion.from_text("x")).parts["second_alone"] == 0.0
    assert verifier.verify(PROBLEM, Completion.from_text("byes")).parts["second_alone"] == 1.0
    assert verifier.gold(PROBLEM) == "x"
    with pytest.raises(DataError, match="core/exact"):
        verifier.check(Problem("p", "?", "core/exact", {}, "toy"))


def test_plain_functions_compose_and_gold_is_asked_of_both():
    verifier = made(first="./parts.py:plain")
    assert verifier.verify(PROBLEM, Completion.from_text("x")).parts["second_alone"] == 0.0
    assert verifier.gold(PROBLEM) == "byes"
    assert made().gold(PROBLEM) == "byes"
    with pytest.raises(DataError, match="p7: a needs an answer"):
        made().check(Problem("p7", "?", "v", {}, "toy"))


def test_limits_of_time_add_up():
    slow = {"use": "./parts.py:Slow", "with": {"key": "b"}}
    options = config(timeout=5.0) | {"second": slow}
    assert FirstOf.time_limit(FirstOf.Config(**options)) == 125.0
    assert FirstOf.time_limit(FirstOf.Config(**config(first="auto", timeout=5.0))) == 10.0


def test_a_score_outside_of_its_declared_range_is_the_parts_error():
    with pytest.raises(ValueError, match=r"score 7\.0 is outside"):
        judge("ahigh")
    with pytest.raises(ValueError, match=r"score 7\.0 is outside"):
        judge("bhigh")


@pytest.mark.parametrize(
    "options",
    [
        {"first": "./parts.py:Ranks"},
        {"second": "./parts.py:Ranks"},
        {"second": "core/nothing"},
        {"first": {"use": "auto", "with": {"key": "a"}}},
    ],
)
def test_what_cannot_be_composed_is_refused(options):
    with pytest.raises(ConfigError):
        FirstOf(FirstOf.Config(**(config() | options)))


# -- the share that the second one granted -------------------------------------------------------


def step(verifier, passes, alone, number=1, failures=0):
    given = [Verdict(1.0, passed=True, parts={"second_alone": 0.0})] * (passes - alone)
    given += [Verdict(1.0, passed=True, parts={"first": 0.0, "second_alone": 1.0})] * alone
    given += [Verdict(0.0, passed=False, parts={"first": 0.0, "second_alone": 0.0})] * failures
    given += [Verdict(None, "error"), Verdict(1.0, passed=True)]  # of others
    members = [SimpleNamespace(verdicts={"checks/first-of": one}) for one in given]
    verifier.on_groups(SimpleNamespace(groups=[SimpleNamespace(members=members)]))
    shares = verifier.report()
    verifier.on_step(StepFinished(step=number, version=number, metrics=shares))
    return shares


def test_shares_are_reported():
    assert step(made(), 8, 2, failures=2) == {
        "first_of/second_share": 0.25,
        "first_of/asked": 0.4,
    }
    assert step(made(), 0, 0, failures=3) == {"first_of/asked": 1.0}
    assert step(made(), 0, 0) == {}


def test_above_the_bound_the_run_stops():
    verifier = made(max_share=0.5, window=2)
    step(verifier, 10, 10)  # too few to say
    step(verifier, 10, 0)
    step(verifier, 10, 10)
    with pytest.raises(RunError, match="alone passed 11 of the 20 answers"):
        step(verifier, 10, 1)


def test_above_the_bound_the_run_may_go_on_with_a_warning(caplog):
    verifier = made(max_share=0.5, above="warn")
    with caplog.at_level(logging.WARNING):
        step(verifier, 30, 15)
        assert not caplog.records
        step(verifier, 30, 16, number=2)
    assert "step 2: ./parts.py:Says alone passed 31 of the 60" in caplog.text


def test_the_window_goes_on_after_a_resume():
    verifier, other = made(), made()
    step(verifier, 15, 14)
    other.load_state_dict(json.loads(json.dumps(verifier.state_dict())))
    with pytest.raises(RunError, match="alone passed 15 of the 20"):
        step(other, 5, 1)
