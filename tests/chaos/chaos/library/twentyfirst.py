"""Twenty-first set, written without reading the guards: evaluations of several processes, engines,

and of ``rlvr eval``.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from chaos.registry import Patch, fault

COLLECT = "rlvr_core.rollout.collect"
EVALS = "rlvr_core.builtin.evals"
TWO = ("two processes",)
AFTERWARDS = ("rlvr eval",)
BY_ITSELF = ("child", "vllm")
ANYWHERE = ("two processes", "child", "vllm", "rlvr eval")
ASKED = "a third evaluated"
FIGURES = ("eval", "metric", "report", "record", "result")


def set_21(cls: str, *more_words: str, **options: Any) -> Callable[[Callable[[Patch], None]], None]:
    """Declare a fault of the twenty-first set, like ``fault``."""
    return fault(cls, "eval", *more_words, set=21, shape=ASKED, **options)


def rank() -> int:
    """The process of a run that this is."""
    return int(os.environ.get("RANK", "0"))


def evaluating(patch: Patch) -> list[bool]:
    """Whether an evaluation is just being sampled: a list of one truth value, which changes."""
    within = [False]

    def make(original: Any) -> Any:
        def called(*args: Any, **more: Any) -> Any:
            within[0] = True
            try:
                return original(*args, **more)
            finally:
                within[0] = False

        return called

    patch.wrap(f"{EVALS}.in_run:evaluate", make)
    patch.wrap(f"{EVALS}.evaluate:_sample", make)
    return within


def asked(
    patch: Patch, change: Callable[[Any, Any], Any], where: Callable[[], bool] = lambda: True
) -> None:
    """Change what evaluations ask of an engine: ``change(request, draw)``."""
    within = evaluating(patch)

    def after(request: Any, _: Any, draw: Any, *__: Any) -> Any:
        return change(request, draw) if within[0] and where() else request

    patch.after(f"{COLLECT}:Generator._request", after)


def with_params(**changes: Any) -> Callable[[Any, Any], Any]:
    """A change of a request's sampling parameters."""
    return lambda request, _: replace(request, params=replace(request.params, **changes))


def second() -> bool:
    """Whether this is the second process."""
    return rank() == 1


def woven(patch: Patch, change: Callable[[list[Any], int], list[Any]]) -> None:
    """Change the groups that processes put together: ``change(groups, processes)``."""
    within = evaluating(patch)

    def after(found: Any, ranks: Any, *_: Any) -> Any:
        return change(found, ranks.world) if within[0] else found

    patch.after("rlvr_core.parallel.ranks:Ranks.weave", after)


def another_answers(of: Any, by: Any) -> Any:
    """A group whose members are those of another group."""
    return replace(of, group=replace(of.group, members=by.group.members))


# -- how a completion is sampled -----------------------------------------------------------------


@set_21("sampler", backends=ANYWHERE)
def evaluations_are_cooler_than_they_say(patch: Patch) -> None:
    """A default of the server is laid over the task's temperature: 0.7 where the task says 1."""
    asked(patch, with_params(temperature=0.7))


@set_21("sampler", "greedy", backends=ANYWHERE)
def evaluations_take_the_likeliest_token(patch: Patch) -> None:
    """An evaluation is greedy, whatever its task says of the temperature."""
    asked(patch, with_params(temperature=0.0))


@set_21("sampler", backends=ANYWHERE)
def evaluations_leave_out_the_tail(patch: Patch) -> None:
    """Evaluations are sampled with top_p 0.8, which is left over from another task."""
    asked(patch, with_params(top_p=0.8))


@set_21("sampler", backends=TWO)
def second_process_evaluates_cooler(patch: Patch) -> None:
    """The second process alone evaluates at the temperature of training."""
    asked(patch, with_params(temperature=0.8), second)


@set_21("sampler", "greedy", backends=TWO)
def second_process_evaluates_greedily(patch: Patch) -> None:
    """The second process alone takes the likeliest token."""
    asked(patch, with_params(temperature=0.0), second)


@set_21("tokens", "length", "max_tokens", backends=ANYWHERE)
def evaluations_stop_early(patch: Patch) -> None:
    """A completion of an evaluation is cut off at 8 tokens, where the task says 24."""
    asked(patch, with_params(max_tokens=8))


@set_21("tokens", "length", "max_tokens", backends=TWO)
def second_process_stops_early(patch: Patch) -> None:
    """The second process cuts completions of an evaluation off at 8 tokens."""
    asked(patch, with_params(max_tokens=8), second)


