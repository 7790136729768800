"""The benchmarks' rules, held against what their own scripts say.

``official_verdicts.jsonl`` has, for every constraint but ``words:start_verb``, responses made to be
hard and the verdict of the benchmark's own checker on each, run beside ours.
"""

import json
import os
from collections import Counter
from pathlib import Path

import nltk
import pytest

from rlvr_core.api import Completion, Group, Judged, MachineError, Problem
from rlvr_ifeval import evals, tagger, verifiers
from rlvr_ifeval.ifbench import IFBENCH
from rlvr_ifeval.ifeval import IFEVAL

HERE = Path(__file__).parent
DATA = Path(os.environ.get("RLVR_DATA", Path(__file__).parents[4] / "shared" / "data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no benchmark data at {DATA}")
SETS = {"ifeval": IFEVAL, "ifbench": IFBENCH}
ROWS = [json.loads(line) for line in (HERE / "official_verdicts.jsonl").open(encoding="utf-8")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_the_verdicts_are_those_of_the_official_script(row):
    bound = SETS[row["set"]].parse(row["id"], row["args"])
    wrong = [text for text in row["true"] if not bound.follows(text, as_is=True)]
    wrong += [text for text in row["false"] if bound.follows(text, as_is=True)]
    assert not wrong, f"judged unlike the script: {wrong}"


def test_every_constraint_has_verdicts():
    counts = Counter()
    for row in ROWS:
        counts[row["set"], row["id"]] += len(row["true"]) + len(row["false"])
    for name, known in SETS.items():
        assert {id for id in known.ids if counts[name, id] < 3} <= {tagger.TAGGED}


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """An empty folder in place of those that NLTK looks for its data in."""
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    tagger.tagger.cache_clear()
    yield tmp_path
    tagger.tagger.cache_clear()


@pytest.fixture
def walk_is_a_verb(data_folder):
    """A tagger that calls "walk" a verb, and every other word a noun."""
    name = "averaged_perceptron_tagger_eng"
    folder = data_folder / "taggers" / name
    folder.mkdir(parents=True)
    weights = {"bias": {"NN": 0.5}, "i word walk": {"VBP": 1.0}}
    for part, data in (("weights", weights), ("tagdict", {}), ("classes", ["NN", "VBP"])):
        (folder / f"{name}.{part}.json").write_text(json.dumps(data), encoding="utf-8")


@pytest.mark.usefixtures("walk_is_a_verb")
def test_the_tagger_says_whether_a_response_starts_with_a_verb():
    bound = IFBENCH.parse(tagger.TAGGED, None)
    for text, followed in (("Walk the dog.", True), ("Write a poem.", False), ("", False)):
        assert bound.follows(text, as_is=True) is followed


@pytest.mark.usefixtures("data_folder")
def test_without_its_data_there_is_an_error_and_never_a_zero(tmp_path):
    spec = {"instruction_id_list": [tagger.TAGGED], "kwargs": [{}]}
    verifier = verifiers.Ifbench(verifiers.Ifbench.Config())
    verdict = verifier.verify(Problem("p", "q", "v", spec, "d"), Completion.from_text("Go."))
    assert (verdict.score, verdict.status) == (None, "error")
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"key": 1, "prompt": "p", **spec}) + "\n", encoding="utf-8")
    with pytest.raises(MachineError, match="averaged_perceptron_tagger_eng"):
        evals.Ifbench(evals.Ifbench.Config(path=str(path))).problems()


@needs_data
def test_real_outputs_are_judged_as_by_the_official_script():
    """Upstream's own script says 73 strictly and 83 loosely of those that need no tagger."""
    with (DATA / "ifbench" / "sample_output.jsonl").open(encoding="utf-8") as lines:
        responses = {row["prompt"].strip(): row["response"] for row in map(json.loads, lines)}
    path = str(DATA / "ifbench" / "IFBench_test.jsonl")
    dataset = evals.Ifbench.DATASET
    groups = [
        Group(
            problem,
            (Judged(Completion.from_text(responses[problem.prompt.strip()]), {}, None, None),),
            0,
        )
        for problem in dataset(dataset.Config(path=path)).load()
        if problem.prompt.strip() in responses
        and tagger.TAGGED not in problem.spec["instruction_id_list"]
    ]
    report = evals.Ifbench(evals.Ifbench.Config(path=path)).score(groups)
    assert report.n == 287
    counts = [round(report.metrics[name] * 287) for name in ("prompt_strict", "prompt_loose")]
    assert counts == [73, 83]
