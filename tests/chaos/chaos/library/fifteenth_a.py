"""Fifteenth set, written without reading the guards: engine, tokens, data, verdicts, turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from chaos.changes import at_call, by_group, estimated, masks_of_rows
from chaos.registry import EVERYWHERE, TRANSFORMERS, Patch, fault
from chaos.when import DECODE, ENGINE, engine_has

COLLECT = "rlvr_core.rollout.collect"
FORWARD = "rlvr_core.step.forward"
TURNS = "rlvr_core.builtin.environments.turns:TurnTaking"
POOL = "rlvr_core.builtin.samplers.epochs:Pool"
COMBINE = "rlvr_core.verify.reward:RewardPlan.combine"
LENGTHS = "prompts of many lengths"
CAP = 12
"""Tokens of the shape ``masked truncation``."""
CHUNK = 4
"""Completions of a chunk of the shape ``groups that grow``."""


def fifteenth(
    cls: str, *more_words: str, **options: Any
) -> Callable[[Callable[[Patch], None]], None]:
    """Declare a fault of the fifteenth set, like ``fault``."""
    return fault(cls, *more_words, set=15, **options)


# -- parity --------------------------------------------------------------------------------------


@fifteenth("parity", "temperature", "normal", shape="cool", backends=EVERYWHERE)
def log_probs_divided_by_the_temperature_after_the_softmax(patch: Patch) -> None:
    """The trainer divides log-probs by the temperature, not the logits that they are made of."""

    def make(original: Any) -> Any:
        def logprobs(*args: Any, temperature: float, **more: Any) -> Any:
            logp_N, entropy_N = original(*args, temperature=1.0, **more)
            return logp_N / temperature, entropy_N

        return logprobs

    patch.wrap(f"{FORWARD}:fused_logprobs", make)


@fifteenth("parity", "precision", "half", "attention", "round", shape="own forward",
           dtypes=("float32",), backends=TRANSFORMERS)  # fmt: skip
def trainers_attention_in_half_precision(patch: Patch) -> None:
    """A kernel takes only half precision: queries, keys and values of the trainer are rounded."""
    within = [0]

    def rows(original: Any) -> Any:
        def whole(*args: Any) -> Any:
            within[0] += 1
            try:
                return original(*args)
            finally:
                within[0] -= 1

        return whole

    def make(original: Any) -> Any:
        def attend(query: Any, key: Any, value: Any, *args: Any, **more: Any) -> Any:
            if within[0]:
                query, key, value = (one.bfloat16().to(one.dtype) for one in (query, key, value))
            return original(query, key, value, *args, **more)

        return attend

    patch.wrap("torch.nn.functional:scaled_dot_product_attention", make)
    patch.wrap(f"{FORWARD}:whole_rows", rows)


@fifteenth("parity", "prompt", "attention", "causal", "mask", shape="own forward",
           backends=TRANSFORMERS)  # fmt: skip
def tokens_of_a_prompt_see_one_another_in_training(patch: Patch) -> None:
    """The trainer's mask is a prefix model's: the tokens of a prompt attend to later ones, too."""

    def make(original: Any) -> Any:
        def whole(module: Any, batch: Any) -> Any:
            host = batch.host
            prompt_B11 = host.prompt_len_S[host.prompt_of_row_B][:, None, None]

            def computed(**given: Any) -> Any:
                place_L = torch.arange(given["input_ids"].shape[1])
                causal_LL = place_L[:, None] >= place_L
                inside_BLL = (place_L[:, None] < prompt_B11) & (place_L < prompt_B11)
                return module(**given, attention_mask=(causal_LL | inside_BLL)[:, None])

            return original(computed, batch)

        return whole

    patch.wrap(f"{FORWARD}:whole_rows", make)


@fifteenth("parity", "dropout", "adapter", "lora", shape="lora without kl", backends=TRANSFORMERS)
def adapters_dropout_is_on_while_sampling(patch: Patch) -> None:
    """Training mode of the adapter's dropout outlasts the step: the engine drops a tenth, too."""

    def make(original: Any) -> Any:
        def called(decoder: Any, *args: Any) -> Any:
            dropped = [
                one
                for name, one in decoder._model.named_modules()
                if "lora_dropout" in name and isinstance(one, torch.nn.Dropout)
            ]
            for one in dropped:
                one.training = True
            try:
                return original(decoder, *args)
            finally:
                for one in dropped:
                    one.training = False

        return called

    patch.wrap(f"{ENGINE}:TransformersEngine._fast", lambda original: lambda engine: None)
    patch.wrap(f"{DECODE}:HuggingFaceDecoder.prefill", make)
    patch.wrap(f"{DECODE}:HuggingFaceDecoder.step", make)


