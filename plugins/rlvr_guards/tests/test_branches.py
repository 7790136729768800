"""The guards of a step's formulas on conversations with branches."""

from importlib.util import find_spec

import pytest

from rlvr_core.guards.parity import Parity
from rlvr_core.guards.tokens import Tokens
from rlvr_core.guards.updates import Updates
from rlvr_core.losses import DAPO, GRPO, GSPO, DrGRPO
from rlvr_core.step.objective import LossTerm
from rlvr_guards.advantages import Advantages
from rlvr_guards.loss import LossValues
from rlvr_guards.optimizer import OptimizerUpdates
from tests.support.guards.branches import branched_steps
from tests.support.guards.stepping import trainer_with
from tests.support.train.small import estimator_for

needs_algos = pytest.mark.skipif(find_spec("rlvr_algos") is None, reason="comes with rlvr-algos")
GUARDS = (Parity, Tokens, Advantages, LossValues, Updates, OptimizerUpdates)


@pytest.mark.parametrize(
    ("loss", "more"),
    [
        (GRPO(GRPO.Config(beta=0.05)), {"reference": "frozen", "mini_batches": 2}),
        (GSPO(GSPO.Config()), {"tokens_per_micro_batch": 40}),
        (DrGRPO(DrGRPO.Config()), {"num_iterations": 2}),
    ],
)
def test_healthy_steps_with_branches_are_quiet(loss, more):
    lines = branched_steps(trainer_with(loss, **more), GUARDS)
    assert all(line["tokens/missing"] == 0 for line in lines)
    assert all(line["advantages/error"] < 1e-6 for line in lines)
    # 4 groups of 4 conversations, of which those whose rewards differ are all trained
    assert [line["rows"] for line in lines] == [16]
    assert max(line["loss/error"] for line in lines) < 1


@pytest.mark.parametrize("per_token", [False, pytest.param(True, marks=needs_algos)])
def test_healthy_token_advantages_with_branches_are_quiet(per_token):
    loss = DAPO(DAPO.Config())
    name = "reinforce_plus_plus" if per_token else "rloo"
    options = {"beta": 0.0} if per_token else {}
    made = estimator_for([LossTerm("l", loss)], name, **options)
    lines = branched_steps(trainer_with(loss, estimator=made), GUARDS)
    assert all(line.get("advantages/error", 0.0) < 1e-4 for line in lines)
