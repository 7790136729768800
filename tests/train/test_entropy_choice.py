"""Guard ``loss``: the tokens that a loss takes for those of high entropy are those."""

from types import SimpleNamespace

import torch

from rlvr_core.builtin.invariants.entropy_choice import choices, wrong_choice
from rlvr_core.losses import GRPO

LOSS = GRPO(GRPO.Config(top_entropy=0.5))


def seen(entropy, chosen, mask=None):
    entropy_BT = torch.tensor([entropy])
    batch = SimpleNamespace(
        mask_BT=torch.ones_like(entropy_BT, dtype=torch.bool)
        if mask is None
        else torch.tensor([mask]),
        entropy_BT=entropy_BT,
        entropy_mask_BT=torch.tensor([chosen]),
    )
    return SimpleNamespace(losses=[(LOSS, batch, None)])


def test_counts_by_hand():
    """Chosen: entropies .9, .1 and .3 of .9, .1, .8, .3; the third is masked out."""
    one = seen([0.9, 0.1, 0.8, 0.3, 0.7], [True, True, False, True, False], [True] * 4 + [False])
    # three chosen of four; the three highest are .9, .8 and .3, so .1 is misplaced, and the least
    (found,) = choices([one]).values()
    assert counts(found) == (4, 3, 1, 1)
    # the six highest of both are each of these twice
    (found,) = choices([one, one]).values()
    assert counts(found) == (8, 6, 2, 2)
    # in its own micro-batch .1 is among the two highest, and of both together it is not
    sure = seen([0.1, 0.05, 0.02], [True, True, False])
    unsure = seen([0.9, 0.8, 0.7], [True, True, False])
    (found,) = choices([sure]).values()
    assert counts(found) == (3, 2, 0, 1)
    (found,) = choices([sure, unsure]).values()
    assert counts(found) == (6, 4, 1, 2)  # .05 is not among .9, .8, .7 and .1


def counts(found):
    return found.tokens, sum(found.chosen), found.misplaced, found.tied


def test_the_right_half_the_other_half_and_too_many():
    entropy = [i / 50 for i in range(50)]
    high = [value >= 0.5 for value in entropy]
    assert wrong_choice([choices([seen(entropy, high)])]) == ""
    low = wrong_choice([choices([seen(entropy, [not one for one in high])])])
    # that of .48 is within a bin of the least that should have been chosen, .5
    assert "24 of the 25 tokens that GRPO 0 trains on" in low
    most = wrong_choice([choices([seen(entropy, [value >= 0.2 for value in entropy])])])
    assert "trains on 40 of 50 tokens" in most
    assert "makes them 25" in most


def test_ties_few_tokens_and_small_differences_are_no_fault():
    # ties are all chosen: 50 tokens of one entropy
    assert wrong_choice([choices([seen([0.3] * 50, [True] * 50)])]) == ""
    assert wrong_choice([choices([seen([0.1, 0.9], [True, False])])]) == ""
    # the eight highest are exchanged with others, as dropout may do, and no rounding
    entropy = [i / 50 for i in range(50)]
    chosen = [17 <= i < 42 for i in range(50)]
    exchanged = choices([seen(entropy, chosen)])
    assert wrong_choice([exchanged], dropout=True) == ""
    assert "of the 25 tokens" in wrong_choice([exchanged])
    near = [i in (20, 21, 22) or 28 <= i < 50 for i in range(50)]
    assert wrong_choice([choices([seen(entropy, near)])]) == ""


def test_a_share_holds_over_all_processes():
    entropy = [1 + i / 50 for i in range(50)]
    sure = [i / 100 for i in range(50)]
    shares = [choices([seen(entropy, [True] * 50)]), choices([seen(sure, [False] * 50)])]
    assert wrong_choice(shares) == ""
