import math

import pytest
import torch
from pydantic import ValidationError

from rlvr_core.algorithm.ratio import ImportanceCorrection, importance_weight
from rlvr_core.algorithm.reduce import Tally, finish

D = torch.tensor([[0.5, 0, 2, 0], [0.1, 0.1, 0, -0.1]], dtype=torch.float64)
E = math.exp


def weigh(d, mask=None, **options):
    mask = torch.ones_like(d, dtype=torch.bool) if mask is None else mask
    tally = Tally(mask)
    weight = importance_weight(d, torch.zeros_like(d), mask, ImportanceCorrection(**options), tally)
    sums = {k: (a.item(), b.item()) for k, (a, b) in tally.sums.items()}
    return weight, finish(sums, {k: v.item() for k, v in tally.maxima.items()})


@pytest.mark.parametrize(
    ("mode", "rows"),
    [
        ("token_truncate", [[E(0.5), 1, 3, 1], [E(0.1), E(0.1), 1, E(-0.1)]]),
        ("token_mask", [[E(0.5), 1, 0, 1], [E(0.1), E(0.1), 1, E(-0.1)]]),
        ("sequence_truncate", [[3], [E(0.1)]]),
        ("sequence_mask", [[0], [E(0.1)]]),
        ("sequence_geo", [[E(0.625)], [E(0.025)]]),
    ],
)
def test_modes_by_hand(mode, rows):
    weight, _ = weigh(D, mode=mode, cap=3.0)
    torch.testing.assert_close(weight, torch.tensor(rows, dtype=torch.float64))


def test_masks_drop_below_the_floor_too():
    weight, metrics = weigh(D, mode="token_mask", cap=3.0, floor=0.95)
    assert weight[1, 3] == 0
    assert metrics["mismatch/truncated"] == 2 / 8


def test_default_is_token_truncation_at_2():
    assert weigh(D)[0].max() == 2.0


def test_off_measures_but_does_not_weigh():
    weight, metrics = weigh(D, mode="off")
    assert weight is None
    assert set(metrics) == {"mismatch/abs_mean", "mismatch/abs_max", "mismatch/k3"}


def test_metrics_by_hand():
    _, metrics = weigh(D, mode="token_truncate", cap=3.0)
    assert metrics["mismatch/abs_mean"] == pytest.approx(2.8 / 8)
    assert metrics["mismatch/abs_max"] == 2.0
    assert metrics["mismatch/k3"] == pytest.approx(sum(E(d) - d - 1 for d in D.flatten()) / 8)
    assert metrics["mismatch/truncated"] == 1 / 8
    weights = [E(0.5), 1, 3, 1, E(0.1), E(0.1), 1, E(-0.1)]
    ess = sum(weights) ** 2 / (8 * sum(w * w for w in weights))
    assert metrics["mismatch/ess"] == pytest.approx(ess)
    assert metrics["mismatch/weight"] == pytest.approx(sum(weights) / 8)


def test_masked_positions_count_nowhere_whatever_they_hold():
    mask = torch.tensor([[True, True, False], [False, False, False]])
    d = torch.tensor([[0.5, 0.0, math.nan], [math.inf, -math.inf, math.nan]])
    for mode in ("token_truncate", "sequence_truncate", "sequence_mask", "sequence_geo"):
        weight, metrics = weigh(d, mask, mode=mode)
        assert weight.isfinite().all()
        assert metrics["mismatch/abs_mean"] == 0.25
        assert all(math.isfinite(value) for value in metrics.values())


def test_all_weights_dropped_is_an_effective_size_of_0():
    _, metrics = weigh(torch.full((1, 2), 5.0), mode="token_mask")
    assert metrics["mismatch/ess"] == 0


def test_huge_gap_is_capped():
    weight, metrics = weigh(torch.tensor([[500.0, -500.0]]))
    assert weight.tolist() == [[2.0, 0.0]]
    assert math.isfinite(metrics["mismatch/k3"])


def test_truncation_lifts_to_the_floor():
    weight, metrics = weigh(D, mode="token_truncate", cap=3.0, floor=0.95)
    rows = [[E(0.5), 1, 3, 1], [E(0.1), E(0.1), 1, 0.95]]
    torch.testing.assert_close(weight, torch.tensor(rows, dtype=torch.float64))
    assert metrics["mismatch/truncated"] == 2 / 8
    weight, _ = weigh(-D, mode="sequence_truncate", cap=3.0, floor=0.2)
    torch.testing.assert_close(weight, torch.tensor([[0.2], [E(-0.1)]], dtype=torch.float64))


def test_a_floor_that_nothing_uses_is_refused():
    with pytest.raises(ValidationError, match="floor has no effect"):
        ImportanceCorrection(mode="off", floor=0.5)