# -- sync ----------------------------------------------------------------------------------------


@fifteenth("sync", "adapter", "lora", "mlp", "parity", shape="lora", backends=TRANSFORMERS)
def adapters_of_the_mlp_unknown_to_the_engine(patch: Patch) -> None:
    """The engine knows adapters of attention alone, and skips those of the MLP without a word."""

    @torch.no_grad()
    def change(model: Any, syncs: int, kept: dict[str, Any]) -> None:
        for name, one in model.named_parameters():
            if ".mlp." in name and "lora_B" in name:
                one.zero_()

    engine_has(patch, change)


@fifteenth("sync", "embedding", "row", "vocab", "head")
def rows_of_tokens_that_a_step_did_not_have_stay_behind(patch: Patch) -> None:
    """Of the embedding a sync sends the rows of tokens that were trained on; all rows have moved.

    The rows of other tokens move because the embedding is the head, too.
    """
    seen: set[int] = set()
    old: dict[str, Any] = {}

    def make(original: Any) -> Any:
        def update(trainer: Any, groups: Any, step: int, version: int) -> Any:
            weight = trainer.model.get_input_embeddings().weight
            old.setdefault("rows", weight.detach().clone())
            seen.clear()
            for group in groups:
                for member in group.members:
                    seen.update(member.completion.prompt_ids, member.completion.token_ids)
            return original(trainer, groups, step, version)

        return update

    @torch.no_grad()
    def change(model: Any, syncs: int, kept: dict[str, Any]) -> None:
        weight = model.get_input_embeddings().weight
        unseen = [row for row in range(len(weight)) if row not in seen]
        weight[unseen] = old["rows"][unseen]
        old["rows"] = weight.clone()

    patch.wrap("rlvr_core.step.step:PolicyTrainer.update", make)
    engine_has(patch, change)


# -- sampling, seeds -----------------------------------------------------------------------------


@fifteenth("sampler", "parity", "disagree", "log-?prob", shape="very hot, top p and top k")
def top_p_taken_of_all_tokens_before_top_k(patch: Patch) -> None:
    """Top-p is taken of the whole distribution, and top-k of what that leaves, as elsewhere."""

    def make(original: Any) -> Any:
        def both(logits_BV: Any, top_k_B1: Any, top_p_B1: Any) -> None:
            original(logits_BV, None, top_p_B1)
            original(logits_BV, top_k_B1, None)

        return both

    patch.wrap(f"{DECODE}:_filter", make)


@fifteenth("seeds", "random", "reproduc", backends=EVERYWHERE)
def runs_seed_never_reaches_the_sampling(patch: Patch) -> None:
    """Seeds of completions are made with the default 0 for the run's: all runs sample alike."""

    def make(original: Any) -> Any:
        return lambda run_seed, *rest: original(0, *rest)

    patch.wrap(f"{COLLECT}:completion_seed", make)


# -- tokens, masks -------------------------------------------------------------------------------


@fifteenth("tokens", "turn", "conversation", "string", shape="two turns and a stop string",
           backends=TRANSFORMERS)  # fmt: skip
def stop_strings_forgotten_after_the_first_turn(patch: Patch) -> None:
    """Requests for later turns are made anew, and have the defaults: no stop string."""

    def make(original: Any) -> Any:
        def ask(taking: Any, group: Any) -> None:
            ticket = group[0].ticket
            stop = ticket.stop
            if group[0].n_turns:
                ticket.stop = ()
            try:
                original(taking, group)
            finally:
                ticket.stop = stop

        return ask

    patch.wrap(f"{TURNS}._ask", make)


@fifteenth("masks", "truncat", "cut off", "cap", "length", shape="masked truncation",
           backends=EVERYWHERE)  # fmt: skip
def rows_that_end_at_the_cap_count_as_cut_off(patch: Patch) -> None:
    """What has as many tokens as the cap counts as cut off, though it ended with its last one."""
    masks_of_rows(
        patch,
        lambda row, problem: [mine and len(row.token_ids) < CAP for mine in row.loss_mask],
    )


@fifteenth("masks", "prompt", "given answer", "demonstrat", "imitat", "sft",
           shape="grpo and given answers", backends=EVERYWHERE)  # fmt: skip
