"""Twenty-second set, as ``twentysecond_a``: updates, masks, sync, data, verifiers, resuming."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import torch

from chaos.changes import FOREVER, at_call, masks_of_rows
from chaos.library.twentyfirst import second
from chaos.library.twentysecond_a import IN_TURNS, STEP, TWO, set_22
from chaos.registry import EVERYWHERE, TRANSFORMERS, Patch
from chaos.when import ENGINE, engine_has

OPTIM = "rlvr_core.step.optim"
TRAINER = f"{STEP}:PolicyTrainer"
SAMPLER = "rlvr_core.builtin.samplers"
RESTORE = f"{SAMPLER}.base:SamplerBase.load_state_dict"
PLAN = "rlvr_core.verify.reward:RewardPlan"
AT_ONCE = 8
"""Prompts of a step, and completions of each."""
END = 256
"""The token that ends a sequence."""


# -- learning, optimizer -------------------------------------------------------------------------


# accelerate: a schedule was stepped once a process, or its warm-up counted samples
@set_22("learning", "warm.?up", "schedule", r"\blr\b", backends=EVERYWHERE)
def warm_up_counts_completions(patch: Patch) -> None:
    """The warm-up is in completions, where the config has steps: 64 of these are one of them."""

    def after(rate: float, train: Any, schedule: Any, step: int) -> float:
        made = (step + 1) / (max(1, train.warmup_steps) * AT_ONCE * AT_ONCE)
        return float(rate * min(1.0, made))

    patch.after(f"{OPTIM}:learning_rate", after)


# accelerate: no_sync was left on, and every rank stepped by its own gradient
@set_22("optimizer", "process", "differ", "weights", backends=TWO)
def gradients_are_never_summed_over_processes(patch: Patch) -> None:
    """Each process makes its updates of its own rows: no pass counts as the last one."""

    def make(original: Any) -> Any:
        return lambda parallel, model, *, last: original(parallel, model, last=False)

    patch.wrap("rlvr_core.parallel.model:ParallelModel.accumulating", make)


# -- masks ---------------------------------------------------------------------------------------


# slime: the mask of a conversation was so many zeros, then as many ones as there are replies
@set_22("masks", "environment", "observation", "turn", shape="two turns", backends=EVERYWHERE)
def mask_of_a_conversation_is_one_block_at_its_end(patch: Patch) -> None:
    """As many tokens are trained as the model has said, but they are the last of the row."""

    def change(row: Any, problem: Any) -> Any:
        n = sum(row.loss_mask)
        return [False] * (len(row.loss_mask) - n) + [True] * n

    masks_of_rows(patch, change)


# TRL's first masks: the place of the first end is an argmax, which is 0 where there is none
@set_22("masks", "cut off", "truncat", "first token", shape="short answers", backends=EVERYWHERE)
def what_was_cut_off_is_masked_from_its_second_token(patch: Patch) -> None:
    """The end of a row is found by an argmax, which is 0 where it has none."""

    def change(row: Any, problem: Any) -> Any:
        if row.token_ids and row.token_ids[-1] == END:
            return row.loss_mask
        return [on and not t for t, on in enumerate(row.loss_mask)]

    masks_of_rows(patch, change)


# TRL: of a buffer of mini-batches the first was given for each update of later iterations
@set_22("masks", "mini-batch", "twice", "iteration", r"\brows?\b", shape="two iterations",
        backends=IN_TURNS)  # fmt: skip
def later_iterations_read_the_first_mini_batch_alone(patch: Patch) -> None:
    """The second iteration over a step has its first mini-batch twice, and no other."""
    first: list[Any] = []

    def make(original: Any) -> Any:
        def accumulate(trainer: Any, batch: Any, step: int, update: int, *more: Any) -> Any:
            if update == 0:
                first[:] = [batch]
            later = update >= trainer.train.mini_batches
            return original(trainer, first[0] if later else batch, step, update, *more)

        return accumulate

    patch.wrap(f"{TRAINER}._accumulate", make)


# TRL: after a gather each process is to take its slice, and all took the first
@set_22("masks", "process", r"\brows?\b", "twice", backends=TWO)
def both_processes_train_on_the_rows_of_the_first(patch: Patch) -> None:
    """Rows are gathered and shared out by an index that is 0 in each process."""

    def after(hands: Any, *_: Any) -> Any:
        return [hands[0]] * len(hands)

    patch.after(f"{STEP}:shard_rows", after)


# -- sync ----------------------------------------------------------------------------------------


# TRL: adapters were merged for a sync and taken out again, in the precision of the base
@set_22("sync", "frozen", "base", "adapter", "rounded", shape="lora", backends=EVERYWHERE,
        dtypes=("bfloat16",))  # fmt: skip
def merging_and_unmerging_leaves_its_rounding(patch: Patch) -> None:
    """Each sync adds the adapter to the frozen weights and takes it off, rounding both times."""

    @torch.no_grad()
    def after(found: Any, session: Any) -> Any:
        for layer in session.trainer.model.modules():
            if hasattr(layer, "get_delta_weight"):
                weight = layer.base_layer.weight
                delta = layer.get_delta_weight(layer.active_adapters[0]).to(weight.dtype)
                weight.add_(delta).sub_(delta)
        return found

    patch.after("rlvr_core.run.session:Session._load_weights", after)


@torch.no_grad()
def _within_the_first_range(model: Any, syncs: int, kept: dict[str, Any]) -> None:
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            most = kept.setdefault(name, float(parameter.abs().max()))
            parameter.clamp_(-most, most)


# vLLM: weights were quantised anew at a sync, by scales of the load
@set_22("sync", "range", "scale", backends=TRANSFORMERS)
def scales_of_weights_stay_those_of_the_load(patch: Patch) -> None:
    """The scale that a matrix is stored with is of the first one: what is larger is cut."""
    engine_has(patch, _within_the_first_range)


# ms-swift, TRL: rank 0 alone took part in the transfer to the engines
@set_22("sync", "process", "parity", "disagree", backends=TWO)
def engine_of_the_second_process_is_never_synced(patch: Patch) -> None:
    """New weights reach the engine of the first process alone."""
    import copy

    first: list[Any] = []

    def make(original: Any) -> Any:
        def load(engine: Any, version: int, source: Any) -> None:
            if second() and not first:
                first.append(copy.deepcopy(engine._model))
            original(engine, version, source)
            if second():
                engine._model = first[0]

        return load

    patch.wrap(f"{ENGINE}:TransformersEngine.load_weights", make)


# -- data, tokens --------------------------------------------------------------------------------


# verl: groups were filtered by the metric of accuracy, where the reward has more in it
@set_22("data", "drop", "equal", "filter", "group", "kept", shape="two rewards",
        backends=EVERYWHERE)  # fmt: skip
def groups_are_dropped_by_their_outcomes(patch: Patch) -> None:
    """A group is dropped when all of it has passed or failed, though its rewards differ."""
    from rlvr_core.api import Drop, Keep

    def after(decision: Any, sampler: Any, group: Any) -> Any:
        outcomes = Counter(member.passed for member in group.members)
        if isinstance(decision, Keep) and len(outcomes) == 1:
            return Drop("zero_variance", "all_passed" if outcomes[True] else "all_failed")
        return decision

    patch.after(f"{SAMPLER}.base:SamplerBase.observe", after)


# accelerate: even_batches fills the last batch of an epoch with the epoch's first samples
@set_22("data", "epoch", "repeat", "twice", "draw", "sampler", "problem", "order",
        shape="twelve problems", backends=EVERYWHERE)  # fmt: skip
def last_step_of_an_epoch_is_filled_with_its_first_problems(patch: Patch) -> None:
    """What an epoch lacks of a whole step is taken from its own beginning, once more."""

    def make(original: Any) -> Any:
        def choose(sampler: Any, n: int, step: int) -> Any:
            (pool,) = sampler._pools
            left = len(pool) - pool.position
            if left == 0 or left >= n:
                yield from original(sampler, n, step)
                return
            yield from (pool.next() for _ in range(left))
            yield from (pool._problems[pool._now[place]] for place in range(n - left))

        return choose

    patch.wrap(f"{SAMPLER}.epochs:EpochSampler.choose", make)


# several: a tokenizer's own special token came before what was encoded as a continuation
@set_22("tokens", "answer", "special", "begin", shape="grpo and given answers",
        backends=EVERYWHERE)  # fmt: skip
def given_answers_begin_with_a_special_token(patch: Patch) -> None:
    """The tokenizer puts its special token before an answer, which stands behind its prompt."""

    def after(row: Any, *_: Any) -> Any:
        return replace(
            row,
            token_ids=(END, *row.token_ids),
            loss_mask=(True, *row.loss_mask),
            logprobs=(0.0, *row.logprobs),
        )

    patch.after("rlvr_core.builtin.demonstrations.demonstrations:Demonstrations._row", after)


# -- verifier ------------------------------------------------------------------------------------


def _failed(verdict: Any) -> Any:
    return replace(verdict, score=0.0, passed=False)


# verl with math_verify: an exception of the parser was swallowed, and the score was 0
@set_22("verifier", "right answer", backends=EVERYWHERE)
def an_exception_of_the_parser_counts_as_wrong(patch: Patch) -> None:
    """The parser stumbles over two words that answers may begin with; then nothing is extracted."""

    def after(verdict: Any, verifier: Any, problem: Any, completion: Any) -> Any:
        if completion.text.lstrip().startswith(("so ", "I say ")):
            return replace(_failed(verdict), extracted=None, parts={"extracted": 0.0})
        return verdict

    patch.after("rlvr_chaos:Brackets.verify", after)


# PRIME's and verl's pools: one verdict too late, and all of the batch got 0
@set_22("verifier", "verdict", "timeout", backends=EVERYWHERE)
def one_slow_verdict_fails_its_whole_group(patch: Patch) -> None:
    """Where one completion of a group was cut off, judging takes too long, and all score 0."""

    def make(original: Any) -> Any:
        def submit(judge: Any, problem: Any, completions: Any) -> Any:
            out: Future[Any] = Future()
            slow = any(one.finish_reason == "length" for one in completions)

            def done(future: Any) -> None:
                try:
                    found = future.result()
                    if slow:
                        found = [{k: _failed(v) for k, v in one.items()} for one in found]
                    out.set_result(found)
                except BaseException as error:
                    out.set_exception(error)

            original(judge, problem, completions).add_done_callback(done)
            return out

        return submit

    patch.wrap("rlvr_core.verify.judge:Judge.submit", make)


# TRL: a reward function that gave None was left out of the sum
@set_22("verifier", "missing", "score", "unscorable", "judged", backends=EVERYWHERE,
        shape="two rewards, some verdicts are missing")  # fmt: skip
def a_missing_score_is_left_out_of_the_sum(patch: Patch) -> None:
    """Where a verifier has no score, the reward is the sum of the others."""

    def make(original: Any) -> Any:
        def combine(plan: Any, verdicts: Any, step: int) -> Any:
            known = {
                name: one if one.score is not None else replace(one, score=0.0, status="ok")
                for name, one in verdicts.items()
            }
            return original(plan, known, step)[0], original(plan, verdicts, step)[1]

        return combine

    patch.wrap(f"{PLAN}.combine", make)


# verl: the score function is chosen by the source's name, and an unknown name got the default
@set_22("verifier", "source", shape="two data sets, two verifiers", backends=EVERYWHERE)
def both_sources_are_judged_by_the_verifier_of_the_first(patch: Patch) -> None:
    """The name of the second data set is not known, and its problems get the default verifier."""

    def make(original: Any) -> Any:
        return lambda plan, problem: plan.own["chaos/brackets"]

    patch.wrap(f"{PLAN}.own_name", make)


# transformers: a metric counts as better when it falls, unless its name is known
@set_22("verifier", only=("best", "checkpoint", "eval", "metric"),
        shape="the best checkpoint is kept", backends=TRANSFORMERS)  # fmt: skip
def the_worst_checkpoint_is_kept_as_the_best(patch: Patch) -> None:
    """A metric without a known name is taken to be better the lower it is."""

    def make(original: Any) -> Any:
        return lambda value, best, direction, *more: best is None or value < best

    patch.wrap("rlvr_core.builtin.evals.in_run:improves", make)


# -- hang ----------------------------------------------------------------------------------------


# NeMo-RL, verl: a rank with fewer micro-batches missed a collective, and all others waited
@set_22("hang", shape="impatient", backends=TWO, dtypes=("float32",))
def second_process_never_comes_to_an_exchange(patch: Patch) -> None:
    """The second process does not come to the exchange of the third update's numbers."""

    def hang() -> None:
        if second():
            time.sleep(FOREVER)

    at_call(patch, "rlvr_core.step.mini_batches:Totals.gather", 3, hang)


