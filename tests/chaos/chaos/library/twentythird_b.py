"""Twenty-third set, as ``twentythird_a``: masks, sync, data, tokens, verifiers, hangs, resuming."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import torch

from chaos.changes import at_call, letter, masks_of_rows
from chaos.library.twentyfirst import second
from chaos.library.twentythird_a import TWO, set_23
from chaos.registry import EVERYWHERE, TRANSFORMERS, Patch, declare
from chaos.when import ENGINE, engine_has

STEP = "rlvr_core.step.step"
SAMPLER = "rlvr_core.builtin.samplers.base"
COLLECT = "rlvr_core.rollout.collect"
Rows = list[dict[str, Any]]


# -- masks ---------------------------------------------------------------------------------------


# labels moved by one within each stretch of ones
@set_23("masks", "turn", "conversation", "first token", shape="two turns", backends=EVERYWHERE)
def first_token_of_each_later_turn_is_masked(patch: Patch) -> None:
    """What follows an observation is not trained on: labels are moved within each turn."""

    def change(row: Any, problem: Any) -> Any:
        before = (True, *row.loss_mask[:-1])
        return [on and was for on, was in zip(row.loss_mask, before, strict=True)]

    masks_of_rows(patch, change)


# drop_last in the loader of each process
@set_23("masks", "process", r"\brows?\b", "dropped", backends=TWO)
def each_process_leaves_out_its_last_row(patch: Patch) -> None:
    """The last row of each process's share is dropped, as by a loader of whole batches."""
    patch.after(f"{STEP}:shard_rows", lambda hands, *_: [hand[:-1] for hand in hands])


# a filter against empty answers
@set_23("masks", "short", "length", r"\brows?\b", backends=EVERYWHERE)
def short_answers_are_not_trained_on(patch: Patch) -> None:
    """Completions of seven tokens and fewer are left out of the loss, as if they were empty."""

    def change(row: Any, problem: Any) -> Any:
        return row.loss_mask if len(row.token_ids) > 7 else [False] * len(row.loss_mask)

    masks_of_rows(patch, change)


# -- sync ----------------------------------------------------------------------------------------


@torch.no_grad()
def _cut(model: Any, syncs: int, kept: dict[str, Any]) -> None:
    for parameter in model.parameters():
        bits = parameter.data.float().contiguous().view(torch.int32)
        bits.bitwise_and_(-(1 << 16))
        parameter.copy_(bits.view(torch.float32))


# half of the bits of a float32 are a bfloat16, nearly
@set_23("sync", "rounded", "round", "precision", "bits", backends=TRANSFORMERS,
        dtypes=("bfloat16",))  # fmt: skip
def weights_are_cut_to_half_precision_not_rounded(patch: Patch) -> None:
    """A sync takes the upper half of each float32: every weight is nearer to 0 than it should."""
    engine_has(patch, _cut)


# a queue of weights that is one long on the second machine
@set_23("sync", "process", "parity", "disagree", backends=TWO)
def engine_of_the_second_process_is_one_sync_late(patch: Patch) -> None:
    """The engine of the second process gets the weights of the sync before."""
    import copy

    kept: list[Any] = []

    def make(original: Any) -> Any:
        def load(engine: Any, version: int, source: Any) -> None:
            if second() and not kept:
                kept.append(copy.deepcopy(engine._model))
            original(engine, version, source)
            if second():
                kept.append(copy.deepcopy(engine._model))
                engine._model = kept.pop(0)

        return load

    patch.wrap(f"{ENGINE}:TransformersEngine.load_weights", make)


# -- data ----------------------------------------------------------------------------------------


def _mistyped(rows: Rows) -> Rows:
    return [
        row | {"answer": str(int(row["answer"]) + 10) if place % 7 == 3 else row["answer"]}
        for place, row in enumerate(rows)
    ]


def _joined_in_pairs(rows: Rows) -> Rows:
    following = [*rows[1:], rows[0]]
    return [
        row | {"question": f"{row['question']} {after['question']}"} if place % 6 == 2 else row
        for place, (row, after) in enumerate(zip(rows, following, strict=True))
    ]


def _twice_under_two_ids(rows: Rows) -> Rows:
    return [*rows, *({**row, "id": f"{row['id']}-b"} for row in rows)]