# -- seeds ---------------------------------------------------------------------------------------


@set_21("seeds", "draw", backends=TWO)
def second_process_repeats_the_seeds_of_the_first(patch: Patch) -> None:
    """Seeds of an evaluation count from 1 in each process, so both draw the same numbers."""
    counted = [0]

    def change(request: Any, _: Any) -> Any:
        counted[0] += 1
        seeds = tuple(counted[0] * 1000 + i for i in range(len(request.seeds)))
        return replace(request, seeds=seeds)

    asked(patch, change)


@set_21("seeds", "draw", backends=ANYWHERE)
def completions_of_a_problem_share_a_seed(patch: Patch) -> None:
    """All completions of a problem in an evaluation are drawn with its first seed."""
    asked(patch, lambda r, _: replace(r, seeds=r.seeds[:1] * len(r.seeds)))


@set_21("seeds", "draw", backends=ANYWHERE)
def problems_of_an_evaluation_share_their_seeds(patch: Patch) -> None:
    """Seeds of an evaluation are those of the samples, 1 to n, the same for each problem."""
    asked(patch, lambda r, _: replace(r, seeds=tuple(range(1, 1 + len(r.seeds)))))


# -- what is put together ------------------------------------------------------------------------


@set_21("data", "problem", "completion", backends=TWO)
def part_of_the_first_process_counts_twice(patch: Patch) -> None:
    """What the first process sampled is gathered twice, and the second's part never."""
    woven(patch, lambda found, world: [found[i - i % world] for i in range(len(found))])


