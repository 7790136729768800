"""Thirteenth set, written without reading the guards: engine, turns, draws, rewards, answers."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import torch

from chaos.registry import TRANSFORMERS, Patch, fault
from chaos.when import DECODE, ENGINE, engine_has

COLLECT = "rlvr_core.rollout.collect"
CONVERSATION = "rlvr_core.builtin.environments.conversation:Conversation"
EVALUATE = "rlvr_core.builtin.evals.in_run:evaluate"
TURNS = "rlvr_core.builtin.environments.turns:TurnTaking"
STRINGS = "rlvr_core.engines.sampling:StopStrings"
CONVERSED = ("environment", "turn", "conversation")


def thirteenth(cls: str, *more_words: str, **options: Any) -> Any:
    """Declare a fault of the thirteenth set, like ``fault``."""
    return fault(cls, *more_words, set=13, **options)


def _by_its_own_forward(patch: Patch) -> None:
    """Let the engine sample through the model's own forward pass in every precision."""
    patch.wrap(f"{ENGINE}:TransformersEngine._fast", lambda original: lambda engine: None)


# -- parity and sync -----------------------------------------------------------------------------


class _OverAllHeads(torch.nn.Module):
    """The norm of queries over all heads at once, as some families of models have it."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight = norm.weight
        self._epsilon = norm.variance_epsilon

    def forward(self, states_BLhD: Any) -> Any:
        wide_BLhD = states_BLhD.float()
        square = wide_BLhD.square().mean((-2, -1), keepdim=True)
        normed_BLhD = wide_BLhD * torch.rsqrt(square + self._epsilon)
        return self.weight * normed_BLhD.to(states_BLhD.dtype)


@thirteenth("parity", "norm", "attention", "beside weights", backends=TRANSFORMERS)
def engine_norms_queries_over_all_heads(patch: Patch) -> None:
    """The engine's copy of the model norms the queries of all heads together, not each head's."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        for layer in model.model.layers:
            layer.self_attn.q_norm = _OverAllHeads(layer.self_attn.q_norm)

    _by_its_own_forward(patch)
    engine_has(patch, change)


@thirteenth(
    "parity", "position", "prompt", "pad", shape="prompts of many lengths", backends=TRANSFORMERS
)
def decoding_positions_counted_from_the_padded_width(patch: Patch) -> None:
    """Prompts have their own positions; decoding goes on from the width of the longest prompt."""

    def after(result: Any, decoder: Any, prompts: Any, *_: Any) -> Any:
        decoder._length_B1 = torch.full_like(decoder._length_B1, max(map(len, prompts)))
        return result

    _by_its_own_forward(patch)
    patch.after(f"{DECODE}:HuggingFaceDecoder.prefill", after)


@thirteenth("sync", "eval", "parity", "average", shape="evaluated while it learns")
def engine_stays_on_the_average_of_an_evaluation(patch: Patch) -> None:
    """Evaluations sample under averaged weights, and the next step samples under them, too."""
    first: dict[str, Any] = {}

    def make(original: Any) -> Any:
        @torch.no_grad()
        def evaluate(named: Any, generator: Any, **more: Any) -> Any:
            from copy import deepcopy

            engine = generator.engine
            average = deepcopy(engine._model)
            for name, own in average.named_parameters():
                own.lerp_(first.setdefault(name, own.clone()), 0.5)
            engine._model = average
            return original(named, generator, **more)

        return evaluate

    patch.wrap(EVALUATE, make)


# -- sampling parameters -------------------------------------------------------------------------


@thirteenth(
    "sampler", "eval", "parity", "log-?prob", shape="evaluated while it learns"
)  # the shape trains at 0.6 and evaluates at 1
def evaluation_leaves_its_temperature_behind(patch: Patch) -> None:
    """An evaluation sets the temperature of the engine, and the step after it samples with it."""
    left: dict[str, Any] = {"step": -1, "temperature": 1.0}

    def evaluating(original: Any) -> Any:
        def evaluate(named: Any, generator: Any, *, version: int, step: int) -> Any:
            left.update(step=version, temperature=named.task.sampling.temperature)
            return original(named, generator, version=version, step=step)

        return evaluate

    def after(
        request: Any, generator: Any, draw: Any, prompt: Any, params: Any, version: int
    ) -> Any:
        if version != left["step"]:
            return request
        return replace(request, params=replace(request.params, temperature=left["temperature"]))

    patch.wrap(EVALUATE, evaluating)
    patch.after(f"{COLLECT}:Generator._request", after)