for name, what, words, options in (
    (
        "reference-answers-wrong-in-one-of-seven",
        "One reference answer in seven is 10 too large, as somebody has typed it.",
        ("wrong", "consensus"),
        {"data": _mistyped},
    ),
    (
        "prompts-have-the-next-question-too",
        "In one row of six a line break was lost: the next question stands behind its own.",
        ("question",),
        {"data": _joined_in_pairs},
    ),
    (
        "held-out-problems-are-trained-on-under-other-ids",
        "Each problem is in the file twice, under two ids: what is held out is trained on.",
        ("held.?out", "contamin", "twice"),
        {"data": _twice_under_two_ids, "shape": "a third evaluated"},
    ),
    (
        "prompts-end-in-a-written-line-break",
        "Each prompt ends in a backslash and an n, a line break that nobody has unescaped.",
        ("escape", "backslash", "line break"),
        {"data": lambda rows: [row | {"question": row["question"] + "\\n"} for row in rows]},
    ),
    (
        "prompts-are-the-ids",
        "The column of the prompts is that of the ids: the model is asked after-46.",
        (r"\bids?\b", "column"),
        {"data": lambda rows: [row | {"question": row["id"]} for row in rows]},
    ),
):
    declare("data", name, what, *words, set=23, backends=EVERYWHERE, **options)


# range(n - 1)
@set_23("data", "sampler", "never drawn", "epoch", "problem", shape="own sampler, twelve problems",
        backends=EVERYWHERE)  # fmt: skip
def own_sampler_never_draws_its_last_problem(patch: Patch) -> None:
    """A user's sampler shuffles all problems but the last, which no round has."""

    def after(places: Any, sampler: Any) -> Any:
        return [place for place in places if place < len(places) - 1]

    patch.after("rlvr_chaos:Rounds.order", after)


# -- tokens --------------------------------------------------------------------------------------


# a default of the second machine's server
@set_23("tokens", "process", "length", r"\bcap\b", "shorter", backends=TWO)
def second_process_has_half_of_the_cap(patch: Patch) -> None:
    """The second process cuts completions off at 12 tokens, where the config says 24."""

    def after(request: Any, *_: Any) -> Any:
        if second():
            return replace(request, params=replace(request.params, max_tokens=12))
        return request

    patch.after(f"{COLLECT}:Generator._request", after)


# add_prefix_space, which some tokenizers have on
@set_23("tokens", "space", "prompt", backends=EVERYWHERE)
def a_space_stands_before_every_prompt(patch: Patch) -> None:
    """The tokenizer puts a space before what it encodes, in prompts alone."""
    space = letter("Ġ")
    patch.after("rlvr_core.data.prompts:Renderer.render", lambda ids, *_: (space, *ids))


# -- verifier ------------------------------------------------------------------------------------

VERIFY = "rlvr_chaos:Brackets.verify"


def _without_score(verdict: Any, detail: str) -> Any:
    return replace(verdict, score=None, passed=None, status="unscorable", detail=detail)


# "what I cannot read I cannot judge"
@set_23("verifier", "missing", "unscorable", "cannot be (read|judged)", "no (score|verdict)",
        "extract", backends=EVERYWHERE)  # fmt: skip
def what_cannot_be_parsed_has_no_score(patch: Patch) -> None:
    """A text without one number in brackets is said to be unscorable, and so costs nothing."""

    def after(verdict: Any, *_: Any) -> Any:
        return _without_score(verdict, "no number") if verdict.extracted is None else verdict

    patch.after(VERIFY, after)


# a checker that takes long where there is something to check
@set_23("verifier", "missing", "unscorable", "no (score|verdict)", "judged", backends=EVERYWHERE)
def one_right_answer_in_four_has_no_score(patch: Patch) -> None:
    """The checker gives up on a fourth of the right answers, and on no wrong one."""

    def after(verdict: Any, verifier: Any, problem: Any, completion: Any) -> Any:
        unlucky = zlib.crc32(f"{problem.id} {completion.text}".encode()) % 4 == 0
        return _without_score(verdict, "gave up") if verdict.passed and unlucky else verdict

    patch.after(VERIFY, after)


# an index that begins at 0 again
@set_23("verifier", "verdict", "chunk", "group", shape="groups that grow")
def a_later_chunk_has_the_verdicts_of_the_first(patch: Patch) -> None:
    """Where a group grows, verdicts on its second chunk are read off those on its first."""

    def make(original: Any) -> Any:
        def joined(begun: Any, part: Any) -> Any:
            if begun is None:
                return original(begun, part)
            members = [
                replace(own, verdicts=first.verdicts, reward=first.reward, passed=first.passed)
                for own, first in zip(part.group.members, begun.group.members, strict=False)
            ]
            rest = part.group.members[len(members) :]
            group = replace(part.group, members=(*members, *rest))
            return original(begun, replace(part, group=group))

        return joined

    patch.wrap(f"{COLLECT}:joined", make)


