"""The steered entropy bonus: its rule by hand, its options, and the updates it is part of."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rlvr_core.algorithm.entropy import EntropyController
from rlvr_core.algorithm.policy import EntropyControl
from rlvr_core.losses import DAPO


def test_the_weight_goes_by_each_entropy_and_counts_while_the_last_one_is_low():
    made = EntropyController(EntropyControl(target=1.0, step=0.25, min=0.125, max=0.75), 0.5)
    seen = [(made.bonus, made.coefficient)]
    for entropy in (0.9, 1.0, 1.1, float("nan"), 1.2, 1.3, 0.8):
        made.observe(entropy)
        seen.append((made.bonus, made.coefficient))
    assert seen == [
        (0.0, 0.5),  # nothing is known yet
        (0.75, 0.75),
        (0.75, 0.75),  # no further than max; at the target is low
        (0.0, 0.5),
        (0.0, 0.5),  # no number says nothing
        (0.0, 0.25),
        (0.0, 0.125),  # no further than min
        (0.375, 0.375),
    ]


def test_it_goes_on_from_its_state():
    control = EntropyControl(target=1.0, step=0.1)
    one, other = EntropyController(control, 0.0), EntropyController(control, 0.0)
    other.load_state_dict(one.state_dict())
    assert other == one
    one.observe(0.5)
    other.load_state_dict(one.state_dict())
    assert other == one
    assert other.bonus == 0.1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"entropy_control": {}}, "target"),
        ({"entropy_control": {"target": 0}}, "greater than 0"),
        ({"entropy_control": {"target": float("inf")}}, "finite"),
        ({"entropy_control": {"target": 1, "step": 0}}, "greater than 0"),
        ({"entropy_control": {"target": 1, "min": -0.1}}, "greater than or equal to 0"),
        ({"entropy_control": {"target": 1, "min": 0.5, "max": 0.5}}, r"min \(0.5\) must be below"),
        ({"entropy_control": {"target": 1, "min": 0.1}}, r"entropy_bonus \(0.0\) is where"),
        (
            {"entropy_bonus": 2.0, "entropy_control": {"target": 1}},
            r"within its min \(0.0\) and max \(1.0\)",
        ),
    ],
)
def test_impossible_values_are_refused(options, told):
    with pytest.raises(ValidationError, match=told):
        DAPO.Config(**options)