@set_21("data", "problem", "completion", "lost", backends=TWO)
def last_groups_are_lost_in_the_gather(patch: Patch) -> None:
    """Parts of unequal length are cut to the shortest when they are gathered, and by one more."""
    woven(patch, lambda found, world: found[: (len(found) - 1) // world * world])


@set_21("data", "problem", "completion", "verdict", "canar", backends=TWO)
def parts_are_gathered_in_another_order(patch: Patch) -> None:
    """Problems of the first process get the completions of the second, and the other way round."""

    def change(found: list[Any], _: int) -> list[Any]:
        other = [found[i ^ 1] if i ^ 1 < len(found) else found[i] for i in range(len(found))]
        return [another_answers(one, by) for one, by in zip(found, other, strict=True)]

    woven(patch, change)


@set_21("data", "problem", "completion", "prompt", backends=ANYWHERE)
def problems_are_answered_with_the_completion_before(patch: Patch) -> None:
    """Replies of a batch are read one place late: each problem has the answer to the one before."""
    before: list[Any] = []

    def change(request: Any, _: Any) -> Any:
        before.append(request)
        was = before[-2] if len(before) > 1 else request
        return replace(request, prompt_ids=was.prompt_ids, seeds=was.seeds)

    asked(patch, change)


@set_21("data", "prompt", "token", backends=ANYWHERE)
def prompts_of_evaluations_lack_their_end(patch: Patch) -> None:
    """The last token of each prompt is dropped in evaluations, taken for one that ends it."""
    asked(patch, lambda r, _: replace(r, prompt_ids=r.prompt_ids[:-1]))


# -- weights -------------------------------------------------------------------------------------


@set_21("sync", "parity", "log-?prob", "older", "another model", backends=TWO)
def second_process_evaluates_older_weights(patch: Patch) -> None:
    """The second process evaluates the weights of the evaluation before."""
    kept: list[Any] = []

    def make(original: Any) -> Any:
        def evaluate(named: Any, generator: Any, **more: Any) -> Any:
            engine = generator.engine
            engine = getattr(engine, "wrapped", engine)
            now = engine._model
            kept.append(copy.deepcopy(now))
            if second() and len(kept) > 1:
                engine._model = kept[-2]
            try:
                return original(named, generator, **more)
            finally:
                engine._model = now

        return evaluate

    patch.wrap(f"{EVALS}.in_run:evaluate", make)


@set_21("sync", "parity", "log-?prob", "older", "another model", "checkpoint", backends=AFTERWARDS)
def an_older_checkpoint_is_evaluated(patch: Patch) -> None:
    """The weights are of the oldest checkpoint of the run, and the record names the newest."""

    def make(original: Any) -> Any:
        def load(path: Any, *more: Any) -> Any:
            steps = sorted(Path(path).parent.glob("step*"))
            return original(str(steps[0]) if steps else path, *more)

        return load

    patch.wrap(f"{EVALS}.engine:load_policy", make)


@set_21("sync", "parity", "log-?prob", "weight", "another model", "checkpoint", backends=AFTERWARDS)
def a_layer_of_the_checkpoint_is_not_loaded(patch: Patch) -> None:
    """The names of one layer are not known to the loader, which leaves its beginning there."""

    def after(model: Any, *_: Any) -> Any:
        import torch

        torch.manual_seed(0)
        for name, one in model.named_parameters():
            if ".layers.1." in name and one.dim() == 2:
                torch.nn.init.normal_(one.data, std=0.02)
        return model

    patch.after(f"{EVALS}.engine:load_policy", after)


# -- verdicts and figures ------------------------------------------------------------------------


@set_21("verifier", only=FIGURES, backends=TWO)
def score_is_that_of_one_process(patch: Patch) -> None:
    """The score is computed of the groups of one process."""

    def make(original: Any) -> Any:
        return lambda task, groups: original(task, groups[::2])

    patch.wrap(f"{EVALS}.dataset_task:DatasetTask.score", make)


@set_21("verifier", only=FIGURES, backends=AFTERWARDS)
def accuracy_is_that_of_the_best_of_n(patch: Patch) -> None:
    """A problem counts as solved in the accuracy if one of its n completions has passed."""

    def after(found: Any, by_problem: Any, number: Any) -> Any:
        from rlvr_core.builtin.evals.stats import estimate

        values = [[number(row) for row in rows] for rows in by_problem.values()]
        known = [[float(one) for one in some if one is not None] for some in values]
        return estimate([max(some) for some in known if some])

    patch.after(f"{EVALS}.summary:average", after)


@set_21("verifier", only=FIGURES, backends=AFTERWARDS)
def accuracy_leaves_out_what_has_no_answer(patch: Patch) -> None:
    """Completions without an extracted answer are not counted in the accuracy at all."""

    def make(original: Any) -> Any:
        def summarise(results: Any) -> Any:
            def read(row: Any) -> bool:
                return any(one["extracted"] is not None for one in row["verdicts"].values())

            return original([row if read(row) else row | {"passed": None} for row in results])

        return summarise

    patch.wrap(f"{EVALS}.evaluate:summarise", make)


@set_21("verifier", only=(*FIGURES, "pass@", "pass_at_k"), backends=AFTERWARDS)
def pass_at_k_is_from_another_n(patch: Patch) -> None:
    """pass@k takes k completions to have been drawn, where n were: the share of k that passed."""

    def make(original: Any) -> Any:
        return lambda n, correct, k: original(max(n // 2, k), min(correct, max(n // 2, k)), k)

    patch.wrap(f"{EVALS}.passk:pass_at_k", make)


@set_21("verifier", "verdict", "result", "judg", "canar", backends=AFTERWARDS)
def last_verdicts_come_after_the_results(patch: Patch) -> None:
    """Results are written before the last verdicts are there: the last of each group has failed."""

    def make(original: Any) -> Any:
        def write(store: Any, problem: Any, prompt: Any, members: Any) -> Any:
            late = {name: replace(one, score=0.0, passed=False)
                    for name, one in members[-1].verdicts.items()}  # fmt: skip
            last = replace(members[-1], reward=0.0, passed=False, verdicts=late)
            return original(store, problem, prompt, [*members[:-1], last])

        return write

    patch.wrap(f"{EVALS}.store:Store.write", make)


@set_21("seeds", "draw", "result", "record", backends=AFTERWARDS)
def first_completion_is_stored_for_all(patch: Patch) -> None:
    """The rows of a group are written from one buffer: all its completions are the first."""

    def make(original: Any) -> Any:
        def write(store: Any, problem: Any, prompt: Any, members: Any) -> Any:
            return original(store, problem, prompt, [members[0]] * len(members))

        return write

    patch.wrap(f"{EVALS}.store:Store.write", make)


@set_21("tokens", "text", "decode", backends=("two processes", "rlvr eval"))
def texts_of_evaluations_lack_their_last_token(patch: Patch) -> None:
    """The text that is judged in an evaluation ends one token before the completion does."""
    within = evaluating(patch)

    def after(found: Any, *_: Any) -> Any:
        return replace(found, text=found.text[:-1]) if within[0] else found

    patch.after(f"{COLLECT}:_completion", after)