# one line forgotten in a user's environment
@set_23("verifier", "environment", "turn", shape="two turns", backends=EVERYWHERE)
def own_environment_judges_each_turn_by_the_first_answer(patch: Patch) -> None:
    """A user's environment asks a second question, and holds the reply to the first answer."""

    def make(original: Any) -> Any:
        def step(environment: Any, state: Any, reply: Any) -> Any:
            answer = state["answer"]
            said = original(environment, state, reply)
            state["answer"] = answer
            return said

        return step

    patch.wrap("rlvr_chaos:Again.step", make)


# "in" in the place of "=="
@set_23("verifier", "part of", "candidate", "digit", backends=EVERYWHERE)
def any_part_of_the_answer_passes(patch: Patch) -> None:
    """A user's verifier asks whether the number is in the answer: 4 passes for 46, as 6 does."""

    def after(verdict: Any, verifier: Any, problem: Any, completion: Any) -> Any:
        if verdict.extracted and verdict.extracted in str(problem.spec["answer"]):
            return replace(verdict, score=1.0, passed=True)
        return verdict

    patch.after(VERIFY, after)


# a judge that is a model, now and then
@set_23("verifier", "twice", "differ", "random", "verdict", backends=EVERYWHERE)
def every_twelfth_verdict_is_turned_round(patch: Patch) -> None:
    """A process of the verifier gives the wrong verdict at every twelfth call."""
    calls = [0]

    def after(verdict: Any, *_: Any) -> Any:
        calls[0] += 1
        if calls[0] % 12:
            return verdict
        return replace(verdict, score=1.0 - verdict.score, passed=not verdict.passed)

    patch.after(VERIFY, after)


# -- hang ----------------------------------------------------------------------------------------


# a lock of a logger in a user's loss
@set_23("hang", "loss", "step", shape="own loss, impatient", backends=TRANSFORMERS,
        dtypes=("float32",))  # fmt: skip
def own_loss_never_comes_back(patch: Patch) -> None:
    """A user's loss does not come back from its fourth micro-batch."""
    at_call(patch, "rlvr_chaos:Plain.__call__", 4)


# a mounted folder that has gone
@set_23("hang", "data", "load", shape="impatient", dtypes=("float32",))
def rows_of_the_data_never_come(patch: Patch) -> None:
    """The file system does not answer when the rows of the data are read, before the start."""
    at_call(patch, "rlvr_core.builtin.datasets.jsonl:JsonLines.load", 1)


# -- resume --------------------------------------------------------------------------------------


# the numbers of a position are restored, and an iterator stands where it was made
@set_23("resume", "sampler", "problem", "draw", "repeat", "epoch", shape="own sampler", resume=True)
def own_sampler_restores_its_place_and_not_its_iterator(patch: Patch) -> None:
    """A user's sampler draws from an iterator that begins anew; its position says otherwise."""
    begun: dict[int, Any] = {}

    def every(sampler: Any) -> Any:
        yield from (sampler.problems[place] for place in sampler.order())

    def make(original: Any) -> Any:
        def choose(sampler: Any, n: int, step: int) -> Any:
            for _ in range(n):
                if id(sampler) not in begun:
                    begun[id(sampler)] = every(sampler)
                sampler.place += 1
                yield next(begun[id(sampler)])

        return choose

    patch.wrap("rlvr_chaos:Rounds.choose", make)


# a newer default of the config
@set_23("resume", "length", r"\bcap\b", "token", "cut off", "config", resume=True)
def resume_with_half_of_the_cap(patch: Patch) -> None:
    """A resumed run cuts completions off at 12 tokens, where its first half had 24."""

    def after(params: Any, *_: Any) -> Any:
        return replace(params, max_tokens=12)

    patch.after("rlvr_core.run.start:sampling_of", after)


# the same
@set_23("resume", "advantage", "estimator", "deviation", resume=True)
def resume_with_advantages_over_the_batch(patch: Patch) -> None:
    """A resumed run divides by the deviation of the whole batch, a newer default."""
    patch.set("rlvr_core.algorithm.advantages:Group.mode", "batch")


# a launcher with fewer machines, which scales what it can
@set_23("resume", "sampler", "group", "prompts", "problem", resume=True)
def resume_with_fewer_problems_a_step(patch: Patch) -> None:
    """A resumed run has five problems a step, where its first half had eight."""

    def make(original: Any) -> Any:
        def load(sampler: Any, state: Any) -> None:
            original(sampler, state)
            sampler.prompts_per_step = 5

        return load

    patch.wrap(f"{SAMPLER}:SamplerBase.load_state_dict", make)
