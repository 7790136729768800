"""Guard ``core/collapse``: what it takes for a collapse, by numbers of real ones."""

import json

import pytest

from rlvr_core.api import RunError, StepFinished
from rlvr_core.builtin.guards.collapse import Collapse

FINE = {
    "reward/mean": 0.5,
    "groups/drawn": 10.0,
    "groups/none_passed": 2.0,
    "truncated_rate": 0.1,
    "entropy/mean": 0.3,
}


def watch(*steps, **options):
    guard = Collapse(Collapse.Config(window=2, **options))
    for step, metrics in enumerate(steps):
        guard.on_step(StepFinished(step, step, metrics))
    return guard


def test_t5_a_reward_that_falls_from_its_best_stops_the_run():
    fall = [{"reward/mean": value} for value in (0.5, 0.89, 0.89, 0.6, 0.4, 0.3)]
    # averages of two: .695, .89, .745, .5 keeps 56%, .35 keeps 39%
    watch(*fall[:5])
    with pytest.raises(RunError, match=r"step 6, .*from 0.89 to 0.35: 61% of it is lost") as error:
        watch(*fall)
    assert "around step 3" in str(error.value)
    watch(*fall, max_drop=0.7)
    watch(*fall, max_drop=None)


@pytest.mark.parametrize(
    ("metric", "value", "told"),
    [
        ("groups/none_passed", 8.0, "in 80% of the groups, above max_all_failed = 70%"),
        ("truncated_rate", 1.0, "100% of the completions are cut off"),
        ("entropy/mean", 0.008, "entropy/mean is 0.008 nats, below min_entropy = 0.01"),
    ],
)
def test_t5_a_bound_counts_from_when_it_was_kept(metric, value, told):
    broken = FINE | {metric: value}
    watch(*[broken] * 20)  # it never was better
    watch(FINE, FINE, broken)  # one step is no window
    with pytest.raises(RunError, match=told):
        watch(broken, broken, FINE, FINE, broken, broken)


def test_losses_without_entropy_and_steps_without_groups_are_no_collapse():
    watch(*[{"reward/mean": 0.0}] * 5, *[{}] * 5, *[{"groups/drawn": 0.0}] * 5)


def test_what_it_remembers_goes_into_a_checkpoint_and_out_of_it():
    broken = FINE | {"truncated_rate": 1.0}
    one = watch(FINE, FINE, broken)
    other = watch()
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    for guard in (one, other):
        with pytest.raises(RunError, match="cut off"):
            guard.on_step(StepFinished(3, 3, broken))