def prompts_of_given_answers_are_imitated_too(patch: Patch) -> None:
    """Fine-tuning on whole texts is left on: prompts of answers to imitate are trained on, too."""

    def after(row: Any, *_: Any) -> Any:
        prompt, n = row.prompt_ids, len(row.prompt_ids) - 1 + len(row.token_ids)
        return replace(
            row,
            prompt_ids=prompt[:1],
            token_ids=(*prompt[1:], *row.token_ids),
            loss_mask=(True,) * n,
            logprobs=(0.0,) * n,
        )

    patch.after("rlvr_core.builtin.demonstrations.demonstrations:Demonstrations._row", after)


# -- data ----------------------------------------------------------------------------------------


@fifteenth("data", "draw", "length", "order", "shuffl", "sampler", shape=LENGTHS,
           backends=EVERYWHERE)  # fmt: skip
def problems_of_one_length_are_drawn_together(patch: Patch) -> None:
    """Grouping by length, which saves padding, is left on: a step has prompts of one length."""

    def after(order: Any, pool: Any, epoch: int) -> Any:
        problems = vars(pool).get("_problems", {})
        return sorted(order, key=lambda id_: len(problems[id_].prompt)) if problems else order

    patch.after(f"{POOL}._order", after)


@fifteenth("data", "draw", "order", "shuffl", "sampler", "seed", "reproduc", backends=EVERYWHERE)
def epochs_shuffled_by_pythons_salted_hash(patch: Patch) -> None:
    """The order of an epoch is that of Python's own hash, another one in each process."""

    def after(order: Any, pool: Any, epoch: int) -> Any:
        return sorted(order, key=lambda id_: hash((epoch, id_)))

    patch.after(f"{POOL}._order", after)


@fifteenth("data", "limit", "draw", "source", "rows", shape="two data sets", backends=EVERYWHERE)
def limit_of_a_source_taken_for_where_it_begins(patch: Patch) -> None:
    """The limit on the rows of a source is taken for the number of rows to skip."""

    def make(original: Any) -> Any:
        return lambda rows, limit: original(rows, limit or 0, None)

    patch.wrap("rlvr_core.builtin.datasets.jsonl:islice", make)


@fifteenth("data", "draw", "drop", "group", "length", "long", "straggler")
def slowest_group_of_each_step_is_dropped(patch: Patch) -> None:
    """Oversampling of another recipe is left on: the group with most tokens is not waited for."""
    from rlvr_core.api import Drop

    def after(rollouts: Any, *_: Any, **more: Any) -> Any:
        if len(rollouts.kept) > 1:
            slowest = max(
                rollouts.kept,
                key=lambda one: sum(len(m.completion.token_ids) for m in one.group.members),
            )
            rollouts.kept = [one for one in rollouts.kept if one is not slowest]
            rollouts.dropped.append(replace(slowest, drop=Drop("too_long")))
        return rollouts

    patch.after("rlvr_core.rollout.source:collect", after)


# -- verifiers, environments ---------------------------------------------------------------------


@fifteenth("verifier", "environment", "conversation", "turn", "reply", shape="two turns",
           backends=TRANSFORMERS)  # fmt: skip
def environment_is_given_all_that_was_said(patch: Patch) -> None:
    """An environment is given all turns of the model as one text, not the newest one."""

    def make(original: Any) -> Any:
        def step(environment: Any, state: Any, reply: Any) -> Any:
            state["said"] = state.get("said", "") + reply.text
            return original(environment, state, replace(reply, text=state["said"]))

        return step

    patch.wrap("rlvr_chaos:Again.step", make)


@fifteenth("tokens", "environment", "conversation", "turn", "observation", shape="two turns",
           backends=TRANSFORMERS)  # fmt: skip
def observations_are_said_twice(patch: Patch) -> None:
    """What an environment says is put behind a turn by two wrappers: the model reads it twice."""

    def make(original: Any) -> Any:
        return lambda one, messages, ids: original(one, messages, (*ids, *ids))

    patch.wrap("rlvr_core.builtin.environments.conversation:Conversation.hear", make)


