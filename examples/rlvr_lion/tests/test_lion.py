import pytest
import torch

from rlvr_core.api import TrainedParameter
from rlvr_devkit.conformance.as_tests import component_conformance
from rlvr_lion import Lion

test_lion_conforms = component_conformance("optimizer", Lion)


def test_two_steps_by_hand():
    weight = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    config = Lion.Config(betas=(0.5, 0.75), weight_decay=0.1)
    optimizer = Lion(config).build([TrainedParameter("weight", weight, False)], 0.01)
    weight.grad = torch.tensor([4.0, -8.0], dtype=torch.float64)
    optimizer.step()  # momentum 0: signs of the gradient; then a quarter of it
    assert weight.tolist() == pytest.approx([1 * 0.999 - 0.01, -2 * 0.999 + 0.01], abs=1e-12)
    assert optimizer.state[weight]["momentum"].tolist() == [1.0, -2.0]
    before = weight.tolist()
    weight.grad = torch.tensor([-0.5, 3.0], dtype=torch.float64)
    optimizer.step()  # mixes 0.25 and 0.5: both positive, against the first one's gradient
    expected = [before[0] * 0.999 - 0.01, before[1] * 0.999 - 0.01]
    assert weight.tolist() == pytest.approx(expected, abs=1e-12)
