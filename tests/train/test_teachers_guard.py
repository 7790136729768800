"""A teacher that becomes the policy (guard ``loss``), and denominators of answers (``data``)."""

from types import SimpleNamespace

import pytest
import torch

from rlvr_core.builtin.invariants.given_rows import OURS, GivenRows
from rlvr_core.builtin.invariants.teachers import NOISE, Teachers

POLICY = torch.tensor([[-1.0, -2.0], [-0.5, -3.0]], dtype=torch.float64)
TEACHER = POLICY + torch.tensor([[0.2, -0.4], [0.1, -0.2]], dtype=torch.float64)
NO_NOISE = NOISE[torch.float32]


def followed(share, noise=NO_NOISE, times=1):
    """What is said of log-probs that are so far on the way from the teacher to the policy."""
    teachers, said = Teachers(None), ""
    used = TEACHER + share * (POLICY - TEACHER)
    for _ in range(times):
        said = teachers._follow("gkd", noise, used, TEACHER, POLICY)
    return said


@pytest.mark.parametrize(("share", "words"), [(0.0, ""), (0.2, ""), (0.5, "50%"), (1.0, "100%")])
def test_how_far_a_teacher_is_on_the_way_to_the_policy(share, words):
    said = followed(share)
    assert bool(said) == bool(words)
    assert f"are {words} of the way" in said or not words


def test_what_may_be_rounding_is_not_judged_alone_nor_together():
    """The way is .25 squared nats over 4 numbers: a rounding of .2 makes 4 x .04, ten times .16."""
    assert followed(1.0, noise=0.2, times=20) == ""
    assert "100%" in followed(1.0, noise=0.07)


class Answers:
    """Two answers a step, in one order."""

    __module__ = OURS
    rows_per_step, seed = 2, 0
    answers = (("first", "a"), ("second", "b"))


def micro(*rows):
    """A micro-batch of given answers; prompts are of one token."""
    prompt_ids_SP = torch.tensor([[prompt] for prompt, _ in rows])
    completion_ids_BT = torch.tensor([list(answer) for _, answer in rows])
    return SimpleNamespace(
        prompt_of_row_B=torch.arange(len(rows)),
        prompt_len_S=torch.ones(len(rows), dtype=torch.long),
        completion_len_B=torch.full((len(rows),), 2),
        prompt_ids_SP=prompt_ids_SP,
        completion_ids_BT=completion_ids_BT,
        valid_BT=torch.ones_like(completion_ids_BT, dtype=torch.bool),
    )


@pytest.mark.parametrize(("divided", "fine"), [((1, 1), True), ((2, 1), False), ((64, 64), False)])
def test_answers_are_divided_by_their_rows_in_each_update(divided, fine):
    ids = {"first": 1, "second": 2, "a": (10,), "b": (11,)}
    files = SimpleNamespace(
        tokenizer=SimpleNamespace(eos_token_id=9), encode=ids.__getitem__, decode=str
    )
    oracle = SimpleNamespace(candidates=lambda problem: iter([(ids[problem],)]))
    given, loss = GivenRows(files, oracle), object()
    term = SimpleNamespace(loss=loss, name="sft", demonstrations=Answers())
    trainer = SimpleNamespace(
        objective=SimpleNamespace(terms=[term]), train=SimpleNamespace(num_iterations=1)
    )
    rows = [(1, (10, 9)), (2, (11, 9))]
    for update, row in enumerate(rows):
        made = micro(row)
        batch = SimpleNamespace(mask_BT=made.valid_BT)
        event = SimpleNamespace(
            losses=[(loss, batch, None)],
            micro_batch=SimpleNamespace(host=made),
            normalizer=SimpleNamespace(rows=divided[update]),
        )
        view = SimpleNamespace(trainer=trainer, step=0, update=update)
        assert given.wrong(view, event) == ""
    said = given.left()
    assert (said == "") == fine
    assert fine or f"is divided by {divided[0]} rows, and update 1 of the step has 1" in said
