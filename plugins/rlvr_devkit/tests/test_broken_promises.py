"""Each check finds what it is for: what ``rlvr new`` writes, broken at one place."""

from __future__ import annotations

import sys
import types

import pytest

from rlvr_devkit.conformance.checks import CHECKS
from rlvr_devkit.conformance.subject import results
from rlvr_devkit.scaffold.names import check_name
from rlvr_devkit.scaffold.package import render

NAMES = check_name("broken")
FUNCTIONS = {"command": "best"}

BROKEN = [
    # kind, check that must fail, what is replaced, by what, what the check says
    (
        "dataset",
        "repeats",
        "for number in range(self.limit**2):",
        "for number in __import__('random').sample(range(100), 100):",
        "other problems, or another order",
    ),
    ("dataset", "ids", '_{a}_{b}"', '_{a}"', "two problems have the id"),
    ("dataset", "judged", "str(a + b)", "a + b", "needs text in field 'answer'"),
    ("dataset", "problems", 'f"{a} + {b} = "', '""', "has an empty prompt"),
    ("dataset", "protocol", "def load(", "def read(", "has no load: see rlvr_core.api.Datas"),
    ("verifier", "right-and-wrong", "passed=apart == 0", "passed=True", "must fail, got"),
    ("verifier", "gold", 'return str(problem.spec["answer"])', 'return "none"', "gold 'none' got"),
    ("verifier", "junk", " or len(found[-1]) > 18", "", "it raised ValueError"),
    ("loss", "adds-up", "/ normalizer.tokens", "/ batch.mask_BT.sum()", "counts of the Normalizer"),
    ("loss", "adds-up", " * normalizer.world_size", "", "multiply by normalizer.world_size"),
    ("loss", "gradient", ".masked_fill(~batch.mask_BT, 0.0)", "", "outside mask_BT"),
    ("advantage", "fit", " & step.scorable_N", "", "leave NaN rewards out"),
    (
        "sampler",
        "draws",
        "self.problems[place % len(self.problems)]",
        "__import__('random').choice(self.problems)",
        "two copies draw different problems",
    ),
    (
        "sampler",
        "resumes",
        "for place in range(self.drawn, self.drawn + n_problems):",
        "self.at = getattr(self, 'at', 0) + n_problems\n"
        "        for place in range(self.at - n_problems, self.at):",
        "after a resume step 3 draws",
    ),
    ("launcher", "plan", '{"command": command}', '{"command": {*command}}', "is no JSON"),
    ("launcher", "plan", "lines = (f", "lines = () and (f", "say nothing to people"),
    ("eval_task", "frozen", "n = 1 ", "n = 4 ", "at temperature 0 all 4 answers"),
    ("eval_task", "score", "sum(known) / len(known)", "0.5", "right and wrong answers both"),
    ("engine", "answers", "(-math.log(size),)", "(math.log(size),)", "finite and at most 0"),
    ("engine", "answers", "self.version = version", "pass", "with version 0, not 3"),
    ("engine", "answers", "in request.seeds", "in request.seeds[:1]", "1 generations for 2 seeds"),
    (
        "environment",
        "repeats",
        "game.guesses += 1",
        "self.n = game.guesses = getattr(self, 'n', 0) + 1",
        "played again with the same seed",
    ),
    ("environment", "junk", "found[0][:9]", "found[0]", "answer the model instead"),
    ("environment", "repeats", '"It is 8.", "7"]', '"It is 8.", "6"]', "is not done"),
    ("guard", "quiet", "mean > self", "mean < self", "a run in which nothing is wrong"),
    ("guard", "run-error", "max(1, len(lengths))", "len(lengths)", "raises ZeroDivisionError"),
    ("guard", "quiet", '{"over": self.over}', '{"over": {self.over}}', "state_dict is no JSON"),
    ("tool_format", "plain", "spoken(text)", "text", "there is no call in it"),
    ("tool_format", "round-trip", "json.dumps(dict(call.arguments))", "dict(call.arguments)",
     "is written as"),
    ("optimizer", "descends", "momentum=self.momentum", "maximize=True", "not follow -gradient"),
    ("optimizer", "descends", "SGD(tensors, ", "SGD(tensors[:1], ", "not follow -gradient"),
    ("schedule", "share", "return 1 - (1", "return self.floor + (1", "begin at 1"),
    ("schedule", "share", "(1 - self.floor)", "(2 - self.floor)", "outside [0, 1]"),
    ("tracker", "run", "if name in values", "if name", "it raised KeyError"),
    ("tracker", "run", "{values[name]:.4g}", "{round(values[name])}", "it raised ValueError"),
    ("tracker", "options", '"""What to write; a metric that a step does not have is left out."""',
     "", "write a docstring under metrics"),
    ("command", "help", 'help="Which metric.", ', "", "write help= for --metric"),
    ("command", "help", "@click.command()\n", "", "decorate it with @click.command()"),
]  # fmt: skip


def source_of(kind):
    return render(kind, NAMES)[f"{NAMES.module}.py"]


@pytest.fixture
def broken(monkeypatch):
    """What is broken in the component of a source, by check."""

    def run(kind, source, check):
        module = types.ModuleType(NAMES.module)
        monkeypatch.setitem(sys.modules, NAMES.module, module)  # pickling looks classes up there
        exec(compile(source, f"{NAMES.module}.py", "exec"), vars(module))
        made = vars(module)[FUNCTIONS.get(kind, "Broken")]
        (one,) = [one for one in CHECKS[kind] if one.id == check]
        return {r.check.id: r.detail for r in results(kind, made, [one]) if r.status == "broken"}

    return run


@pytest.mark.parametrize(
    ("kind", "check", "old", "new", "says"),
    BROKEN,
    ids=lambda value: value if isinstance(value, str) and len(value) < 16 else "",
)
def test_a_check_says_what_is_broken(kind, check, old, new, says, broken):
    source = source_of(kind)
    assert old in source
    found = broken(kind, source.replace(old, new), check)
    assert says in found.get(check, "nothing is broken")