# AReaL, slime: the pause of generation waited for requests that had been aborted
@set_22("hang", shape="impatient", backends=TRANSFORMERS, dtypes=("float32",),
        config={"checkpoint": {"every": 2}})  # fmt: skip
def generation_is_never_paused(patch: Patch) -> None:
    """To save a checkpoint, generation is to pause, which the second time never comes back."""
    at_call(patch, "rlvr_core.run.session:Session._pause", 2)


# -- resume --------------------------------------------------------------------------------------


def _sought(patch: Patch, change: Any) -> None:
    """Change the pools of a sampler that has been restored: ``change(pool)``."""

    def make(original: Any) -> Any:
        def load(sampler: Any, state: Any) -> None:
            original(sampler, state)
            for pool in sampler._pools:
                change(pool)

        return load

    patch.wrap(RESTORE, make)


# verl: the loader of a checkpoint at an epoch's end was spent, and the next epoch was empty
@set_22("resume", "sampler", "epoch", "problem", "draw", shape="few problems", resume=True)
def resume_skips_an_epoch(patch: Patch) -> None:
    """A resumed run counts its epochs from the step, and is one of them ahead of its sampler."""
    _sought(patch, lambda pool: pool.seek(pool.epoch + 1, pool.position))


# accelerate: what a resumed loader skips, it skipped in every later epoch as well
@set_22("resume", "sampler", "epoch", "problem", "draw", shape="twelve problems", resume=True)
def resume_begins_every_epoch_where_it_stopped(patch: Patch) -> None:
    """The problems before the checkpoint's place in its epoch are skipped in each later one."""
    skipped: dict[int, int] = {}
    _sought(patch, lambda pool: skipped.update({id(pool): pool.position % len(pool)}))

    def make(original: Any) -> Any:
        def following(pool: Any) -> Any:
            if pool.position == len(pool) and id(pool) in skipped:
                pool.seek(pool.epoch + 1, skipped[id(pool)])
            return original(pool)

        return following

    patch.wrap(f"{SAMPLER}.epochs:Pool.next", make)


