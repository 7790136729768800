"""What a plugin's loss gives is looked at before it is trained on."""

import pytest
import torch

from rlvr_core.api import LossBatch, LossOutput, PluginError
from rlvr_core.step.objective import LossTerm

LOGP = torch.zeros(2, 3, requires_grad=True)
ONE = torch.tensor(1.0)


class Gives:
    def __init__(self, output):
        self.output = output

    def __call__(self, batch, normalizer):
        return self.output


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (LOGP.sum(), "gave Tensor, not a LossOutput"),
        (LossOutput(LOGP.sum(1), {}, {}), "must give loss as a scalar, not of shape (2,)"),
        (LossOutput(0.5, {}, {}), "must give loss as a tensor, not float"),
        (LossOutput(ONE, {}, {}), "gave a loss without a gradient"),
        (LossOutput(LOGP.sum(), None, {}), "must give sums as a mapping by metric, not NoneType"),
        (LossOutput(LOGP.sum(), {}, [ONE]), "must give maxima as a mapping by metric, not list"),
        (LossOutput(LOGP.sum(), {"a": ONE}, {}), "sums['a'] as a pair"),
        (LossOutput(LOGP.sum(), {"a": (ONE, 2)}, {}), "must give sums['a'][1] as a tensor"),
        (LossOutput(LOGP.sum(), {}, {"b": LOGP}), "maxima['b'] as a scalar, not of shape (2, 3)"),
    ],
)
def test_a_loss_that_gives_something_else_is_named(output, said):
    with pytest.raises(PluginError, match=":Gives ") as caught:
        LossTerm("mine", Gives(output)).of(None, None)
    assert said in str(caught.value)
    assert f"{__file__}:" in str(caught.value)


def test_a_constant_0_of_rows_that_a_loss_learns_nothing_from_is_taken():
    logp_BT = torch.tensor([[-1.0, -torch.inf]], requires_grad=True)
    mask_BT = torch.tensor([[True, False]])  # a masked position may hold anything
    batch = LossBatch(logp_BT, logp_BT, logp_BT, None, mask_BT, torch.ones(1))
    output = LossTerm("mine", Gives(LossOutput(torch.zeros(()), {}, {}))).of(batch, None)
    output.loss.backward()
    assert output.loss == 0
    assert torch.equal(logp_BT.grad, torch.zeros(1, 2))
    with torch.no_grad():
        given = LossOutput(torch.zeros(()), {}, {})
        assert LossTerm("mine", Gives(given)).of(batch, None) is given
