import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from rlvr_algos.distillation.gather_logits import gather_logits, top_logprobs
from rlvr_algos.distillation.losses import GKD, OPSD, jsd_over_top, kl_over_top
from rlvr_core.api import LossBatch, Normalizer


def logs(*p):
    return torch.tensor(p, dtype=torch.float64).log()


def test_kl_by_hand():
    # q = .6 .2 over two of the tokens becomes .75 .25; p stays as it is
    expected = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.1)
    assert kl_over_top(logs(0.6, 0.2), logs(0.5, 0.1)).item() == pytest.approx(expected)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_jsd_by_hand(alpha):
    q, p = (0.6, 0.2), (0.5, 0.1)
    expected = 0.0
    for a, b in zip(q, p, strict=True):
        m = alpha * a + (1 - alpha) * b
        expected += alpha * a * math.log(a / m) + (1 - alpha) * b * math.log(b / m)
    assert jsd_over_top(logs(*q), logs(*p), alpha).item() == pytest.approx(expected)


def test_jsd_is_never_negative_and_0_at_equality():
    torch.manual_seed(0)
    q, p = (torch.randn(1000, 9, dtype=torch.float64).log_softmax(-1)[:, :5] for _ in range(2))
    assert (jsd_over_top(q, p, 0.9) > 0).all()
    assert jsd_over_top(q, q, 0.9).abs().max() < 1e-15


@pytest.mark.parametrize("divergence", [kl_over_top, partial(jsd_over_top, alpha=0.9)])
def test_tokens_that_neither_can_give_in_float32_add_nothing(divergence):
    """At a low temperature most of a teacher's best tokens are below exp(-104), which is 0."""
    teacher = torch.tensor([-0.5, -1.0, -120.0, -1e4])
    student = torch.tensor([-0.75, -0.7, -130.0, -1e4], requires_grad=True)
    loss = divergence(teacher, student)
    (grad,) = torch.autograd.grad(loss, student)
    assert loss.item() == pytest.approx(divergence(teacher[:2], student[:2]).item(), abs=1e-7)
    assert grad[:2].abs().min() > 1e-3
    assert grad[2:].tolist() == [0, 0]


@pytest.mark.parametrize("divergence", ["jsd", "kl"])
def test_split_mask_and_impossible_tokens(divergence):
    torch.manual_seed(0)
    logp = torch.zeros(4, 5)
    teacher = torch.randn(4, 5, 3, dtype=torch.float64).log_softmax(-1)
    teacher[0, 0, 2] = -torch.inf
    student = torch.randn(4, 5, 3, dtype=torch.float64).log_softmax(-1)
    mask = torch.arange(5) < torch.tensor([5, 2, 3, 1])[:, None]
    teacher[~mask], student[~mask] = torch.nan, torch.nan
    student.requires_grad_()
    batch = LossBatch(
        logp, logp, logp, None, mask, logp[:, 0], teacher_logp_BTK=teacher, student_logp_BTK=student
    )
    step = Normalizer(rows=4, tokens=11, max_completion_tokens=5)
    loss = GKD(GKD.Config(teacher="x", divergence=divergence))
    whole = loss(batch, step).loss
    (grad,) = torch.autograd.grad(whole, student)
    parts = 0
    for rows in torch.arange(4).split([1, 3]):
        names = ("logp_BT", "old_logp_BT", "behaviour_logp_BT", "mask_BT", "advantage_B")
        names += ("teacher_logp_BTK", "student_logp_BTK")
        part = replace(batch, **{name: getattr(batch, name)[rows] for name in names})
        parts = parts + loss(part, step).loss
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)
    assert whole.isfinite()
    assert grad[mask].isfinite().all()
    one = OPSD(OPSD.Config(prompt="{prompt}", divergence=divergence))
    assert one(batch, step).loss == whole


def test_without_a_teacher_it_says_so():
    logp = torch.zeros(1, 1)
    batch = LossBatch(logp, logp, logp, None, logp.bool(), logp[0])
    with pytest.raises(ValueError, match="teacher"):
        GKD(GKD.Config(teacher="x"))(batch, Normalizer(1, 1, 1))


@pytest.mark.parametrize("chunk", [None, 100])
@pytest.mark.parametrize("bias", [False, True])
def test_logits_of_chosen_tokens_are_autograds(chunk, bias, monkeypatch):
    if chunk:
        monkeypatch.setattr("rlvr_algos.distillation.gather_logits._CHUNK_BYTES", chunk)
    torch.manual_seed(0)
    hidden = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 4, dtype=torch.float64, requires_grad=True)
    bias_V = torch.randn(11, dtype=torch.float64, requires_grad=True) if bias else None
    ids = torch.randint(11, (7, 3))
    ids[0] = 5  # one row asks for a token three times
    upstream = torch.randn(7, 3, dtype=torch.float64)
    leaves = [hidden, weight, *([bias_V] if bias else [])]
    ours = gather_logits(hidden, weight, ids, bias_V)
    plain = torch.nn.functional.linear(hidden, weight, bias_V).gather(1, ids)
    torch.testing.assert_close(ours, plain)
    for a, b in zip(
        torch.autograd.grad((ours * upstream).sum(), leaves),
        torch.autograd.grad((plain * upstream).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("chunk", [None, 100])
def test_top_logprobs_are_those_of_the_whole_distribution(chunk, monkeypatch):
    if chunk:
        monkeypatch.setattr("rlvr_algos.distillation.gather_logits._CHUNK_BYTES", chunk)
    torch.manual_seed(0)
    hidden, weight = torch.randn(7, 4).double(), torch.randn(11, 4).double()
    ids, logp = top_logprobs(hidden, weight, 3, 9, 0.7)
    whole = ((hidden @ weight.T) / 0.7).log_softmax(-1)
    best = whole[:, :9].topk(3)
    assert torch.equal(ids, best.indices)
    torch.testing.assert_close(logp, best.values)
