"""Every policy loss against the textbook formula, token by token in plain Python, with autograd."""

import math
from dataclasses import replace

import pytest
import torch

from rlvr_core.plugins.host import load_host
from tests.support.losses.trl_bnpo import BNPO

CAP = 9
REGISTRY = load_host().registry
DEFAULTS = {  # low, high, tau or cap, as the papers have them
    "grpo": (0.2, 0.2), "dapo": (0.2, 0.28), "dr_grpo": (0.2, 0.2), "bnpo": (0.2, 0.2),
    "luspo": (0.2, 0.2), "gspo": (3e-4, 4e-4), "gmpo": (0.4, 0.4), "cispo": 5.0,
    "reinforce": 1.0, "sapo": (1.0, 1.05), "vespo": ((2.0, 3.0), (3.0, 2.0)),
}  # fmt: skip


def clip(x, low, high):
    return torch.minimum(torch.maximum(x, x.new_tensor(low)), x.new_tensor(high))


def token_loss(name, r, A, lp):
    if name in ("cispo", "reinforce"):
        return -clip(r.detach(), 0.0, DEFAULTS[name]) * A * lp
    if name == "sapo":
        tau = float(torch.tensor(DEFAULTS[name][0 if A > 0 else 1]))  # a float32 number
        return -A * 4 / tau / (1 + torch.exp(-tau * (r - 1)))
    low, high = DEFAULTS[name]
    return -torch.minimum(r * A, clip(r, 1 - low, 1 + high) * A)


def vespo_weight(batch, i, tokens):
    """w^k exp(lambda (1 - w)) of the whole row, its importance weights included."""
    logw = sum(batch.logp_BT[i, t].detach() - batch.old_logp_BT[i, t] for t in tokens)
    for t in tokens:
        d = batch.old_logp_BT[i, t] - batch.behaviour_logp_BT[i, t]
        logw = logw + torch.log(clip(torch.exp(d), 0.0, 2.0))
    k, lam = DEFAULTS["vespo"][0 if batch.advantage_B[i] >= 0 else 1]
    w = torch.exp(logw)
    return w**k * torch.exp(lam * (1 - w))


def row_losses(name, batch, i, options):
    """One loss per token of a row."""
    tokens = batch.mask_BT[i].nonzero()[:, 0].tolist()
    A = batch.advantage_B[i]
    xs = [batch.logp_BT[i, t] - batch.old_logp_BT[i, t] for t in tokens]
    mean = sum(xs) / len(xs)
    sequence = options.get("ratio", "sequence" if name == "gspo" else "token") == "sequence"
    losses = []
    for t, x in zip(tokens, xs, strict=True):
        r = torch.exp(mean if sequence else x)
        if name == "gmpo":
            low, high = DEFAULTS[name]
            cut = [clip(y, -99.0, high) if A > 0 else clip(y, -low, 99.0) for y in xs]
            loss = -A * torch.exp(sum(cut) / len(cut))
        elif name == "vespo":
            loss = -A * batch.logp_BT[i, t] * vespo_weight(batch, i, tokens)
        else:
            loss = token_loss(name, r, A, batch.logp_BT[i, t])
        d = (batch.old_logp_BT[i, t] - batch.behaviour_logp_BT[i, t]).detach()
        if name != "vespo":
            loss = loss * clip(torch.exp(d), 0.0, 2.0)
        gone = [batch.behaviour_logp_BT[i, u] - batch.logp_BT[i, u].detach() for u in tokens]
        if A < 0 and sum(gone) / len(gone) > options.get("off_policy_mask", math.inf):
            loss = loss * 0
        if options.get("top_entropy") and not batch.entropy_mask_BT[i, t]:
            loss = loss * 0
        if "beta" in options:
            d = batch.ref_logp_BT[i, t] - batch.logp_BT[i, t]
            kl = {"k1": -d, "k2": d * d / 2, "k3": torch.exp(d) - d - 1}[
                options.get("kl_estimator", "k3")
            ]
            kl = kl * r if options.get("kl_ratio_corrected") else kl
            loss = loss + options["beta"] * kl
        losses.append(loss)
    return losses


def by_loops(name, batch, options):
    rows = [row_losses(name, batch, i, options) for i in range(len(batch.mask_BT))]
    n, tokens = len(rows), sum(map(len, rows))
    if name in ("dapo", "cispo", "vespo", "reinforce", "bnpo"):
        loss = sum(sum(row) for row in rows) / tokens
    elif name == "dr_grpo":
        loss = sum(sum(row) for row in rows) / (n * CAP)
    elif name == "luspo":
        loss = sum(sum(row) for row in rows) / n
    else:
        loss = sum(sum(row) / len(row) for row in rows) / n
    if "entropy_bonus" in options:
        total = sum(batch.entropy_BT[i, t] for i, t in batch.mask_BT.nonzero().tolist())
        loss = loss - options["entropy_bonus"] * total / tokens
    return loss


CASES = [
    {},
    {"beta": 0.1},
    {"beta": 0.1, "kl_estimator": "k1"},
    {"beta": 0.1, "kl_estimator": "k2", "kl_ratio_corrected": True},
    {"beta": 0.1, "kl_ratio_corrected": True, "entropy_bonus": 0.2},
    {"top_entropy": 0.5, "beta": 0.05},
    {"ratio": "sequence"},
    {"off_policy_mask": 0.15, "beta": 0.1},
]


@pytest.mark.parametrize("options", CASES, ids=lambda case: " ".join(case) or "defaults")
@pytest.mark.parametrize("name", DEFAULTS)
def test_value_and_gradient(name, options, make_batch, count):
    cls = BNPO if name == "bnpo" else REGISTRY.find("loss", name).load()
    if not options.keys() <= cls.Config.model_fields.keys():
        assert (name in ("gmpo", "vespo"), list(options)) == (True, ["ratio"])
        return
    if name == "gmpo" and "top_entropy" in options:
        return  # its mean is over the chosen tokens: see test_losses
    batch = make_batch(6, 7, seed=3)
    if "off_policy_mask" in options:
        # so far from where it was sampled that some bad completions are left out, and not all
        batch = replace(batch, behaviour_logp_BT=batch.behaviour_logp_BT + 0.3)
        drift_BT = (batch.behaviour_logp_BT - batch.logp_BT.detach()) * batch.mask_BT
        far_B = drift_BT.sum(1) / batch.mask_BT.sum(1) > options["off_policy_mask"]
        bad_B = batch.advantage_B < 0
        assert 0 < (far_B & bad_B).sum() < bad_B.sum()
    loss = cls(cls.Config(**options))(batch, count(batch, max_completion_tokens=CAP)).loss
    expected = by_loops(name, batch, options)
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-12)
    leaves = [batch.logp_BT, batch.entropy_BT]
    for ours, theirs in zip(
        torch.autograd.grad(loss, leaves, allow_unused=True),
        torch.autograd.grad(expected, leaves, allow_unused=True),
        strict=True,
    ):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
            assert ours.abs().max() > 1e-3
