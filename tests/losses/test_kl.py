import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlvr_core.algorithm.ratio import kl_policy_ref

logps = st.floats(-200, 0)


def t(value):
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize(
    ("kind", "expected"), [("k1", 1.0), ("k2", 0.5), ("k3", 0.36787944117144233)]
)
def test_values_by_hand(kind, expected):
    # policy -1, reference -2: d = -1
    assert kl_policy_ref(t(-1.0), t(-2.0), kind).item() == pytest.approx(expected, abs=1e-15)


@given(logps, logps, st.sampled_from(["k2", "k3"]), st.sampled_from([torch.float32, torch.float64]))
def test_t1_never_negative_and_zero_at_equality(policy, reference, kind, dtype):
    policy, reference = torch.tensor(policy, dtype=dtype), torch.tensor(reference, dtype=dtype)
    assert kl_policy_ref(policy, reference, kind) >= 0
    assert kl_policy_ref(policy, policy, kind) == 0


def test_t1_k3_is_not_negative_where_float32_cancels():
    d = torch.linspace(-1e-3, 1e-3, 100_001)
    assert (kl_policy_ref(torch.zeros_like(d), d) >= 0).all()
    assert ((d.exp() - d - 1) < 0).any(), "the naive form is: else this shows nothing"


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_t1_mean_over_policy_samples_is_the_exact_kl(kind):
    policy = t([0.6, 0.3, 0.1]).log()
    reference = t([0.2, 0.3, 0.5]).log()
    forward = (policy.exp() * (policy - reference)).sum()
    backward = (reference.exp() * (reference - policy)).sum()
    # the mean over all outcomes is exact; sampling adds nothing but noise, shown once
    mean = (policy.exp() * kl_policy_ref(policy, reference, kind)).sum()
    assert mean.item() == pytest.approx(forward.item(), abs=1e-12)
    assert abs(forward - backward) > 0.05
    draws = torch.multinomial(
        policy.exp(), 200_000, replacement=True, generator=torch.Generator().manual_seed(1)
    )
    sampled = kl_policy_ref(policy[draws], reference[draws], kind)
    error = sampled.std().item() / 200_000**0.5
    assert abs(sampled.mean().item() - forward.item()) < 4 * error


def test_t1_growth_on_both_sides():
    # policy far above the reference: linear; reversed signs gave 2685 for 7.9 nats
    assert kl_policy_ref(t(-1.93), t(-9.83)).item() == pytest.approx(6.9, abs=1e-3)
    above = [kl_policy_ref(t(0.0), t(-d)).item() for d in (10.0, 20.0, 40.0, 1000.0)]
    assert above == pytest.approx([9, 19, 39, 999], abs=1e-3)
    # far below: exponential
    assert kl_policy_ref(t(-9.83), t(-1.93)).item() == pytest.approx(2688.3, abs=0.1)


@pytest.mark.parametrize("gap", [31.0, 90.0, 1e4])
def test_k3_stays_finite_in_float32_and_still_pulls_the_policy_up(gap):
    policy = torch.tensor(-gap, requires_grad=True)
    value = kl_policy_ref(policy, torch.tensor(0.0))
    value.backward()
    assert value.isfinite()
    assert policy.grad.isfinite()
    assert policy.grad < 0
