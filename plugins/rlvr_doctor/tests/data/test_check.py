"""`rlvr data check`: each kind of task set that gives its answers away fails its own check."""

from __future__ import annotations

import json
import random

import pytest

from rlvr_core.config.model import ComponentRef
from rlvr_core.testing.lab import run_rlvr
from rlvr_doctor.datacheck.blind import Tried
from rlvr_doctor.datacheck.checks import Rate, check_problems
from rlvr_doctor.datacheck.corrupt import corruptions
from rlvr_doctor.datacheck.cuts import cuts
from rlvr_doctor.datacheck.forms import Form, form_of
from rlvr_doctor.datacheck.judging import Judge
from rlvr_doctor.datacheck.sources import check_source, sources_of
from rlvr_doctor.datacheck.table import print_report

DATA = '''
import os, random, uuid

def draw(n, make):
    rng = random.Random("draw")
    for index in range(n):
        prompt, answer = make(rng, index)
        yield {"id": f"p{index}", "prompt": prompt, "answer": str(answer), "verifier": "core/exact"}

def products(n: int = 80):
    def make(rng, index):
        a, b = rng.randint(100, 999), rng.randint(100, 999)
        return f"{a} times {b}?", a * b
    return draw(n, make)

def last(n: int = 80):
    def make(rng, index):
        numbers = rng.sample(range(1000), 3)
        return f"Which of {numbers} is mine?", numbers[2] if rng.random() < 0.6 else 4000 + index
    return draw(n, make)

def most(n: int = 80):
    return draw(n, lambda rng, i: (f"Riddle {rng.random()}", "blue" if i % 3 else f"colour {i}"))

def told(n: int = 80):
    def make(rng, index):
        a, b = rng.randint(100, 999), rng.randint(100, 999)
        return f"{a} times {b}? The answer is {a * b}.", a * b
    return draw(n, make)

def copies(n: int = 60):
    return draw(n, lambda rng, i: (f"Riddle {i // 2}", rng.random()))

def ids(n: int = 30):
    for row in products(n):
        yield {**row, "id": uuid.uuid4().hex}

def order(n: int = 30):
    return sorted(products(n), key=lambda row: hash(row["id"]))

class Lax:
    """Passes whatever contains the answer or begins as it does."""

    def __init__(self, config):
        pass

    def gold(self, problem):
        return problem.spec["answer"]

    def verify(self, problem, completion):
        from rlvr_core.api import Verdict
        right = completion.text[:2] == problem.spec["answer"][:2]
        return Verdict(float(right), passed=right)

class Wrong(Lax):
    def gold(self, problem):
        return "no idea"
'''


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    text = DATA.replace("class Lax:", "from rlvr_core.api import NoConfig\n\nclass Lax:")
    text = text.replace("    def __init__", "    Config = NoConfig\n\n    def __init__", 1)
    (folder / "sets.py").write_text(text)

    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.chdir(folder)

    def check(name, *, verifier=None, per_tag=100, again=False):
        (given,) = sources_of(f"./sets.py:{name}", {})
        with Judge(ComponentRef(use=verifier) if verifier else None, workers=1) as judge:
            if again:
                report = check_source(given, judge, per_tag=per_tag)
            else:
                report = check_problems(name, given.load(), judge, per_tag=per_tag)
        faults = [*report.faults, *(fault for tag in report.tags for fault in tag.faults)]
        assert report.ok == (not faults)
        return report.data(), {fault.id for fault in faults}

    yield check
    monkeypatch.undo()


def command(name, *options, cwd):
    return run_rlvr("data", "check", name, *options, cwd=cwd)


def test_a_set_that_must_be_solved_passes(checked):
    report, faults = checked("products")
    (tag,) = report["tags"]
    assert faults == set()
    assert report["problems"] == tag["n"] == 80
    assert tag["references"] == {**tag["references"], "passed": 80, "n": 80}
    assert tag["corrupted"]["passed"] == tag["blind"]["passed"] == 0
    assert tag["corrupted"]["n"] == 80


