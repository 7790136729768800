"""Guard ``completions``: on contradictions, and on healthy completions."""

from dataclasses import replace

import pytest

from rlvr_core.api import GroupsScored, NoConfig, RunError
from rlvr_guards.completions import Completions
from tests.support.guards.stepping import Watched, sample


class Letters:
    """A tokenizer of one letter a token; 19 ends a text."""

    eos_token_id = 19
    all_special_tokens = ("<end>",)
    all_special_ids = (19,)

    def decode(self, ids, *, skip_special_tokens):
        return "".join("abcdefghijklmnopqrs<"[i] for i in ids if i != 19 or not skip_special_tokens)


def completed(change=lambda completion: completion, n=2, **more):
    """Take a step over completions of which the first is changed."""
    run = Watched(Completions(NoConfig()), tokenizer=Letters(), sampling={"max_tokens": 8})
    groups = []
    for group in sample(run.trainer.model, n_groups=n):
        members = []
        for member in group.members:
            ids = tuple(id_ % 19 for id_ in member.completion.token_ids[:-1])
            text = Letters().decode(ids, skip_special_tokens=True)
            completion = replace(member.completion, token_ids=(*ids, 19), text=text)
            members.append(replace(member, completion=completion))
        groups.append(replace(group, members=tuple(members)))
    first = groups[0].members[0]
    spoilt = replace(first, completion=change(first.completion))
    groups[0] = replace(groups[0], members=(spoilt, *groups[0].members[1:]))
    run.guard.on_groups(GroupsScored(0, 0, tuple(groups)))
    return run


def test_completions_that_end_are_quiet():
    assert completed().guard.report() == {"completions/end_token": 1.0}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: replace(c, token_ids=(1, 19, *c.token_ids[2:])), "goes on for"),
        (lambda c: replace(c, token_ids=(*c.token_ids[:-1], 3)), "says that it stopped"),
        (lambda c: replace(c, finish_reason="length"), "cut off .* cap is 8"),
        (lambda c: replace(c, text="another"), "has the text 'another'"),
        (lambda c: replace(c, version=1), "says version 1, and the policy is at version 0"),
        (lambda c: replace(c, logprobs=(0.5, *c.logprobs[1:])), "log-prob that is above 0"),
        (lambda c: replace(c, logprobs=(float("nan"), *c.logprobs[1:])), "no number"),
    ],
)
def test_a_contradiction_is_named(change, words):
    with pytest.raises(RunError, match=rf"guard completions: .*{words}"):
        completed(change)


def test_an_end_token_beyond_the_vocabulary_and_a_pad_that_is_the_end_are_no_fault():
    """What no file says twice is no disagreement; ids are only compared, never looked up."""
    run = completed()
    run.trainer.model.config.eos_token_id = [19, 419]
    run.trainer.model.config.pad_token_id = 19
    run.guard.bind(run.context)
    assert run.guard._ends == {19, 419}