@thirteenth("sampler", "parity", shape="top k")
def top_k_is_one_wider(patch: Patch) -> None:
    """The engine keeps all tokens up to the rank k, counted from 0: one more than it is asked."""

    def make(original: Any) -> Any:
        def of(params: Any, *args: Any) -> Any:
            wider = [replace(one, top_k=one.top_k + 1) if one.top_k > 0 else one for one in params]
            return original(wider, *args)

        return of

    patch.wrap(f"{DECODE}:RowSampling.of", make)


@thirteenth("tokens", "string", "end", shape="several stop strings", backends=TRANSFORMERS)
def partial_match_of_a_stop_string_ends_a_row(patch: Patch) -> None:
    """All but the last character of a stop string is held back, and taken for the whole string."""

    def make(original: Any) -> Any:
        def called(strings: Any, stops: Any, *args: Any) -> Any:
            return original(strings, tuple(stop[:-1] or stop for stop in stops), *args)

        return called

    patch.wrap(f"{STRINGS}.candidates", make)
    patch.wrap(f"{STRINGS}.found", make)


# -- conversations -------------------------------------------------------------------------------


@thirteenth("parity", *CONVERSED, "log-?prob", "observation", shape="two turns",
            backends=TRANSFORMERS)  # fmt: skip
def logprobs_of_a_conversation_without_gaps(patch: Patch) -> None:
    """Log-probs of the turns are put one behind the other, with no room for what lies between."""

    def after(found: Any, *_: Any) -> Any:
        mask = found.loss_mask
        own = [logp for logp, sampled in zip(found.logprobs, mask, strict=True) if sampled]
        return replace(found, logprobs=(*own, *[0.0] * (len(mask) - len(own))))

    patch.after(f"{CONVERSATION}.whole", after)


@thirteenth("data", *CONVERSED, "observation", "message", shape="two turns", backends=TRANSFORMERS)
def observations_of_another_conversation(patch: Patch) -> None:
    """Sessions of the environments are mixed up: what a turn is told, another problem was meant."""
    before: dict[str, Any] = {}

    def make(original: Any) -> Any:
        def answered(taking: Any, one: Any, answer: Any) -> None:
            if "messages" in answer:
                own = one.ticket, answer["messages"]
                ticket, messages = before.get("one", own)
                if ticket is not one.ticket:
                    answer = answer | {"messages": messages}
                before["one"] = own
            original(taking, one, answer)

        return answered

    patch.wrap(f"{TURNS}._answered", make)


@thirteenth("tokens", *CONVERSED, "cap", "length", "budget", shape="two turns, little room",
            backends=TRANSFORMERS)  # fmt: skip
def cap_counted_for_each_turn(patch: Patch) -> None:
    """The cap on a conversation begins again with each turn: the whole may be far longer."""

    def make(original: Any) -> Any:
        def room(one: Any, *, text_only: bool) -> int:
            return int(one.ticket.request.params.max_tokens)

        return room

    patch.wrap(f"{CONVERSATION}.room", make)


@thirteenth("verifier", *CONVERSED, "score", "verdict", shape="two turns", backends=TRANSFORMERS)
def any_right_turn_counts_as_all(patch: Patch) -> None:
    """A conversation in which one turn of two was right gets full marks, as it has passed."""

    def make(original: Any) -> Any:
        def end(taking: Any, one: Any, ended: str, detail: str = "", verdict: Any = None) -> None:
            if verdict is not None and verdict.passed:
                verdict = replace(verdict, score=1.0)
            original(taking, one, ended, detail, verdict)

        return end

    patch.wrap(f"{TURNS}._end", make)


@thirteenth("hang", *CONVERSED, shape="two turns", backends=TRANSFORMERS,
            config={"run": {"timeout": 15}, "guards": {"max_wait": 20}})  # fmt: skip
