"""The official rules, held against what the benchmarks' own scripts say.

``official_verdicts.jsonl`` has, for every constraint but ``words:start_verb``, responses made to be
hard and the verdict of the benchmark's own checker on each, run beside ours: as many as could be of
those on which it and a strict reading of the instruction differ.
"""

import json
import os
from collections import Counter
from pathlib import Path

import nltk
import pytest

from rlvr_core.api import Completion, DataError, Group, Judged, Problem
from rlvr_core.builtin.evals.spec import make_spec
from rlvr_core.testing.clock import cpu_limit
from rlvr_ifeval import evals, official_verb, verifiers
from rlvr_ifeval.ifbench import DIFFERENCES, OFFICIAL
from rlvr_ifeval.ifeval import IFEVAL
from rlvr_ifeval.official_ifeval import OFFICIAL as OFFICIAL_IFEVAL
from rlvr_ifeval.verifiers import ifbench_set

HERE = Path(__file__).parent
DATA = Path(os.environ.get("RLVR_DATA", Path(__file__).parents[4] / "shared" / "data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no benchmark data at {DATA}")
SETS = {"ifeval": IFEVAL, "ifbench": ifbench_set()}
ROWS = [json.loads(line) for line in (HERE / "official_verdicts.jsonl").open(encoding="utf-8")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_the_official_rules_give_the_verdict_of_the_official_script(row):
    bound = SETS[row["set"]].parse(row["id"], row["args"])
    wrong = [text for text in row["true"] if not bound.follows(text, rules="official")]
    wrong += [text for text in row["false"] if bound.follows(text, rules="official")]
    assert not wrong, f"judged unlike the script: {wrong}"


def test_every_constraint_has_verdicts_and_every_difference_is_met():
    counts, differ = Counter(), Counter()
    for row in ROWS:
        bound = SETS[row["set"]].parse(row["id"], row["args"])
        for text, official in [(t, True) for t in row["true"]] + [(t, False) for t in row["false"]]:
            counts[row["set"], row["id"]] += 1
            differ[row["set"], row["id"]] += bound.follows(text) != official
    for name, known in SETS.items():
        missing = {id for id in known.ids if counts[name, id] < 6} - {"words:start_verb"}
        assert not missing
    own = {("ifbench", id) for id in OFFICIAL} | {("ifeval", id) for id in OFFICIAL_IFEVAL}
    assert not {key for key in own if not differ[key]} - {("ifbench", "words:start_verb")}
    assert set(OFFICIAL) >= set(DIFFERENCES)


HUGE = [
    "a " * 50_000,
    "a." * 50_000,
    "\n" * 100_000,
    " \n\n" * 33_000,
    "(" * 100_000,
    '"' * 100_000,
]
HUGE += ["Question 1 " * 9_000, "*-" * 50_000, "<i>" * 33_000, "。a" * 50_000, '",' * 50_000]


@pytest.mark.parametrize("at", range(len(HUGE)))
def test_a_huge_response_takes_little_time_by_the_official_rules_too(at):
    args = {(row["set"], row["id"]): row["args"] for row in ROWS}
    for (name, id), given in args.items():
        bound = SETS[name].parse(id, given)
        with cpu_limit(5, id):
            bound.follows("a" + HUGE[at], rules="official")


def problem(**spec):
    given = {"instruction_id_list": ["format:sub-bullets"], "kwargs": [{}], **spec}
    return Problem(id="one", prompt="p", verifier="ifeval/ifbench", spec=given, dataset="d")


NO_BULLETS = Completion.from_text("A text without bullets.")
"""Follows ``format:sub-bullets`` to the official script, which asks each asterisk for a hyphen."""


@pytest.mark.parametrize(
    ("option", "row", "passed"),
    [
        (None, None, False),
        (None, "official", True),
        (None, "strict-reading", False),
        ("official", None, True),
        ("official", "strict-reading", True),
        ("strict-reading", "official", False),
    ],
)
def test_the_option_comes_before_the_row_and_a_strict_reading_is_the_default(option, row, passed):
    verifier = verifiers.Ifbench(verifiers.Ifbench.Config(rules=option))
    asked = problem() if row is None else problem(rules=row)
    verifier.check(asked)
    assert verifier.verify(asked, NO_BULLETS).passed is passed


def test_rules_that_do_not_exist_are_an_error_of_the_row():
    verifier = verifiers.Ifbench(verifiers.Ifbench.Config())
    with pytest.raises(DataError, match="'rules' must be one of official, strict-reading, not 'x'"):
        verifier.check(problem(rules="x"))
    verdict = verifier.verify(problem(rules="x"), NO_BULLETS)
    assert (verdict.score, verdict.status) == (None, "unscorable")


def test_training_data_has_no_official_rules():
    assert "rules" not in verifiers.Multi.Config.model_fields
    assert "rules" not in verifiers.Rlvr.Config.model_fields


def write(tmp_path):
    row = {"key": 1, "prompt": "p", "instruction_id_list": ["format:sub-bullets"], "kwargs": [{}]}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("rules", ["official", "strict-reading"])
def test_a_task_reports_both_rules_and_its_own_are_the_headline(tmp_path, rules):
    task = evals.Ifbench(evals.Ifbench.Config(path=write(tmp_path), rules=rules))
    (asked,) = task.problems()
    assert asked.spec["rules"] == rules
    verifier = verifiers.Ifbench(verifiers.Ifbench.Config())
    followed = float(rules == "official")
    assert verifier.verify(asked, NO_BULLETS).score == followed
    found = task.score([Group(asked, (Judged(NO_BULLETS, {}, None, None),), 0)]).metrics
    other = "strict_reading" if rules == "official" else "official"
    for name in ("prompt_strict", "instruction_strict", "prompt_loose", "instruction_loose"):
        assert (found[name], found[f"{other}/{name}"]) == (followed, 1 - followed)
    assert found["accuracy"] == found["strict/format:sub-bullets"] == followed


def test_the_headline_is_official_unless_said_otherwise():
    assert evals.Ifeval.Config().rules == evals.Ifbench.Config().rules == "official"


def test_evaluations_by_different_rules_have_different_specifications(tmp_path):
    specs = []
    for rules in ("official", "strict-reading"):
        task = evals.Ifbench(evals.Ifbench.Config(path=write(tmp_path), rules=rules))
        specs.append(
            make_spec(
                task="ifeval/ifbench",
                options=task.config.model_dump(mode="json"),
                problems=task.problems(),
                n=task.n,
                sampling=task.sampling,
                prompt=None,
                verifiers={},
                rewards=None,
                seed=0,
            )
        )
    one, other = specs
    assert one.hash != other.hash
    assert one.content["problems"]["sha256"] != other.content["problems"]["sha256"]


@pytest.fixture
def tagger(tmp_path, monkeypatch):
    """NLTK's data folder with a tagger that calls "walk" a verb, and every other word a noun."""
    name = "averaged_perceptron_tagger_eng"
    folder = tmp_path / "taggers" / name
    folder.mkdir(parents=True)
    weights = {"bias": {"NN": 0.5}, "i word walk": {"VBP": 1.0}}
    for part, data in (("weights", weights), ("tagdict", {}), ("classes", ["NN", "VBP"])):
        (folder / f"{name}.{part}.json").write_text(json.dumps(data), encoding="utf-8")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    official_verb._tagger.cache_clear()
    yield
    official_verb._tagger.cache_clear()


@pytest.fixture
def no_tagger(monkeypatch):
    monkeypatch.setattr(nltk.data, "path", [])
    official_verb._tagger.cache_clear()
    yield
    official_verb._tagger.cache_clear()


STARTS_WITH_VERB = SETS["ifbench"].parse("words:start_verb", None)


@pytest.mark.usefixtures("tagger")
def test_the_tagger_decides_where_its_data_are_installed():
    for text, official in (("Walk the dog.", True), ("Write a poem.", False), ("", False)):
        assert STARTS_WITH_VERB.follows(text, rules="official") is official
    assert STARTS_WITH_VERB.follows("Write a poem.")


@pytest.mark.usefixtures("no_tagger")
@pytest.mark.parametrize(
    ("text", "strict", "official"),
    [
        ("Write a poem.", True, True),
        ("Plant trees.", True, False),
        ("Consider trees.", True, True),
        ("May I go?", True, False),
        ("Walking is fun.", True, True),
        ("**Write** a poem.", True, False),
        ("Light travels fast.", False, False),
    ],
)
def test_without_it_a_rule_follows_its_habits(text, strict, official):
    assert STARTS_WITH_VERB.follows(text) is strict
    assert STARTS_WITH_VERB.follows(text, rules="official") is official


def test_the_tagger_is_part_of_the_specification(tmp_path, request):
    row = {"key": 1, "prompt": "p", "instruction_id_list": ["words:start_verb"], "kwargs": [{}]}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    task = evals.Ifbench(evals.Ifbench.Config(path=str(path)))
    for name, fixture in (("own", "no_tagger"), ("nltk", "tagger")):
        request.getfixturevalue(fixture)
        (asked,) = task.problems()
        assert asked.spec["tagger"] == name
        group = Group(asked, (Judged(NO_BULLETS, {}, None, None),), 0)
        assert task.score([group]).basis == {"tagger": name}


@needs_data
def test_real_outputs_are_judged_as_by_the_official_script():
    """Upstream's own script, run beside ours, says 76 of these 293 strictly and 86 loosely."""
    with (DATA / "ifbench" / "sample_output.jsonl").open(encoding="utf-8") as lines:
        said = {row["prompt"].strip(): row["response"] for row in map(json.loads, lines)}
    task = evals.Ifbench(evals.Ifbench.Config(path=str(DATA / "ifbench" / "IFBench_test.jsonl")))
    groups = [
        Group(one, (Judged(Completion.from_text(said[one.prompt.strip()]), {}, None, None),), 0)
        for one in task.problems()
        if one.prompt.strip() in said
    ]
    found = task.score(groups)
    assert found.n == 293
    counts = {
        name: round(found.metrics[name] * 293)
        for name in ("prompt_strict", "prompt_loose", "strict_reading/prompt_strict")
    }
    assert counts == {"prompt_strict": 76, "prompt_loose": 86, "strict_reading/prompt_strict": 81}
