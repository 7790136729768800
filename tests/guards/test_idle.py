"""Guard ``idle``: a run that changes no weights ends with an exit code of its own."""

import json

import pytest

from rlvr_core.api import (
    Completion,
    Group,
    GroupsScored,
    Judged,
    Problem,
    StepFinished,
)
from rlvr_core.api.errors import IdleError
from rlvr_core.guards.idle import Idle

LEARNS = {"lr": 1e-6, "grad_norm": 0.5, "step_skipped": 0.0}
NOTHING = {"lr": 1e-6, "step_skipped": 0.0}


def _step(guard, step, metrics, passed=(False, False)):
    members = tuple(
        Judged(Completion((1,), (2,), (-1.0,), (True,), "", "stop", 0), {}, 0.0, one)
        for one in passed
    )
    group = Group(Problem("p", "?", "v", {}, "d"), members, 0)
    guard.on_groups(GroupsScored(step, 0, (group,)))
    guard.on_step(StepFinished(step, 0, metrics))


@pytest.mark.parametrize(
    ("metrics", "passed", "cause"),
    [
        (NOTHING, (False, False), "no completion passed"),
        (NOTHING, (True, True), "all completions passed"),
        (NOTHING, (True, False), "no group had rewards that differ"),
        (NOTHING, (None, None), "no group had rewards that differ"),
        (LEARNS | {"grad_norm": 0.0}, (True, False), "no group had rewards that differ"),
        (LEARNS | {"lr": 0.0}, (True, False), "the learning rate is 0"),
        (LEARNS | {"step_skipped": 1.0}, (True, False), "no gradient was finite"),
    ],
)
def test_idle_steps_in_a_row_end_the_run(metrics, passed, cause):
    guard = Idle(Idle.Config(max_steps=3))
    _step(guard, 0, metrics, passed)
    _step(guard, 1, metrics, passed)
    assert guard.report() == {"idle/steps": 2.0}
    with pytest.raises(IdleError, match=f"in 3 steps: {cause}") as error:
        _step(guard, 2, metrics, passed)
    assert error.value.exit_code == 6


def test_a_step_that_learns_begins_the_count_anew():
    guard = Idle(Idle.Config(max_steps=3))
    for step in range(40):
        _step(guard, step, LEARNS if step % 3 == 2 else NOTHING)
    assert guard.report() == {"idle/steps": 1.0}


def test_the_count_goes_into_a_checkpoint_and_out_of_it():
    begun, resumed = Idle(Idle.Config(max_steps=3)), Idle(Idle.Config(max_steps=3))
    for step in range(2):
        _step(begun, step, NOTHING)
    resumed.load_state_dict(json.loads(json.dumps(begun.state_dict())))
    for guard in (begun, resumed):
        with pytest.raises(IdleError, match="no completion passed"):
            _step(guard, 2, NOTHING)
