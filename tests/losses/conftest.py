"""A batch with pinned numbers, and the way a step sums its micro-batches."""

from dataclasses import fields, replace

import pytest
import torch

from rlvr_core.api import LossBatch, Normalizer

LENGTHS = (6, 3, 4, 1)


def _fixture():
    torch.manual_seed(0)
    shape = (4, 6)
    lp = -2 * torch.rand(shape, dtype=torch.float64) - 0.1
    old = lp + 0.4 * torch.randn(shape, dtype=torch.float64)
    ref = lp + 0.3 * torch.randn(shape, dtype=torch.float64)
    mask = torch.arange(6) < torch.tensor(LENGTHS)[:, None]
    advantage = torch.tensor([1, -0.5, 0.25, -1.5], dtype=torch.float64)
    return LossBatch(lp.requires_grad_(), old, old, ref, mask, advantage)


@pytest.fixture
def batch():
    return _fixture()


@pytest.fixture
def normalizer():
    return Normalizer(rows=4, tokens=14, max_completion_tokens=6)


@pytest.fixture
def make_batch():
    """Random rows in float64 with everything a loss can use; different for each seed."""

    def make(rows, tokens, seed=0):
        draw = torch.Generator().manual_seed(seed)

        def normal(scale):
            return scale * torch.randn(rows, tokens, dtype=torch.float64, generator=draw)

        lp = -2 * torch.rand(rows, tokens, dtype=torch.float64, generator=draw) - 0.1
        old = lp + normal(0.4)
        lengths = torch.randint(1, tokens + 1, (rows, 1), generator=draw)
        return LossBatch(
            logp_BT=lp.requires_grad_(),
            old_logp_BT=old,
            behaviour_logp_BT=old + normal(0.5),
            ref_logp_BT=lp.detach() + normal(0.3),
            mask_BT=torch.arange(tokens) < lengths,
            advantage_B=torch.randn(rows, dtype=torch.float64, generator=draw),
            entropy_BT=normal(1.0).square().requires_grad_(),
            entropy_mask_BT=(torch.arange(tokens) < lengths) & (normal(1.0) > 0),
            teacher_logp_BTK=torch.stack([normal(1.0) for _ in range(4)], -1).log_softmax(-1),
            student_logp_BTK=torch.stack([normal(1.0) for _ in range(4)], -1).log_softmax(-1),
            group_B=torch.arange(rows) // 2,
        )

    return make


@pytest.fixture
def rows_of():
    """Some rows of a batch, with a graph to the whole."""

    def rows(batch, chosen):
        parts = {f.name: getattr(batch, f.name) for f in fields(batch)}
        return replace(
            batch, **{name: value[chosen] for name, value in parts.items() if value is not None}
        )

    return rows


@pytest.fixture
def count():
    """The denominators of a batch that is a whole step."""

    def normalizer(batch, world_size=1, max_completion_tokens=None):
        return Normalizer(
            rows=int(batch.mask_BT.any(dim=1).sum()),
            tokens=int(batch.mask_BT.sum()),
            max_completion_tokens=max_completion_tokens or batch.mask_BT.shape[1],
            world_size=world_size,
        )

    return normalizer
