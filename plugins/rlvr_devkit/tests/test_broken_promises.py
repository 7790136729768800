"""Each check finds what it is for: what ``rlvr new`` writes, broken at one place."""

from __future__ import annotations

import sys
import types

import pytest

from rlvr_devkit.conformance.checks import CHECKS
from rlvr_devkit.conformance.subject import results
from rlvr_devkit.scaffold.names import check_name
from rlvr_devkit.scaffold.package import render
from tests.support.tables import table

NAMES = check_name("broken")
FUNCTIONS = {"command": "best"}

BROKEN = table(__file__, "broken")


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