@pytest.mark.parametrize(
    ("name", "expected", "strategy"),
    [
        ("last", {"blind"}, "third number"),
        ("most", {"blind", "shuffled"}, "most common answer 1"),
        ("told", {"blind"}, "third number"),
    ],
)
def test_an_answer_that_needs_no_question_is_found(checked, name, expected, strategy):
    report, faults = checked(name)
    (tag,) = report["tags"]
    assert faults == expected
    rate = {"last": 0.6, "most": 2 / 3}.get(name, 1.0)
    assert tag["blind"]["rate"] == pytest.approx(rate, abs=0.1)
    assert tag["blind"]["what"].startswith(strategy)


def test_ten_problems_are_too_few_to_be_sure_of(checked):
    report, faults = checked("products", per_tag=10)
    (tag,) = report["tags"]
    assert faults == set()
    assert tag["blind"]["high"] == pytest.approx(0.2775, abs=1e-4)  # Wilson: z^2 / (10 + z^2)


def test_copies_are_counted(checked):
    report, faults = checked("copies")
    assert report["duplicates"] == 30
    assert "copies" in faults


@pytest.mark.parametrize(("name", "what"), [("ids", "ids"), ("order", "ids")])
def test_what_depends_on_the_process_is_found(checked, name, what):
    report, faults = checked(name, again=True)
    assert faults == {"stable"}
    assert f"the {what} are not the same" in report["faults"][0]["text"]


def test_a_lax_verifier_passes_corrupted_references(checked):
    _, faults = checked("products", verifier="./sets.py:Lax")
    assert "corrupted" in faults


def test_references_that_do_not_pass_are_counted(checked):
    report, faults = checked("products", verifier="./sets.py:Wrong")
    (tag,) = report["tags"]
    assert "references" in faults
    assert (tag["references"]["passed"], tag["references"]["n"]) == (0, 80)


