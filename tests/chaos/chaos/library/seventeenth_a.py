"""Seventeenth set, written without reading the guards: engine, tokens, data, verdicts, turns."""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from chaos.changes import by_group, estimated
from chaos.registry import DTYPES, EVERYWHERE, TRANSFORMERS, Patch, fault
from chaos.when import DECODE, ENGINE, engine_has, while_sampling

COLLECT = "rlvr_core.rollout.collect"
TURNS = "rlvr_core.builtin.environments.turns"
QWEN = "transformers.models.qwen3.modeling_qwen3"
TRIED = 4
"""Rows of what a forward path is tried out with, at most; a micro-batch has more."""
SLOTS = 2
"""Adapters that an engine holds at a time."""


def seventeenth(
    cls: str, *more_words: str, **options: Any
) -> Callable[[Callable[[Patch], None]], None]:
    """Declare a fault of the seventeenth set, like ``fault``."""
    return fault(cls, *more_words, set=17, **options)


# -- parity --------------------------------------------------------------------------------------


@seventeenth("parity", "pack", "first token", "boundar", backends=EVERYWHERE)
def first_tokens_are_read_off_the_row_before(patch: Patch) -> None:
    """In a pack the token before a row's first is taken for its predictor: another row's last."""

    def make(original: Any) -> Any:
        def predictors(batch: Any) -> Any:
            places_M, host = original(batch), batch.host
            if len(host.prompt_of_row_B) <= TRIED:
                return places_M
            row_M, t_M = host.mask_BT.nonzero(as_tuple=True)
            fed_B = host.fed_lengths()
            before_B = int(host.prompt_len_S.sum()) + fed_B.cumsum(0) - fed_B - 1
            return torch.where(batch.send(t_M == 0), batch.send(before_B[row_M]), places_M)

        return predictors

    patch.wrap("rlvr_core.builtin.packing.packed:predictors", make)


