"""Conversations with branches: a row each, the weight of one completion, each token once."""

import json
from dataclasses import asdict, replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch

import rlvr_core.step.step as step_module
from rlvr_core.algorithm.estimate import Estimator
from rlvr_core.api import (
    AdvantageOutput,
    AdvantageTraits,
    Completion,
    Draw,
    Group,
    Judged,
    Problem,
    RunError,
    StepObserver,
    Transcript,
    Turn,
)
from rlvr_core.api.rollouts import Rollouts, Sampled
from rlvr_core.config.model import ReferenceSection
from rlvr_core.guards.parity import Parity
from rlvr_core.guards.tokens import Tokens
from rlvr_core.guards.updates import Updates
from rlvr_core.losses import DAPO, GRPO, DrGRPO
from rlvr_core.record.rows import rollout_row
from rlvr_core.rollout.replay import member_of
from rlvr_core.run.metrics import rollout_metrics
from rlvr_core.step.objective import LossTerm
from rlvr_core.step.reference import SeparateModel
from tests.support.guards.branches import branched_steps
from tests.support.guards.stepping import trainer_with
from tests.support.train.small import estimator_for, small_model

needs_algos = pytest.mark.skipif(find_spec("rlvr_algos") is None, reason="comes with rlvr-algos")
T, F = True, False
SQRT2, SQRT42 = 2**0.5, 42**0.5


def row(ids, mask, prompt=(3, 4), **more):
    return Completion(prompt, ids, (-1.0,) * len(ids), mask, "x", "stop", **more)


MAIN = row((1, 2, 3, 4), (T, T, F, T))
FORK = row((1, 2, 5, 6, 7), (F, F, F, T, T))
OTHER = row((8,), (T,), prompt=(9, 8, 7))
ROWS = {
    "main": MAIN,
    "fork": FORK,
    "other": OTHER,
    "two": row((10, 11), (T, T)),
    "three": row((12, 13, 14), (T, T, T)),
    "right": row((15,), (T,), prompt=(5,)),
    "wrong": row((16,), (T,), prompt=(5,)),
}
NAMES = {(one.prompt_ids, one.token_ids): name for name, one in ROWS.items()}


def groups():
    """A group of rewards 1, 0, 0, whose first has two branches, and one of rewards 1, 0."""
    whole = replace(MAIN, branches=(FORK, OTHER))
    members = [(whole, 1.0), (ROWS["two"], 0.0), (ROWS["three"], 0.0)]
    others = [(ROWS["right"], 1.0), (ROWS["wrong"], 0.0)]
    return [
        Group(
            Problem(id_, "?", "v", {}, "d"),
            tuple(Judged(one, {}, reward, reward > 0) for one, reward in some),
            0,
        )
        for id_, some in (("p", members), ("q", others))
    ]


class Watch(StepObserver):
    """The gradient of the loss at each token, and its advantage, by row."""

    def __init__(self):
        self.gradients, self.advantages, self.normalizers = {}, {}, []

    def loss_computed(self, event):
        ((_, batch, output),) = event.losses
        (gradient_BT,) = torch.autograd.grad(output.loss, batch.logp_BT, retain_graph=True)
        micro = event.micro_batch
        a_BT = batch.advantage_BT
        self.normalizers.append((event.normalizer.rows, event.normalizer.tokens))
        for b, n in enumerate(micro.completion_len_B.tolist()):
            place = int(micro.prompt_of_row_B[b])
            prompt = micro.prompt_ids_SP[place, : int(micro.prompt_len_S[place])].tolist()
            name = NAMES[tuple(prompt), tuple(micro.completion_ids_BT[b, :n].tolist())]
            assert name not in self.gradients
            self.gradients[name] = gradient_BT[b, :n].tolist()
            given = batch.advantage_B[b].expand(n) if a_BT is None else a_BT[b, :n]
            self.advantages[name] = given.tolist()


