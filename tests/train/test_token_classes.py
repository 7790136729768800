"""The guard ``calibration`` counts classes of tokens: each fires on its fault, none by chance."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from small import small_model  # type: ignore
from test_invariants import trainer_with

from rlvr_core.api import Completion, Group, GroupsScored, Judged, MicroBatch, Problem, RunError
from rlvr_core.builtin.invariants.calibration import BETS, Calibration, Count
from rlvr_core.builtin.invariants.moments import RECENT, Classes, end_ids

END = 1


def groups_of(model, change, *, seed, version, n_groups=8, n=8, length=7):
    """Groups drawn from changed logits, with the log-probs of the true ones; ``END`` ends them."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for place in range(n_groups):
        prompt = (3, 4 + place, 5)
        rows, logps = [[] for _ in range(n)], [[] for _ in range(n)]
        for _ in range(length):
            going = [i for i, row in enumerate(rows) if row[-1:] != [END]]
            if not going:
                break
            with torch.no_grad():
                ids = torch.tensor([[*prompt, *rows[i]] for i in going])
                logits_BV = model(ids).logits[:, -1].double()
            for i, logits_V in zip(going, logits_BV, strict=True):
                p_V = change(logits_V.clone(), rows[i]).softmax(-1)
                token = int(torch.multinomial(p_V, 1, generator=generator))
                logps[i].append(float(logits_V.log_softmax(-1)[token]))
                rows[i].append(token)
        members = []
        for number, (row, logp) in enumerate(zip(rows, logps, strict=True)):
            why = "stop" if row[-1] == END else "length"
            done = Completion(
                prompt, tuple(row), tuple(logp), (True,) * len(row), "x", why, version
            )
            members.append(Judged(done, {}, float(number % 3 == 0), number % 3 == 0))
        problem = Problem(f"p{place}", "?", "core/exact", {}, "toy")
        found.append(Group(problem, tuple(members), version))
    return found


def run(change, steps=8):
    """Show the guards the groups of some steps; the weights stay."""
    trainer = trainer_with(model=small_model(num_hidden_layers=2, eos_token_id=END))
    with torch.no_grad():
        trainer.model.lm_head.weight.mul_(0.1)
    for step in range(steps):
        groups = groups_of(trainer.model, change, seed=step, version=0)
        trainer.observer.on_groups(GroupsScored(step, 0, tuple(groups)))
    return trainer.observer.state_dict()["calibration"]


def rare_end(logits_V, before):
    logits_V[END] -= 2
    return logits_V


def banned(logits_V, before):
    logits_V[7] = -torch.inf
    return logits_V


def penalised(logits_V, before):
    logits_V[before] -= 2
    return logits_V


def test_a_sampler_that_does_what_it_says_is_quiet():
    state = run(lambda logits_V, before: logits_V)
    assert len(state["ids"]) == 20  # the whole vocabulary is less than what is looked at
    assert set(state["counts"]) == {"end", "seen", "recent", *map(str, range(20))}
    for came, expected, variance in state["counts"].values():
        assert abs(came - expected) < 4.5 * math.sqrt(variance)
    every = sum(count[0] for name, count in state["counts"].items() if name.isdigit())
    assert 0 < every < state["tokens"]  # the first pass chooses the single tokens


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (rare_end, ("end of sequence", "penalty on length")),
        (banned, ("the token 7 came 0 times", "suppressed")),
        (penalised, ("repetition", "among the last 8|had before")),
    ],
)
def test_a_sampler_that_leaves_something_out_of_its_log_probs(change, words):
    with pytest.raises(RunError, match="guard calibration") as caught:
        run(change, steps=12)
    for word in words:
        assert any(part in str(caught.value) for part in word.split("|"))


