"""When slope and k3 of log-probs are beyond their bands, by hand."""

import math

import pytest

from rlvr_core.builtin.invariants.differences import Fit


@pytest.mark.parametrize(
    ("slope", "error", "deciding", "k3", "k3_error", "beyond"),
    [
        (1.0, 0.0, 100, 0.0, 0.0, False),
        # .02 of the band and 5 x .01: .07 is the edge, either way
        (1.0699, 0.01, 24, 0.0, 0.0, False),
        (1.0701, 0.01, 24, 0.0, 0.0, True),
        (0.9299, 0.01, 24, 0.0, 0.0, True),
        (1.5, 0.01, 23.9, 0.0, 0.0, False),
        (math.nan, math.nan, 0.0, 0.0, 0.0, False),
        # k3 of .001 and 5 x .0002: .002 is the edge, however few tokens decide the slope
        (1.0, 0.0, 0.0, 0.00199, 0.0002, False),
        (1.0, 0.0, 0.0, 0.00201, 0.0002, True),
        (math.nan, math.nan, 0.0, 0.00201, 0.0002, True),
    ],
)
def test_bands_and_five_standard_errors(slope, error, deciding, k3, k3_error, beyond):
    fit = Fit(slope, error, deciding, 0.0, 0.0, k3, k3_error, 1000)
    assert fit.beyond(0.02, 0.001) is beyond