OFF = {"importance_correction": {"mode": "off"}}
WEIGHTS = {
    # -A / (tokens of the conversation * 5 conversations), with A = (R - 1/3) / (sqrt(2) / 3)
    "grpo": (
        GRPO(GRPO.Config(**OFF)),
        {
            **dict.fromkeys(("main", "fork", "other"), -SQRT2 / (6 * 5)),
            "two": 1 / SQRT2 / (2 * 5),
            "three": 1 / SQRT2 / (3 * 5),
            "right": -1 / 5,
            "wrong": 1 / 5,
        },
    ),
    # -A / 13 sampled tokens
    "dapo": (
        DAPO(DAPO.Config(**OFF)),
        {
            **dict.fromkeys(("main", "fork", "other"), -SQRT2 / 13),
            **dict.fromkeys(("two", "three"), 1 / SQRT2 / 13),
            "right": -1 / 13,
            "wrong": 1 / 13,
        },
    ),
    # -(R - mean) / (5 conversations * 8 tokens)
    "dr_grpo": (
        DrGRPO(DrGRPO.Config(**OFF)),
        {
            **dict.fromkeys(("main", "fork", "other"), -2 / 3 / 40),
            **dict.fromkeys(("two", "three"), 1 / 3 / 40),
            "right": -1 / 2 / 40,
            "wrong": 1 / 2 / 40,
        },
    ),
}


@pytest.mark.parametrize("budget", [1, 16, 1000])
@pytest.mark.parametrize("loss", WEIGHTS)
def test_a_conversation_weighs_the_same_however_it_branches(loss, budget):
    made, weight = WEIGHTS[loss]
    trainer = trainer_with(made, tokens_per_micro_batch=budget)
    trainer.observer = watch = Watch()
    report = trainer.update(groups(), 0, 0)
    assert watch.gradients == {
        name: pytest.approx([weight[name] * own for own in one.loss_mask], rel=1e-5)
        for name, one in ROWS.items()
    }
    assert {*watch.normalizers} == {(5, 13)}
    assert (report.metrics["rows"], report.metrics["tokens/loss"]) == (5, 13)
    # one advantage a conversation
    if loss != "dr_grpo":
        assert report.advantages[0] == pytest.approx([SQRT2, -1 / SQRT2, -1 / SQRT2])


def test_truncated_conversations_are_masked_in_all_branches():
    trainer = trainer_with(GRPO(GRPO.Config(**OFF)), mask_truncated=True)
    trainer.observer = watch = Watch()
    first, second = groups()
    cut, *others = first.members
    cut = replace(cut, completion=replace(cut.completion, finish_reason="length"))
    report = trainer.update([replace(first, members=(cut, *others)), second], 0, 0)
    assert {*watch.gradients} == {"two", "three", "right", "wrong"}
    assert report.metrics["rows"] == 4


@needs_algos
def test_an_estimator_of_token_advantages_sees_one_sequence():
    """REINFORCE++ without KL: (R - 7/13) / std over 13 tokens, of which 7 have a reward of 1."""
    loss = DAPO(DAPO.Config(**OFF))
    made = estimator_for([LossTerm("l", loss)], "reinforce_plus_plus", beta=0.0)
    trainer = trainer_with(loss, estimator=made)
    trainer.observer = watch = Watch()
    trainer.update(groups(), 0, 0)
    value = dict.fromkeys(("main", "fork", "other", "right"), 6 / SQRT42)
    value |= dict.fromkeys(("two", "three", "wrong"), -7 / SQRT42)
    assert watch.advantages == {
        name: pytest.approx([value[name] * own for own in one.loss_mask], rel=1e-5)
        for name, one in ROWS.items()
    }


def log_probs(model, one):
    """Of the tokens of one row, in its own context."""
    ids = torch.tensor([[*one.prompt_ids, *one.token_ids]])
    with torch.no_grad():
        logp_LV = model(ids).logits[0, len(one.prompt_ids) - 1 : -1].double().log_softmax(-1)
    return logp_LV.gather(1, torch.tensor(one.token_ids)[:, None])[:, 0].numpy()


