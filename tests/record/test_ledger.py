import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_core.record.ledger import FATES, Ledger
from rlvr_core.record.metrics import lookup


def test_a_step_by_hand():
    ledger = Ledger()
    ledger.draw(16)
    ledger.settle("trained", 8)
    ledger.settle("zero_variance", 4, "all_passed")
    ledger.settle("zero_variance", 2, "equal")
    ledger.settle("error", 1)
    assert ledger.in_flight == 1
    assert ledger.step_line() == {
        "ledger/drawn": 16,
        "ledger/trained": 8,
        "ledger/zero_variance": 6,
        "ledger/stale": 0,
        "ledger/too_long": 0,
        "ledger/truncated": 0,
        "ledger/unscorable": 0,
        "ledger/error": 1,
        "ledger/in_flight": 1,
        "ledger/zero_variance/all_failed": 0,
        "ledger/zero_variance/all_passed": 4,
        "ledger/zero_variance/equal": 2,
    }
    ledger.settle("stale", 1)
    line = ledger.step_line()
    assert line["ledger/drawn"] == 0
    assert line["ledger/stale"] == 1
    assert line["ledger/in_flight"] == 0


def test_what_was_never_drawn_cannot_be_settled():
    ledger = Ledger()
    ledger.draw(2)
    ledger.settle("trained", 2)
    with pytest.raises(AssertionError, match="0 in flight"):
        ledger.settle("trained", 1)
    with pytest.raises(AssertionError, match="not a fate"):
        ledger.settle("in_flight", 0)
    with pytest.raises(AssertionError):
        ledger.draw(-1)


STEPS = st.lists(
    st.tuples(st.integers(0, 9), st.lists(st.sampled_from(FATES), max_size=9)), max_size=8
)


@given(STEPS)
def test_every_step_balances_and_survives_a_resume(steps):
    ledger, resumed = Ledger(), Ledger()
    before = 0
    for drawn, fates in steps:
        resumed.load_state_dict(json.loads(json.dumps(ledger.state_dict())))
        lines = []
        for one in (ledger, resumed):
            one.draw(drawn)
            for fate in fates[: one.in_flight]:
                one.settle(fate, 1, "odd")
            lines.append(one.step_line())
        line = lines[0]
        assert lines[1] == line
        assert all(lookup(name) for name in line)
        settled = sum(line[f"ledger/{fate}"] for fate in FATES)
        assert before + drawn == settled + line["ledger/in_flight"]
        before = line["ledger/in_flight"]
