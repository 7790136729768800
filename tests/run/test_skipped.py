"""What becomes of a run whose gradients are not finite (T4)."""

from types import SimpleNamespace

import pytest

from rlvr_core.api import RunError
from rlvr_core.config.model import TrainSection
from rlvr_core.run.session import Session
from rlvr_core.step.optim import Update
from rlvr_core.step.step import StepReport

GOOD = Update(grad_norm=1.0, applied=True, calibrating=False)
BAD = Update(grad_norm=float("nan"), applied=False, calibrating=False)
SCALING = Update(grad_norm=float("inf"), applied=False, calibrating=True)


def counted(*steps, most=2):
    """What a session counts over steps of these updates, and what its lines say."""
    session = SimpleNamespace(
        config=SimpleNamespace(train=TrainSection(steps=9, max_nonfinite_steps=most)),
        plan=SimpleNamespace(moving_weights=lambda step: {}),
        trainer=SimpleNamespace(optimizer=SimpleNamespace(learning_rate=lambda step: 1e-6)),
        skipped=0,
        step=0,
    )
    told = []
    for updates in steps:
        line = Session._applied(session, StepReport(list(updates), {}, [], []))
        told.append((session.skipped, line["step_skipped"]))
        session.step += 1
    return told


def test_t4_a_step_counts_as_skipped_when_none_of_its_updates_was_applied():
    steps = [[BAD], [BAD] * 8, [GOOD], [BAD, GOOD, BAD, BAD, BAD], [BAD, BAD], []]
    assert counted(*steps) == [(1, 1), (2, 1), (0, 0), (0, 0), (1, 1), (1, 0)]


def test_t4_a_scale_that_is_still_being_found_is_no_fault():
    assert counted([SCALING], [SCALING, SCALING], [BAD]) == [(0, 1), (0, 1), (1, 1)]


def test_t4_more_steps_in_a_row_than_allowed_end_the_run():
    with pytest.raises(RunError, match="not finite in 3 steps in a row") as error:
        counted([GOOD], [BAD] * 4, [BAD], [BAD], [GOOD])
    assert error.value.complaints[0].where == "step 4"
