"""Mutants: what is changed of a function, and that it takes the place of the function."""

import ast
import json
import random
import sys
import threading

import pytest
import torch
from chaos import process
from chaos.mutants import GROUNDS, ROOT, _mutated, _sites, cover, few, mutants
from chaos.registry import Patch

from rlvr_core.algorithm import ratio
from rlvr_core.builtin.samplers.curriculum import Curriculum
from rlvr_core.run import checkpointing


def changes(text):
    """All mutants of a function, as text, in the order of its nodes."""
    function = ast.parse(text).body[0]
    made = [
        _mutated("x.py", "f", function, place, line, random.Random(0))
        for place, line in _sites(function)
    ]
    return [one.now for one in made]


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("return a + b", ["return a - b"]),
        ("return a <= b", ["return a < b"]),
        ("return x.clamp(a)", ["return x"]),
        ("return min(a, b)", ["return max(a, b)"]),
        ("return f(a, k=b)", ["return f(a)"]),
        ("return not a", ["return a"]),
        ("a.b = c", ["pass"]),
        ("return 3", ["return 4"]),
        ("return True", ["return False"]),
        ("if a:\n  raise E(b + c)", []),  # refusals are left alone
        ("return '%s' % a", []),
    ],
)
def test_changes_by_hand(statement, wanted):
    body = statement.replace("\n", "\n ")
    assert changes(f"def f(a, b, x=1):\n {body}") == wanted


def test_a_mutant_takes_the_place_of_its_function(tmp_path):
    path = "algorithm/ratio.py"
    lines = [(path, number) for number in range(1, 400)]
    made = [one for one, _ in mutants({"base": lines}, 0, each=99) if one.function == "k3"]
    wrong = {one.now: one for one in made}["return grown - bounded - grown * (d - bounded)"]
    original = ratio.k3.__code__
    far = torch.tensor(40.0)
    try:
        wrong.fault("base").install(Patch(tmp_path))
        assert ratio.k3(far) < 0
    finally:
        ratio.k3.__code__ = original
    assert ratio.k3(far) > 0
    assert (ROOT / path).exists()


def test_few_shapes_that_come_by_all_lines():
    one, two, three = ([("a.py", n) for n in some] for some in ((1, 2, 3, 4), (3, 4, 5, 6), (5, 6)))
    assert set(few({"one": one, "two": two, "three": three}, least=1)) == {"one", "two"}


def test_a_mutant_without_the_call_of_super(tmp_path):
    """It keeps the names from around it, so that it can take the place of the function."""
    path = "builtin/samplers/curriculum.py"
    lines = [(path, number) for number in range(1, 400)]
    made = [one for one, _ in mutants({"base": lines}, 0, each=99)]
    (without,) = [one for one in made if one.was == "super().__init__(config)"]
    original = Curriculum.__init__.__code__
    try:
        without.fault("base").install(Patch(tmp_path))
        made = Curriculum(Curriculum.Config(order="x"))
        assert not hasattr(made, "traits")
    finally:
        Curriculum.__init__.__code__ = original
    assert hasattr(Curriculum(Curriculum.Config(order="x")), "traits")


def test_lines_of_a_ground(tmp_path, monkeypatch):
    """Those that saving and loading come by, and those of the second part alone."""
    ground = GROUNDS["resume"]
    monkeypatch.chdir(tmp_path)
    command = process.command
    monkeypatch.setattr(process, "command", lambda *words: ratio.k3(torch.tensor(0.1)) and 0)
    before = sys.gettrace(), threading.gettrace()
    try:
        cover("base", ground).install(Patch(tmp_path))
        process.command("first")
        assert not (tmp_path / "lines").exists()  # a step is no part of it
        process.command("second")
        assert not (tmp_path / "lines").exists()  # it was come by before
        checkpointing._check_restored("part", {}, {})
    finally:
        sys.settrace(before[0])
        threading.settrace(before[1])
        process.command = command
    found = {json.loads(line)[0] for line in (tmp_path / "lines").read_text().splitlines()}
    assert found == {"run/checkpointing.py"}