@seventeenth("parity", "attention", "softmax", "sink", backends=TRANSFORMERS)
def engines_attention_has_a_sink(patch: Patch) -> None:
    """The engine's kernel is another model's: 1 is added to what its softmax is divided by."""
    within = while_sampling(patch)

    def make(original: Any) -> Any:
        def attend(q: Any, k: Any, v: Any, *args: Any, **more: Any) -> Any:
            out = original(q, k, v, *args, **more)
            if not within[0]:
                return out
            score = q.float() @ k.float().repeat_interleave(q.shape[1] // k.shape[1], 1).mT
            score = score * (more.get("scale") or q.shape[-1] ** -0.5)
            mask = more.get("attn_mask")
            if more.get("is_causal"):
                mask = torch.ones(score.shape[-2:], dtype=torch.bool).tril()
            if mask is not None and mask.dtype == torch.bool:
                score = score.masked_fill(~mask, -torch.inf)
            elif mask is not None:
                score = score + mask
            return out * score.logsumexp(-1, keepdim=True).sigmoid().to(out.dtype)

        return attend

    patch.wrap("torch.nn.functional:scaled_dot_product_attention", make)


@seventeenth("parity", "activation", "gelu", "silu", "mlp", backends=TRANSFORMERS)
def engines_gate_is_that_of_another_family(patch: Patch) -> None:
    """The engine's fused MLP knows one activation, GELU, where the model has SiLU."""
    within = while_sampling(patch)

    def make(original: Any) -> Any:
        def forward(mlp: Any, x: Any) -> Any:
            if not within[0]:
                return original(mlp, x)
            own, mlp.act_fn = mlp.act_fn, torch.nn.GELU(approximate="tanh")
            try:
                return original(mlp, x)
            finally:
                mlp.act_fn = own

        return forward

    patch.wrap(f"{QWEN}:Qwen3MLP.forward", make)


@seventeenth("parity", "precision", "bfloat16", "float32", "head", "logit", "round",
             backends=EVERYWHERE, dtypes=DTYPES[:1])  # fmt: skip
def trainers_head_in_half_precision(patch: Patch) -> None:
    """The trainer of a float32 run multiplies hidden states and LM head in bfloat16."""

    def make(original: Any) -> Any:
        def logprobs(hidden_NH: Any, weight_VH: Any, target_N: Any, **more: Any) -> Any:
            rounded = (
                one if one.dtype == torch.bfloat16 else one.bfloat16().to(one.dtype)
                for one in (hidden_NH, weight_VH)
            )
            return original(*rounded, target_N, **more)

        return logprobs

    patch.wrap("rlvr_core.step.forward:fused_logprobs", make)


# -- sampling ------------------------------------------------------------------------------------


@seventeenth("sampler", "likel", "seed", "best of", "probab", backends=TRANSFORMERS)
def best_half_of_twice_as_many_is_kept(patch: Patch) -> None:
    """Best-of is left on: twice as many are sampled, and the likelier half of them returned."""

    def make(original: Any) -> Any:
        def submit(engine: Any, request: Any) -> Any:
            wanted: Future[Any] = Future()
            n = len(request.seeds)
            more = tuple((3 * seed + 1) % 2**63 for seed in request.seeds)

            def done(sampled: Any) -> None:
                try:
                    found = sampled.result()
                    order = sorted(range(len(found)), key=lambda i: -sum(found[i].logprobs))
                    wanted.set_result(tuple(found[i] for i in sorted(order[:n])))
                except BaseException as error:
                    wanted.set_exception(error)

            future = original(engine, replace(request, seeds=(*request.seeds, *more)))
            future.add_done_callback(done)
            return wanted

        return submit

    patch.wrap(f"{ENGINE}:TransformersEngine.submit", make)


@seventeenth("seeds", "turn", "conversation", "environment", shape="two turns",
             backends=TRANSFORMERS)  # fmt: skip
def members_of_a_group_share_the_seed_of_their_second_turn(patch: Patch) -> None:
    """A later turn is seeded by the request's first seed, whichever member of it speaks."""
    first = [0]

    def ask(original: Any) -> Any:
        def called(taking: Any, group: Any) -> Any:
            first[0] = group[0].ticket.request.seeds[0]
            return original(taking, group)

        return called

    def seed(original: Any) -> Any:
        return lambda own, turn: original(first[0] if turn else own, turn)

    patch.wrap(f"{TURNS}:TurnTaking._ask", ask)
    patch.wrap(f"{TURNS}:turn_seed", seed)


# -- tokens, masks -------------------------------------------------------------------------------


@seventeenth("tokens", "finish", "string",
             shape="every other prompt has the stop string", backends=TRANSFORMERS)  # fmt: skip
def stop_strings_are_looked_for_in_the_prompt_too(patch: Patch) -> None:
    """A stopping criterion reads the whole text: what a prompt has ends its completions at once."""
    holds = [torch.zeros(0, dtype=torch.bool)]

    def sampling(original: Any) -> Any:
        def decode(
            decoder: Any, prompts: Any, plans: Any, *, stop_strings: Any, **more: Any
        ) -> Any:
            holds[0] = torch.tensor(
                [
                    any(stop in stop_strings.text(prompt) for stop in plan.params.stop)
                    for prompt, rows in zip(prompts, plans, strict=True)
                    for plan in rows
                ]
            )
            return original(decoder, prompts, plans, stop_strings=stop_strings, **more)

        return decode

    def after(end_K: Any, ends: Any, token_K: Any, open_K: Any, alive_K: Any, *_: Any) -> Any:
        return end_K | holds[0][alive_K]

    patch.wrap(f"{ENGINE}:decode", sampling)
    patch.after(f"{DECODE}:_Ends.reached", after)


@seventeenth("tokens", r"\bcap\b", "turn", "length", "limit", "longer", "environment",
             shape="two turns, capped each", backends=TRANSFORMERS)  # fmt: skip
def cap_of_a_turn_is_forgotten(patch: Patch) -> None:
    """A turn may take all the room that the conversation has: its own cap is not passed on."""

    def make(original: Any) -> Any:
        def init(taking: Any, *args: Any) -> None:
            original(taking, *args)
            taking._section = taking._section.model_copy(update={"max_turn_tokens": None})

        return init

    patch.wrap(f"{TURNS}:TurnTaking.__init__", make)


@seventeenth("masks", "turn", "conversation", "environment", shape="two turns",
             backends=TRANSFORMERS)  # fmt: skip
def only_the_last_turn_is_trained(patch: Patch) -> None:
    """As for fine-tuning on chats, of the model's turns the last one alone is in the loss."""

    def after(mask: Any, *_: Any) -> Any:
        end = max((place for place, own in enumerate(mask) if own), default=-1)
        begin = end
        while begin > 0 and mask[begin - 1]:
            begin -= 1
        return tuple(own and place >= begin for place, own in enumerate(mask))

    patch.after("rlvr_core.builtin.environments.conversation:Branch.sampled", after)


@seventeenth("masks", "version", "stale", "weights", shape="kept in flight, generation behind")
def tokens_of_older_weights_are_masked(patch: Patch) -> None:
    """Of a completion that was under way when weights came, what is older is left out."""

    def after(completion: Any, *_: Any) -> Any:
        versions = completion.token_versions
        if not versions:
            return completion
        pairs = zip(completion.loss_mask, versions, strict=True)
        newest = max(versions)
        return replace(completion, loss_mask=tuple(own and v == newest for own, v in pairs))

    patch.after(f"{COLLECT}:_completion", after)


# -- sync ----------------------------------------------------------------------------------------


@seventeenth("sync", "adapter", "lora", "cache", "parity", "disagree", shape="lora",
             backends=TRANSFORMERS)  # fmt: skip
def adapters_are_cached_under_the_number_of_their_slot(patch: Patch) -> None:
    """An engine with two slots for adapters keeps what each of them was first filled with."""

    @torch.no_grad()
    def change(model: Any, syncs: int, kept: dict[str, Any]) -> None:
        ours = {name: one for name, one in model.named_parameters() if ".lora_" in name}
        slot = kept.setdefault(
            f"slot {syncs % SLOTS}", {name: one.clone() for name, one in ours.items()}
        )
        for name, one in ours.items():
            one.copy_(slot[name])

    engine_has(patch, change)


@seventeenth("sync", "reference", "average", "parity", "disagree", shape="ema reference")
def engine_is_given_the_moving_reference(patch: Patch) -> None:
    """Two models of one class are mixed up: the engine has the average, not the policy."""
    references: list[Any] = []

    def make(original: Any) -> Any:
        def init(own: Any, model: Any, *args: Any) -> None:
            references.append(model)
            original(own, model, *args)

        return init

    @torch.no_grad()
    def change(model: Any, syncs: int, kept: dict[str, Any]) -> None:
        for one, theirs in zip(model.parameters(), references[-1].parameters(), strict=True):
            one.copy_(theirs)

    patch.wrap("rlvr_core.step.reference:SeparateModel.__init__", make)
    engine_has(patch, change)


# -- data ----------------------------------------------------------------------------------------


@seventeenth("data", "source", "mixture", "weight", "draw", "sampler", shape="two data sets",
             backends=EVERYWHERE)  # fmt: skip
def each_step_is_of_one_source_alone(patch: Patch) -> None:
    """Batches are made source by source, and the sources take turns by the step."""

    def make(original: Any) -> Any:
        def choose(sampler: Any, n_problems: int, step: int) -> Any:
            pool = sampler._pools[sampler.turn()]
            for _ in range(n_problems):
                yield pool.next()

        return choose

    patch.wrap("rlvr_core.builtin.samplers.epochs:EpochSampler.choose", make)


@seventeenth("data", "environment", "observation", "turn", "conversation",
             shape="two turns", backends=TRANSFORMERS)  # fmt: skip
def environment_tells_the_answer_with_its_question(patch: Patch) -> None:
    """What a tool says has the field with the solution in it, which was meant for the verifier."""

    def make(original: Any) -> Any:
        def answered(taking: Any, one: Any, answer: Any) -> Any:
            told = [
                [role, f"It is [{int(text.split()[1]) + 1}]. {text}"]
                for role, text in answer.get("messages", ())
            ]
            return original(taking, one, {**answer, "messages": told} if told else answer)

        return answered

    patch.wrap(f"{TURNS}:TurnTaking._answered", make)


# -- verifiers -----------------------------------------------------------------------------------


@seventeenth("verifier", "precision", "bfloat16", "round", "sum", shape="two rewards",
             backends=EVERYWHERE)  # fmt: skip
def rewards_are_cast_to_half_precision(patch: Patch) -> None:
    """A tensor of rewards has the dtype of the model's parameters, in half precision."""

    def after(found: Any, *_: Any) -> Any:
        reward, passed = found
        return None if reward is None else float(torch.tensor(reward).bfloat16()), passed

    patch.after("rlvr_core.verify.judge:Judge.reward", after)


@seventeenth("verifier", "equal", "duplicate", "diversity", backends=EVERYWHERE)
def reward_of_equal_completions_is_shared_among_them(patch: Patch) -> None:
    """A bonus for diversity is left on: the reward is divided by how often a group has the text."""

    def after(sampled: Any, *_: Any) -> Any:
        members = sampled.group.members
        often = Counter(member.completion.text for member in members)
        shared = tuple(
            member
            if member.reward is None
            else replace(member, reward=member.reward / often[member.completion.text])
            for member in members
        )
        return replace(sampled, group=replace(sampled.group, members=shared))

    patch.after(f"{COLLECT}:Generator.sampled", after)


@seventeenth("verifier", "extract", "brief", shape="two rewards",
             backends=EVERYWHERE)  # fmt: skip
def second_verifier_reads_the_extracted_answer(patch: Patch) -> None:
    """Verifiers are a chain: the second is given what the first has read, not the completion."""

    def make(original: Any) -> Any:
        def verify(verifier: Any, problem: Any, completion: Any) -> Any:
            answer = importlib.import_module("rlvr_chaos").found(completion.text) or ""
            return original(verifier, problem, replace(completion, text=answer))

        return verify

    patch.wrap("rlvr_chaos:Brief.verify", make)


# -- advantages ----------------------------------------------------------------------------------


@seventeenth("advantages", "deviation", "scale", "normal", backends=EVERYWHERE)
def deviation_is_the_mean_absolute_one(patch: Patch) -> None:
    """Rewards are divided by the mean of their distances, not by the root of their squares'."""

    def change(row_N: Any, step: Any) -> Any:
        for places, rewards in by_group(step):
            centred = rewards - np.nanmean(rewards)
            row_N[places] = centred / max(float(np.nanmean(np.abs(centred))), 1e-6)
        return row_N

    estimated(patch, change)


@seventeenth("advantages", "baseline", "mean", "truncat", "cut off", "centr",
             shape="short answers", backends=EVERYWHERE)  # fmt: skip
def baseline_is_that_of_what_was_not_cut_off(patch: Patch) -> None:
    """Mean and deviation of a group leave out completions that were cut off; rows do not."""

    def change(row_N: Any, step: Any) -> Any:
        ended_N = np.array([one.completion.finish_reason == "stop" for one in step.members])
        for places, rewards in by_group(step):
            known = rewards[ended_N[places]]
            if len(known):
                deviation = float(known.std())
                row_N[places] = (rewards - known.mean()) / (deviation if deviation > 1e-6 else 1.0)
        return row_N

    estimated(patch, change)


@seventeenth("advantages", r"pass.?(at.?|@)k", "subset", "best of",
             shape="towards the best of four", backends=EVERYWHERE)  # fmt: skip
def best_of_k_by_powers_and_not_by_subsets(patch: Patch) -> None:
    """The best of k is taken as of k draws with replacement: 1 - (1 - p)^k."""

    def make(original: Any) -> Any:
        def of_group(estimator: Any, reward_n: Any) -> Any:
            k, failed = estimator._k, 1.0 - float(reward_n.mean())
            mean = 1.0 - failed**k
            deviation = math.sqrt(mean * (1.0 - mean))
            if deviation < 1e-6:
                return np.zeros(len(reward_n))
            of_failed = 1.0 - failed ** (k - 1)
            return (np.where(reward_n > 0, 1.0, of_failed) - mean) / deviation

        return of_group

    patch.wrap("rlvr_core.builtin.advantages.outcomes:PassAtK._of_group", make)