def test_the_kl_of_each_row_is_that_of_its_own_context():
    seen = []

    class Keeps:
        traits = AdvantageTraits(per_token=True, needs_reference_kl=True)

        def __call__(self, step):
            seen.append(step)
            return AdvantageOutput([np.zeros(len(kl)) for kl in step.kl_N])

    model = small_model(num_hidden_layers=2)
    frozen = small_model(5, num_hidden_layers=2).requires_grad_(False)
    reference = SeparateModel(frozen, model, ReferenceSection())
    loss = DAPO(DAPO.Config(**OFF))
    made = Estimator("keeps", Keeps())
    trainer = trainer_with(loss, model=model, reference=reference, estimator=made)
    trainer.observer = StepObserver()
    own = {name: log_probs(model, one) - log_probs(frozen, one) for name, one in ROWS.items()}
    trainer.update(groups(), 0, 0)
    due = [np.where(one.loss_mask, own[name], 0.0) for name, one in ROWS.items()]
    (step,) = seen
    first = step.members[0].completion
    assert first.token_ids == (1, 2, 3, 4, 1, 2, 5, 6, 7, 8)
    assert first.loss_mask == (T, T, F, T, F, F, F, T, T, T)
    found = [step.kl_N[0][:4], step.kl_N[0][4:9], step.kl_N[0][9:], *step.kl_N[1:]]
    for ours, theirs in zip(found, due, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)


def test_counts_records_and_what_is_saved_have_the_branches():
    group = groups()[0]
    script = Transcript("e", (Turn("assistant", "a", 4),), "done")
    side = replace(OTHER, transcript=Transcript("e", (Turn("assistant", "b", 1),), "done"))
    whole = replace(MAIN, transcript=script, branches=(FORK, side), loss_mask=(T, T, T, T))
    judged = replace(group.members[0], completion=whole)
    group = replace(group, members=(judged, *group.members[1:]))
    rollouts = Rollouts([Sampled(Draw(group.problem, 3, 0), "?", group)])
    metrics = rollout_metrics(rollouts)
    assert metrics["tokens/completion"] == 4 + 2 + 1 + 2 + 3
    line = rollout_row(0, 0, group, "?", ["trained"] * 3, [1.0, 0.0, 0.0], 0)
    fork, other = line["completions"][0]["branches"]
    assert (fork["prompt_ids"], fork["token_ids"]) == ((3, 4), (1, 2, 5, 6, 7))
    assert fork["loss_mask"] == [0, 0, 0, 1, 1]
    assert other["transcript"]["turns"] == ({"role": "assistant", "text": "b", "n_tokens": 1},)
    assert "branches" not in line["completions"][1]
    assert member_of(json.loads(json.dumps(asdict(judged)))) == judged


# -- guards ----------------------------------------------------------------------------------------


def steps(trainer, change=lambda groups: groups):
    return branched_steps(trainer, (Parity, Tokens, Updates), change)


def test_healthy_steps_with_branches_are_quiet():
    (line,) = steps(trainer_with(DrGRPO(DrGRPO.Config()), num_iterations=2))
    assert line["tokens/missing"] == 0
    # 4 groups of 4 conversations, of which those whose rewards differ are all trained
    assert line["rows"] == 16


def masked(groups, mask):
    """The groups, with another loss mask of the fork of the first conversation that has one."""
    first, *others = groups
    members = list(first.members)
    fork, aside = members[1].completion.branches
    whole = replace(members[1].completion, branches=(replace(fork, loss_mask=mask), aside))
    members[1] = replace(members[1], completion=whole)
    return [replace(first, members=tuple(members)), *others]


def test_a_branch_that_is_not_in_the_loss_is_noticed():
    trainer = trainer_with()
    with pytest.raises(RunError, match="would train 0 of its 6 tokens, and the model wrote 2"):
        steps(trainer, change=lambda groups: masked(groups, (F,) * 6))


def test_rows_that_are_lost_are_noticed(monkeypatch):
    real = step_module.rows_of

    def first_rows(groups, *given, **more):
        made = real(groups, *given, **more)
        made.by_group[0] = [one for one in made.by_group[0] if one.share == 1]
        return made

    monkeypatch.setattr(step_module, "rows_of", first_rows)
    with pytest.raises(RunError, match=r"guard tokens: .* were trained on by no update"):
        steps(trainer_with())