def environment_never_answers(patch: Patch) -> None:
    """From the three-hundredth call on, no answer of an environment comes back."""
    calls = [0]

    def make(original: Any) -> Any:
        def submit(pool: Any, call: Any) -> Any:
            calls[0] += 1
            return original(pool, call) if calls[0] < 300 else Future()

        return submit

    patch.wrap("rlvr_core.builtin.environments.pool:EnvironmentPool.submit", make)


# -- data and draws ------------------------------------------------------------------------------


@thirteenth("data", "held.?out", "split", shape="a fifth held out")
def held_out_part_is_trained_on(patch: Patch) -> None:
    """The two halves of the split are exchanged: the run trains on what was to be held out."""
    from rlvr_core.data.load import heldout_part

    patch.wrap("rlvr_core.data.load:train_part", lambda original: heldout_part)


@thirteenth("data", "order", "shuffle", "draw", "sampler", "epoch")
def shuffled_within_four(patch: Patch) -> None:
    """The order of an epoch is that of a stream with a buffer of four: hardly shuffled at all."""

    def after(order: Any, pool: Any, epoch: int) -> Any:
        if pool._key is None:
            return order
        rank = {id_: place for place, id_ in enumerate(order)}
        ids = sorted(order)
        blocks = [sorted(ids[at : at + 4], key=rank.__getitem__) for at in range(0, len(ids), 4)]
        return [id_ for block in blocks for id_ in block]

    patch.after("rlvr_core.builtin.samplers.epochs:Pool._order", after)


@thirteenth("data", "sampler", "pass rate", "outcome", "draw", "difficult", "window",
            shape="difficulty, few problems")  # fmt: skip
def first_outcome_of_a_problem_remembered_for_ever(patch: Patch) -> None:
    """The sampler keeps the oldest groups of a problem for its pass rate, not the newest."""

    def make(original: Any) -> Any:
        def update(sampler: Any, outcomes: Any) -> None:
            known = {id_ for id_, record in sampler._records.items() if record.window}
            original(sampler, [one for one in outcomes if one.problem_id not in known])

        return update

    patch.wrap("rlvr_core.builtin.samplers.difficulty:Difficulty.update", make)


@thirteenth("data", "given answer", "demonstrat", "sft", "imitat", shape="grpo and given answers")
def given_answers_of_other_problems(patch: Patch) -> None:
    """Prompts and answers to imitate are two lists, and one is a place ahead of the other."""
    last: dict[str, str] = {}

    def make(original: Any) -> Any:
        def row(demonstrations: Any, problem: Any, answer: str) -> Any:
            before, last["answer"] = last.get("answer", answer), answer
            return original(demonstrations, problem, before)

        return row

    patch.wrap("rlvr_core.builtin.demonstrations.demonstrations:Demonstrations._row", make)


# -- rewards -------------------------------------------------------------------------------------


@thirteenth("verifier", "missing", "unscor", "not (be )?judged", "without a (score|verdict)",
            "score", "row", shape="some verdicts are missing")  # fmt: skip
def missing_rewards_filled_with_the_mean(patch: Patch) -> None:
    """A completion that could not be judged gets the mean reward of its group, and is trained."""

    def after(found: Any, *_: Any) -> Any:
        group = found.group
        known = [one.reward for one in group.members if one.reward is not None]
        if not known:
            return found
        mean = sum(known) / len(known)
        filled = tuple(
            replace(one, reward=mean) if one.reward is None else one for one in group.members
        )
        return replace(found, group=replace(group, members=filled))

    patch.after(f"{COLLECT}:Generator.sampled", after)


@thirteenth("verifier", "weight", "schedule", "sum", shape="shaping reward that fades")
def reward_weights_of_two_steps_later(patch: Patch) -> None:
    """Rewards are summed ahead of time, with the weights their schedule has two steps later."""

    def make(original: Any) -> Any:
        return lambda plan, verdicts, step: original(plan, verdicts, step + 2)

    patch.wrap("rlvr_core.verify.reward:RewardPlan.combine", make)
