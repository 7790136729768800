from dataclasses import replace

import pytest

from rlvr_core.api import DataError, MachineError, PluginError, Problem
from rlvr_core.data.jsonl import JsonLines
from rlvr_core.data.load import (
    NamedLoader,
    check_problems,
    fingerprint,
    fingerprints,
    load_sources,
)


def problem(id_, prompt="?", **spec):
    return Problem(id_, prompt, "core/exact", spec, "toy")


class Loader:
    def __init__(self, *problems, error=None):
        self.problems = problems
        self.error = error

    def load(self):
        yield from self.problems
        if self.error:
            raise self.error


def load(*loaders):
    return load_sources(
        [NamedLoader(f"toy/{i}", loader, 0.5, f"run.yaml:{i}") for i, loader in enumerate(loaders)]
    )


def complaint(*loaders):
    with pytest.raises(DataError) as caught:
        load(*loaders)
    return str(caught.value)


def test_sources_keep_order_names_and_weights():
    first, second = load(Loader(problem("a"), problem("b")), Loader(problem("c")))
    assert ([p.id for p in first.problems], first.name, first.weight) == (["a", "b"], "toy/0", 0.5)
    assert [p.id for p in second.problems] == ["c"]


def test_t42_an_id_met_twice_names_both_owners():
    message = complaint(Loader(problem("a")), Loader(problem("b"), problem("a")))
    assert "'a' is in toy/0 (data.sources[0]) and in toy/1 (data.sources[1])" in message
    assert "'a' is twice in toy/0" in complaint(Loader(problem("a"), problem("a")))


def test_t43_a_source_without_problems_is_an_error():
    message = complaint(Loader(problem("a")), Loader())
    assert "toy/1 gave no problems" in message
    assert "run.yaml:1" in message


def test_a_loader_that_gives_something_else_is_named():
    class Silent:
        def load(self):
            return None

    assert "toy/0 gave no problems" in complaint(Silent())
    with pytest.raises(PluginError) as caught:
        load(Loader(problem("a")), Loader(problem("b"), {"id": "c", "prompt": "?"}))
    assert "toy/1: its load() gave a dict, not a Problem" in str(caught.value)
    assert "run.yaml:1" in str(caught.value)


@pytest.mark.parametrize("given", [7, problem("a"), Loader(problem("a"))], ids=range(3))
def test_a_loader_whose_load_cannot_be_iterated_over_is_named(given):
    class Single:
        def load(self):
            return given

    with pytest.raises(PluginError) as caught:
        load(Loader(problem("a")), Single())
    kind = type(given).__name__
    assert f"toy/1: its load() gave a {kind}, nothing to iterate over" in str(caught.value)
    assert "run.yaml:1" in str(caught.value)


def test_a_fault_within_a_loader_keeps_its_own_traceback():
    with pytest.raises(TypeError, match="mine"):
        load(Loader(problem("a"), error=TypeError("mine")))


@pytest.mark.parametrize("stop", ["END", ("\n", ""), (7,), None])
def test_stop_strings_that_would_be_taken_letter_by_letter_or_stop_at_once_are_refused(stop):
    message = complaint(Loader(problem("a"), replace(problem("b"), stop=stop)))
    assert "toy/0: problem 'b': its stop must be a tuple of texts" in message
    assert repr(stop) in message


def test_an_id_that_is_no_text_is_refused():
    assert "toy/0: problem 7: its id must be text, not int" in complaint(Loader(problem(7)))
    message = complaint(Loader(problem("a"), problem(["b"]), problem({"c": 1})))
    assert "toy/0: problem ['b']: its id must be text, not list" in message
    assert "toy/0: problem {'c': 1}: its id must be text, not dict" in message


def test_faults_of_a_loader_say_where_it_was_asked_for_unless_they_know_better():
    assert "run.yaml:0" in complaint(Loader(error=DataError("bad row")))
    message = complaint(Loader(error=DataError("bad row", where="f.jsonl:3")))
    assert "  at f.jsonl:3\n" in message
    assert message.endswith("they are named at run.yaml:0")
    with pytest.raises(MachineError):
        load(Loader(error=MachineError("no network")))


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (problem("p", prompt=" \n"), "prompt is empty"),
        (problem("p", prompt=()), "prompt is empty"),
        (problem("p", prompt=None), "its prompt must be text or a tuple of rlvr_core.api.Message"),
        (
            problem("p", prompt=[{"role": "user", "content": "?"}]),
            "not [{'role': 'user', 'content': '?'}]",
        ),
        (problem("p", prompt="\ud800"), "surrogate"),
        (problem("p", answer={1, 2}), "must be JSON"),
        (problem("p", answer=float("nan")), "must be JSON"),
    ],
)
def test_malformed_problems_are_named(bad, says):
    message = complaint(Loader(problem("a"), bad))
    assert "problem 'p'" in message
    assert says in message


def test_many_faults_are_counted_and_the_first_ones_shown():
    message = complaint(Loader(*[problem(f"p{i}", prompt="") for i in range(40)]))
    assert message.count("prompt is empty") == 5
    assert "35 more" in message


def test_specs_are_checked_together():
    def check(problem):
        if problem.spec.get("answer") == "key":
            problem.spec["missing"]
        if "answer" not in problem.spec:
            raise DataError(f"{problem.id}: no answer")

    check_problems([problem("a", answer="4")], check)
    with pytest.raises(DataError) as caught:
        check_problems([problem("a"), problem("b", answer="4"), problem("c", answer="key")], check)
    assert [one.what for one in caught.value.complaints] == [
        "a: no answer",
        "c: its verifier's check failed: KeyError: 'missing'",
    ]


def test_faults_found_by_a_check_name_the_row(tmp_path):
    """The third line of the file is bad, and the message says so: the id alone is a hash."""
    path = tmp_path / "sums.jsonl"
    path.write_text('{"q": "1+1", "answer": "2"}\n\n{"q": "2+2"}\n')
    config = JsonLines.Config(path=str(path), verifier="core/exact", prompt="q")
    problems = list(JsonLines(config).load())

    def check(problem):
        problem.spec["answer"]

    with pytest.raises(DataError) as caught:
        check_problems(problems, check)
    assert [one.where for one in caught.value.complaints] == [f"{path}:3"]


def test_where_a_row_stands_is_no_part_of_its_problem():
    moved = replace(problem("a", x=1), where="elsewhere.jsonl:7")
    assert moved == problem("a", x=1)
    assert fingerprint([moved]) == fingerprint([problem("a", x=1)])


def test_fingerprints_follow_the_content_and_its_order():
    a, b = problem("a", x=1, y=[2]), problem("b")
    assert fingerprint([a, b]) == fingerprint([problem("a", y=[2], x=1), problem("b")])
    assert fingerprint([a, b]) != fingerprint([b, a])
    assert fingerprint([a]) != fingerprint([problem("a", x=1, y=[3])])
    found = fingerprints(load(Loader(a), Loader(b)))
    assert found["0:toy/0"] == {"problems": 1, "sha256": fingerprint([a])}
    assert list(found) == ["0:toy/0", "1:toy/1"]
