"""What ``rlvr eval`` and ``rlvr passk`` sampled is checked before it counts."""

import json
import re
from dataclasses import replace

import pytest

from rlvr_core.api import Completion, Group, Judged, Problem, RunError
from rlvr_core.builtin.evals import checking
from rlvr_core.builtin.evals.checking import Kept, wrong_results
from rlvr_core.builtin.evals.plain_figures import check_figures, check_pass_at_k
from rlvr_core.builtin.evals.store import Store
from rlvr_core.rollout.collect import Generator

LAX = "--allow-truncation"
PASSK = ("passk", "--n", 4, "--k", "1,4", "--task", "lab/letters", LAX, "--out", "out")
EVAL = ("eval", "--task", "lab/letters", LAX, "--out", "out")
FILES = {"completions.jsonl", "results.jsonl", "summary.json"}


def asked(monkeypatch, change):
    """Change each request of an engine."""
    honest = Generator._request

    def request(self, *args):
        return change(honest(self, *args))

    monkeypatch.setattr(Generator, "_request", request)


def params(**changes):
    return lambda request: replace(request, params=replace(request.params, **changes))


@pytest.mark.parametrize(
    ("command", "change", "words"),
    [
        (EVAL, params(temperature=1.0), "not the likeliest"),
        (EVAL, params(max_tokens=5), r"is cut off \(length\) after 5 tokens, and the cap is 12"),
        (EVAL, lambda r: replace(r, prompt_ids=r.prompt_ids[1:]), "disagree on tokens"),
        (PASSK, params(temperature=0.5), "disagree on tokens at temperature 1"),
        (PASSK, lambda r: replace(r, seeds=r.seeds[:1] * 4), "their seeds draw"),
        (PASSK, lambda r: replace(r, seeds=tuple(range(4))), "their seeds draw"),
    ],
)
def test_what_is_sampled_otherwise_does_not_count(
    lab, model_dir, monkeypatch, command, change, words
):
    lab.rlvr(command[0], model_dir, *command[1:])
    folder = lab.folder / "out" / "lab_letters"
    assert {path.name for path in folder.iterdir()} >= FILES
    honest = json.loads((folder / "summary.json").read_text())
    for name in FILES:
        (folder / name).unlink()

    with monkeypatch.context() as broken:
        asked(broken, change)
        done = lab.rlvr(command[0], model_dir, *command[1:], check=1)
    assert "error: the evaluation lab/letters: " in done.stderr
    assert re.search(words, done.stderr)
    assert not FILES & {path.name for path in folder.iterdir()}
    assert (folder / "refused-completions.jsonl").stat().st_size > 0

    # the same command again asks all of it anew
    lab.rlvr(command[0], model_dir, *command[1:])
    assert json.loads((folder / "summary.json").read_text()) == honest


def test_check_false_turns_it_off_and_says_so(lab, model_dir, monkeypatch):
    asked(monkeypatch, params(temperature=1.0))
    done = lab.rlvr("eval", model_dir, *EVAL[1:], "--set", "check=false")
    assert "how completions are sampled is not checked: check is off" in done.stderr


def test_weights_that_are_not_the_files(lab, model_dir, monkeypatch):
    """A loader that leaves one matrix as it was made."""
    from rlvr_core.builtin.evals import engine

    honest = engine.load_policy

    def load(*args):
        model = honest(*args)
        model.get_parameter("model.layers.1.mlp.up_proj.weight").data.normal_(std=0.02)
        return model

    monkeypatch.setattr(engine, "load_policy", load)
    done = lab.rlvr("eval", model_dir, *EVAL[1:], check=1)
    assert "is not that of its files: 1 tensors are others" in done.stderr
    assert "model.layers.1.mlp.up_proj.weight" in done.stderr


def test_what_an_earlier_call_sampled_is_checked_too(lab, model_dir, monkeypatch):
    """It was sampled otherwise, and ended before it was checked."""
    with monkeypatch.context() as broken:
        asked(broken, params(temperature=1.0))
        broken.setattr(checking.Checks, "in_engine", lambda self: None)
        lab.rlvr("eval", model_dir, *EVAL[1:])
    folder = lab.folder / "out" / "lab_letters"
    (folder / "summary.json").unlink()
    whole = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text("".join(whole[:20]))
    done = lab.rlvr("eval", model_dir, *EVAL[1:], check=1)
    assert "not the likeliest" in done.stderr