def test_ends_that_are_not_recorded_are_no_evidence():
    """An engine that leaves the end of sequence out of its tokens: none ever comes."""
    calibration = Calibration.__new__(Calibration)
    calibration._counts = {"end": Count(0, 200, 100), "seen": Count(10, 10, 5)}
    calibration._ends_differ = False
    assert calibration._worst()[0] == "end"
    assert calibration._worst()[1] > 1
    calibration._ends_differ = True
    assert calibration._worst()[1] < 1


def test_probabilities_of_classes_by_hand():
    ids = torch.tensor([[2, 1, 2, 0], [3, 0, 0, 0]])
    mask = torch.tensor([[True, True, True, False], [True, False, False, False]])
    batch = MicroBatch.__new__(MicroBatch)
    object.__setattr__(batch, "completion_ids_BT", ids)
    p_nV = torch.tensor([[0.1, 0.2, 0.3, 0.4]] * 4)
    classes = Classes([0, 3])
    found = torch.stack(classes.columns(p_nV, ids[mask], batch, mask.nonzero())).T
    # the sampled token; end: 0.1 + 0.4; before it: nothing, 2, 2 and 1, nothing
    assert found.tolist() == [
        pytest.approx([2, 0.5, 0, 0, 0, 0, 0]),
        pytest.approx([1, 0.5, 0, 0.3, 0, 0.3, 0]),
        pytest.approx([2, 0.5, 0, 0.5, 1, 0.5, 1]),
        pytest.approx([3, 0.5, 1, 0, 0, 0, 0]),
    ]
    classes.choose(lambda mine: [mine])
    assert classes.ids == (0, 1, 2, 3)
    later = classes.columns(p_nV, ids[mask], batch, mask.nonzero())
    assert torch.stack(later[-4:]).T.tolist() == [pytest.approx([0.1, 0.2, 0.3, 0.4])] * 4


def test_recent_tokens_are_the_last_few():
    n = RECENT + 2
    batch = MicroBatch.__new__(MicroBatch)
    object.__setattr__(batch, "completion_ids_BT", torch.arange(n)[None])
    p_nV = torch.full((1, n), 1 / n)
    columns = Classes([]).columns(p_nV, torch.tensor([0]), batch, torch.tensor([[0, n - 1]]))
    found = dict(zip(("end", "seen", "recent"), columns[1::2], strict=False))
    assert float(found["seen"]) == pytest.approx((n - 1) / n)
    assert float(found["recent"]) == pytest.approx(RECENT / n)


def test_wealth_of_a_count_by_hand():
    """Of 100 throws at p = 1/4 none comes; a bet on the lower side by the smaller of two costs."""
    count = Count(0, 25, 18.75)
    assert count.shift == pytest.approx(-25 / 18.75)
    logs = []
    for b in BETS:
        bennett = (math.exp(b) - 1 - b) * 18.75
        poisson = (math.exp(-b) - 1 + b) * 25
        logs += [-25 * b - bennett, 25 * b - min(bennett, poisson)]
    by_hand = math.log(sum(math.exp(one) for one in logs) / 10)
    assert count.wealth() == pytest.approx(by_hand)
    assert by_hand > 15


@pytest.mark.parametrize("p", [0.001, 0.05, 0.5, 0.97])
def test_wealth_of_a_healthy_count_rarely_passes_twenty(p):
    """Ville: with odds of at most 1 in 20 ever, here over 400 looks."""
    rng = np.random.default_rng(0)
    runs, most = 1500, np.zeros(1500)
    came = np.zeros(runs)
    for look in range(1, 401):
        came += rng.binomial(10, p, size=runs)
        n = 10 * look
        for size in np.unique(came):
            at = came == size
            wealth = Count(float(size), n * p, n * p * (1 - p)).wealth()
            most[at] = np.maximum(most[at], wealth)
    assert (most > math.log(20)).mean() <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


def test_tokens_that_end_a_sequence_are_those_of_both_configurations():
    model = small_model(eos_token_id=4)
    model.generation_config.eos_token_id = [4, 9]
    assert end_ids(model) == (4, 9)
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    assert end_ids(model) == ()