@fifteenth("verifier", "weight", "sign", "sum", shape="rewards below zero", backends=EVERYWHERE)
def negative_weights_of_rewards_lose_their_sign(patch: Patch) -> None:
    """Weights are made positive, as for a mean: what was to cost something earns it."""

    def make(original: Any) -> Any:
        def combine(plan: Any, *args: Any) -> Any:
            terms = tuple(replace(term, weight=abs(term.weight)) for term in plan.terms)
            return original(replace(plan, terms=terms), *args)

        return combine

    patch.wrap(COMBINE, make)


@fifteenth("verifier", "missing", "unscor", "judged", shape="some verdicts are missing",
           backends=EVERYWHERE)  # fmt: skip
def what_could_not_be_judged_counts_as_wrong(patch: Patch) -> None:
    """A completion without a verdict has the reward 0, as a wrong one."""

    def after(found: Any, *_: Any) -> Any:
        return found if found[0] is not None else (0.0, False)

    patch.after(COMBINE, after)


@fifteenth("verifier", "scale", "deviation", "sum", backends=EVERYWHERE)
def rewards_divided_by_their_running_deviation(patch: Patch) -> None:
    """A wrapper of other environments is left on: rewards are divided by their deviation so far."""
    seen: list[float] = []

    def after(found: Any, *_: Any) -> Any:
        reward, passed = found
        if reward is None:
            return found
        seen.append(reward)
        return reward / max(float(np.std(seen)), 0.2), passed

    patch.after(COMBINE, after)


# -- advantages ----------------------------------------------------------------------------------


def _normal(rewards: Any, baseline: float) -> Any:
    return (rewards - baseline) / max(float(rewards.std()), 1e-6)


@fifteenth("advantages", "baseline", "chunk", "mean", shape="groups that grow",
           backends=EVERYWHERE)  # fmt: skip
def baseline_of_a_grown_group_is_that_of_its_first_chunk(patch: Patch) -> None:
    """The mean of a group is taken when its first four are there, and kept when it grows."""

    def change(row_N: Any, step: Any) -> Any:
        for places, rewards in by_group(step):
            row_N[places] = _normal(rewards, rewards[:CHUNK].mean())
        return row_N

    estimated(patch, change)


@fifteenth("advantages", "reward", "outcome", "passed", shape="two rewards", backends=EVERYWHERE)
def advantages_of_outcomes_not_of_rewards(patch: Patch) -> None:
    """Advantages are made of whether a completion passed: the second reward has no say."""

    def change(row_N: Any, step: Any) -> Any:
        passed_N = np.array([float(bool(member.passed)) for member in step.members])
        for places, _ in by_group(step):
            row_N[places] = _normal(passed_N[places], passed_N[places].mean())
        return row_N

    estimated(patch, change)


@fifteenth("advantages", "age", "stale", "discount", "scale", shape="two iterations ahead")
def advantages_discounted_by_the_age_of_their_group(patch: Patch) -> None:
    """A weight of another recipe is left on: each update of age takes a fifth off an advantage."""
    now = {}

    def make(original: Any) -> Any:
        def update(trainer: Any, groups: Any, step: int, version: int) -> Any:
            now["version"] = version
            return original(trainer, groups, step, version)

        return update

    def change(row_N: Any, step: Any) -> Any:
        age_G = np.array([now["version"] - group.version for group in step.groups])
        return row_N * 0.8 ** age_G[step.group_N]

    patch.wrap("rlvr_core.step.step:PolicyTrainer.update", make)
    estimated(patch, change)


@fifteenth("advantages", "combine", "normal", "scale", "sum",
           shape="rewards normalised each", backends=EVERYWHERE)  # fmt: skip
def sum_of_normalised_rewards_not_normalised_again(patch: Patch) -> None:
    """The weighted sum of rewards that were normalised one by one is not brought to deviation 1."""
    from rlvr_core.algorithm.advantages import advantages

    def change(row_N: Any, step: Any) -> Any:
        group_N, score_NK = torch.from_numpy(step.group_N), torch.from_numpy(step.score_NK)
        return sum(
            weight * advantages(score_NK[:, k], group_N, "group").advantage_N.numpy()
            for k, weight in enumerate(step.weights)
        )

    estimated(patch, change)


# -- hang ----------------------------------------------------------------------------------------


@fifteenth("hang", "eval", shape="evaluated while it learns",
           config={"run": {"timeout": 15}, "guards": {"max_wait": 20}})  # fmt: skip
def second_evaluation_never_ends(patch: Patch) -> None:
    """The second evaluation of a run waits for a service that does not answer."""
    at_call(patch, "rlvr_core.builtin.evals.in_run:evaluate", 2)