def test_what_was_complete_and_never_checked_is_named(lab, model_dir):
    lab.rlvr("eval", model_dir, *EVAL[1:])
    words = "lab/letters: how an earlier call sampled its completions is not checked"
    again = lab.rlvr("eval", model_dir, *EVAL[1:])
    assert words not in again.stderr
    (lab.folder / "out" / "lab_letters" / "summary.json").unlink()
    again = lab.rlvr("eval", model_dir, *EVAL[1:])
    assert words in again.stderr


def test_results_that_are_not_those_of_the_verifier(lab, model_dir, monkeypatch):
    honest = Store.write

    def write(self, problem, prompt, members):
        late = [replace(members[-1], passed=False, reward=0.0)]
        honest(self, problem, prompt, [*members[:-1], *late])

    monkeypatch.setattr(Store, "write", write)
    done = lab.rlvr("passk", model_dir, *PASSK[1:], check=1)
    assert "the results that were written are not those of the completions" in done.stderr


def judged(text, n, passed=True, reward=1.0):
    logprobs = (-1.0,) * n
    completion = Completion((1,), (2,) * n, logprobs, (True,) * n, text, "stop")
    return Judged(completion, {}, reward, passed)


def test_the_first_by_name_are_kept_whatever_the_order(monkeypatch):
    """CRC-32 of a, b, c, d: e8b7be43, 71beeff9, 06b9df6f, 98dd4acc; so c, b, d, a."""
    monkeypatch.setattr(checking, "TOKENS", 10)
    for order in ("abcd", "dcba", "bdac"):
        kept = Kept()
        for name in order:
            kept.add(Problem(name, "?", "x/y", {}, "toy"), [judged(name, 5)])
        assert [group.problem.id for group in kept.groups] == ["c", "b"]
        assert kept.traces.keys() == set("abcd")
    few = Kept()
    few.choose(Group(Problem("a", "?", "x/y", {}, "toy"), (judged("a", 3),), 0))
    assert len(few.groups) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"passed": False}, "with passed False, score 1.0 and 2 tokens, and had True, 1.0 and 2"),
        ({"score": 0.5}, "score 0.5"),
        ({"n_tokens": 3}, "3 tokens"),
        ({"text": "other"}, "and another text"),
        ({"sample": 7}, "2 completions are missing"),
    ],
)
def test_stored_rows_are_compared_with_traces(tmp_path, change, words):
    kept = Kept()
    kept.add(Problem("p", "?", "x/y", {}, "toy"), [judged("one", 2), judged("two", 2)])
    for name, keys in (("completions", ("text",)), ("results", ("passed", "score", "n_tokens"))):
        rows = []
        for sample, text in enumerate(("one", "two")):
            row = {"text": text, "passed": True, "score": 1.0, "n_tokens": 2} | change
            row = {key: row[key] for key in keys}
            row |= {"problem_id": "p", "sample": change.get("sample", sample)}
            rows.append(json.dumps(row))
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{row}\n" for row in rows))
    found = wrong_results(tmp_path, kept.traces)
    assert (words in found) if words else not found


ROWS = [
    {"problem_id": id_, "passed": passed, "score": score}
    for id_, passed, score in [
        ("p", True, 1.0),
        ("p", False, 0.0),
        ("p", None, None),
        ("q", False, 0.0),
        ("q", False, 0.5),
        ("q", True, 1.0),
    ]
]


def test_figures_by_hand():
    """Accuracy: (1/2 + 1/3) / 2 = 5/12, score: (1/2 + 1/2) / 2; pass@2: (1 + 2/3) / 2 = 5/6."""
    good = {"metrics": {"accuracy": {"value": 5 / 12}, "score": {"value": 0.5}}}
    check_figures(good, ROWS)
    check_pass_at_k({"1": {"value": 5 / 12}, "2": {"value": 5 / 6}}, ROWS, lambda r: r["passed"])
    check_pass_at_k({"3": {"value": 1.0}}, ROWS, lambda r: r["passed"])  # p has but two
    good["metrics"]["accuracy"]["value"] = 2 / 5  # of completions, and not of problems
    with pytest.raises(RunError, match=r"the accuracy .* 0\.4, and its results make 0\.41666"):
        check_figures(good, ROWS)
    with pytest.raises(RunError, match="pass@2"):
        check_pass_at_k({"2": {"value": 3 / 4}}, ROWS, lambda r: r["passed"])
    with pytest.raises(RunError, match="reported as None"):
        check_pass_at_k({"1": {"value": None}}, ROWS, lambda r: r["passed"])