def test_a_missing_file_and_options_of_a_config_are_refused(tmp_path):
    done = command("rows.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no file rows.jsonl" in done.stderr
    done = command("run.yaml", "--with", "n=3", cwd=tmp_path)
    assert done.returncode == 2
    assert "a config has its options in it" in done.stderr


def test_a_set_that_fails_gives_its_report_and_exit_code_1(tmp_path):
    rows = [{"prompt": f"{a} is?", "answer": str(a)} for a in range(100, 140)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = ("--with", "prompt=prompt", "--with", "verifier=core/exact")
    done = command("rows.jsonl", *options, "--json", cwd=tmp_path)
    assert done.returncode == 1
    (report,) = json.loads(done.stdout)["reports"]
    assert not report["ok"]
    assert [fault["id"] for fault in report["tags"][0]["faults"]] == ["blind"]


def test_the_sources_of_a_config_are_checked(checked, tmp_path):
    rows = [{"prompt": f"{a}*{a + 7}", "answer": str(a * (a + 7))} for a in range(100, 160)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = {"path": "rows.jsonl", "prompt": "prompt", "verifier": "core/exact"}
    config = {
        "run": {"name": "x"},
        "model": {"path": "tiny"},
        "data": {"sources": [{"use": "core/jsonl", "with": options}]},
        "rewards": ["auto"],
        "train": {"steps": 1},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    done = command("run.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "60/60" in done.stdout
    assert done.stdout.splitlines()[-1] == "passes"


def test_of_several_lucky_strategies_none_counts_by_the_problems_it_was_chosen_by():
    tried = Tried()
    for index in range(40):  # each strategy is right once in twenty, at its own problems
        tried.add(index % 2, {f"s{k}": index % 20 == k for k in range(20)})
    assert tried.best()[1] == 2
    # a strategy k is right at k and k + 20, both in one half: chosen there, it fails in the other
    assert tried.cross_fitted() == 0
    steady = Tried()
    for index in range(40):
        steady.add(index % 2, {"right": index < 30, "wrong": False})
    assert steady.cross_fitted() == 30


def choice_rows(path, n, of, letter):
    """Hand-made questions with ``of`` options, of which ``letter(number)`` is the right one."""
    rows = [
        {
            "id": f"q{number}",
            "prompt": f"Which of them is number {number}?",
            "options": [f"thing {number * of + place}" for place in range(of)],
            "answer": letter(number),
        }
        for number in range(n)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def check_choice(tmp_path, of, letter, n=200):
    path = choice_rows(tmp_path / "rows.jsonl", n, of, letter)
    (source,) = sources_of(path, {"prompt": "prompt", "id": "id", "verifier": "checks/choice"})
    with Judge(source.verifier) as judge:
        return check_source(source, judge)


def test_what_any_guess_gets_of_four_options_is_no_fault(tmp_path, capsys):
    letters = random.Random(0).choices("ABCD", k=200)
    report = check_choice(tmp_path, 4, letters.__getitem__)
    (tag,) = report.tags
    assert tag.chance == tag.limit == 0.25
    assert tag.data()["limit"] == 0.25
    assert report.ok, [fault.text for fault in tag.faults]
    print_report(report)
    assert capsys.readouterr().out.split()[-1] == "passes"


def test_a_letter_that_is_right_more_often_than_by_chance_fails(tmp_path):
    letters = random.Random(0).choices("ABCD", weights=[4, 1, 1, 1], k=200)
    report = check_choice(tmp_path, 4, letters.__getitem__)
    (tag,) = report.tags
    assert {fault.id for fault in tag.faults} >= {"blind"}
    assert tag.blind.interval[0] > 0.25


def test_with_ten_options_the_limit_is_that_of_other_tasks(tmp_path):
    letters = random.Random(0).choices("ABCDEFGHIJ", k=200)
    (tag,) = check_choice(tmp_path, 10, letters.__getitem__).tags
    assert (tag.chance, tag.limit) == (pytest.approx(0.1), 0.2)
    assert not tag.faults
    constant = check_choice(
        tmp_path, 10, lambda number: "A" if number % 4 == 0 else letters[number]
    )
    assert {fault.id for fault in constant.tags[0].faults} >= {"blind"}


def test_a_rate_fails_when_it_is_high_for_sure_or_on_enough_problems():
    assert Rate(10, 50).interval == pytest.approx((0.11244, 0.33036), abs=1e-4)
    assert Rate(10, 50).exceeds(0.2)
    assert not Rate(9, 50).exceeds(0.2)
    assert not Rate(2, 6).exceeds(0.2)  # interval from 0.097
    assert Rate(5, 6).exceeds(0.2)  # from 0.436


@pytest.mark.parametrize(
    ("gold", "extracted", "answer", "other"),
    [
        ("\\boxed{12}", "12", "12", "\\boxed{x}"),
        ("So <answer> 3 </answer>", None, "3", "So <answer> x </answer>"),
        ("It is 7 now", "7", "7", "It is x now"),
        ("7", None, "7", "x"),
    ],
)
def test_the_place_of_an_answer_is_learnt_from_the_reference(gold, extracted, answer, other):
    form = form_of(gold, extracted)
    assert form.answer == answer
    assert form.write("x") == other


def test_an_object_is_one_answer():
    form = form_of('{"status": "ok", "answer": [1, 2]}', None)
    assert form.answer == {"status": "ok", "answer": [1, 2]}
    wrong = dict(corruptions(form))
    assert json.loads(wrong["answer: last entry left out"]) == {"status": "ok", "answer": [1]}


def test_corruptions_differ_from_the_reference():
    for answer in ("12", "-3.5", "cat", "a long line of words", "x = 4", 7, 2.5, True, [1]):
        form = Form("", "", answer)
        found = dict(corruptions(form))
        assert found, answer
        assert form.write(answer) not in found.values()


def test_cuts_go_by_place_alone():
    found = dict(cuts('Of 30 cats and -4 dogs, "Tom" has 12.5 or 7.'))
    assert found["first number"] == "30"
    assert found["last number"] == "7"
    assert found["smallest number"] == "-4"
    assert found["largest number"] == "30"
    assert found["number of numbers"] == "4"
    assert found["first quoted text"] == "Tom"