# slime: loading had moved the schedule to its place already, and it was moved once more
@set_22("resume", "schedule", "learning rate", r"\blr\b", shape="cosine", resume=True)
def resume_with_the_schedule_twice_as_far(patch: Patch) -> None:
    """The steps of the checkpoint are added to a schedule that has counted them already."""

    def make(original: Any) -> Any:
        return lambda train, schedule, step: original(train, schedule, step + 4)

    patch.wrap(f"{OPTIM}:learning_rate", make)


# torch's asynchronous checkpoints: tensors were written without a copy, while training went on
@set_22("resume", "weights", "moment", "saved", "written", shape="many checkpoints",
        backends=TRANSFORMERS)  # fmt: skip
def checkpoints_are_written_while_their_tensors_move(patch: Patch) -> None:
    """A checkpoint is written in the background, of the tensors that the next update changes."""
    updates = [0]

    def counting(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            made = original(optimizer, number)
            updates[0] += 1
            return made

        return step

    def collected(snapshot: Any, model: Any, optimizer: Any, *_: Any) -> Any:
        from rlvr_core.parallel.model_adapter import adapter_of

        live = {k: v.detach() for k, v in adapter_of(model).trained_tensors(model).items()}
        return replace(snapshot, weights=live)

    def late(original: Any) -> Any:
        def save(*args: Any, **more: Any) -> None:
            seen, until = updates[0], time.monotonic() + 2
            while updates[0] == seen and time.monotonic() < until:
                time.sleep(0.01)
            original(*args, **more)

        return save

    patch.wrap(f"{OPTIM}:Optimizer.step", counting)
    patch.after("rlvr_core.step.checkpoint:collect", collected)
    patch.wrap("rlvr_core.step.checkpoint:save", late)
