"""What the command line says of wrong inputs: what, where and what to do; and what it leaves."""

import pytest

from tests.support.wrong_inputs.harness import PARTS, cases, measure


@pytest.mark.slow
@pytest.mark.parametrize("table", ["first.yaml", "second.yaml"])
def test_wrong_inputs_are_answered_with_what_where_and_what_to_do(table, tmp_path_factory):
    chosen = cases(table)
    outcomes = measure(chosen, tmp_path_factory.mktemp("w"))
    found = {
        one.name: (sorted(set(PARTS) - set(one.parts)), list(one.faults), one.text)
        for one in outcomes
    }
    expected = {case["name"]: sorted(case.get("lacks", ())) for case in chosen}
    wrong = {
        name: told
        for name, told in found.items()
        if told[1] or told[0] != expected[name]  # what is said better needs no 'lacks' any more
    }
    assert not wrong, "\n".join(f"{name}: {told}" for name, told in wrong.items())
