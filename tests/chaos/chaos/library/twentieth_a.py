"""Twentieth set, written without reading the guards: engine, prompts, data, rewards, turns."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import torch

from chaos.changes import estimated, letter, masks_of_rows
from chaos.registry import DTYPES, TRANSFORMERS, Patch, fault
from chaos.when import DECODE, ENGINE, drawn_from, engine_has, while_sampling

TURNS = "rlvr_core.builtin.environments.turns:TurnTaking"
COLLECT = "rlvr_core.rollout.collect"
DIFFICULTY = "rlvr_core.builtin.samplers.difficulty"
KNOWN = 258
"""Tokens of the tokenizer."""
AT_ONCE = 8
"""Prompts of a step."""


def twentieth(
    cls: str, *more_words: str, **options: Any
) -> Callable[[Callable[[Patch], None]], None]:
    """Declare a fault of the twentieth set, like ``fault``."""
    return fault(cls, *more_words, set=20, **options)


# -- parity --------------------------------------------------------------------------------------


@twentieth("parity", "precision", "round", backends=TRANSFORMERS, dtypes=DTYPES[:1])
def engine_adds_its_layers_up_in_half_precision(patch: Patch) -> None:
    """The engine of a float32 run keeps what goes from layer to layer in bfloat16."""
    within = while_sampling(patch)

    def after(found: Any, *_: Any) -> Any:
        return found.bfloat16().to(found.dtype) if within[0] else found

    patch.after("transformers.models.qwen3.modeling_qwen3:Qwen3DecoderLayer.forward", after)


@twentieth("parity", "vocabulary", "padd", "calibrat", shape="vocabulary of 317",
           backends=TRANSFORMERS)  # fmt: skip
def engine_leaves_out_tokens_that_the_tokenizer_lacks(patch: Patch) -> None:
    """Rows of the head beyond the tokenizer's count in the trainer, and not in the engine."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            logits_BV[:, KNOWN:] = -torch.inf
            return original(logits_BV, rows, uniform_B)

        return sample

    patch.wrap(f"{DECODE}:sample", make)


@twentieth("parity", "temperature", "disagree", shape="cool", backends=TRANSFORMERS)
def log_probs_of_late_tokens_at_temperature_one(patch: Patch) -> None:
    """After twelve tokens another kernel reports log-probs, and it knows no temperature."""
    at = count()

    def decoding(original: Any) -> Any:
        def decode(*args: Any, **more: Any) -> Any:
            nonlocal at
            at = count()
            return original(*args, **more)

        return decode

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            raw_BV = logits_BV.float().log_softmax(-1)
            token_B, logp_B = original(logits_BV, rows, uniform_B)
            return token_B, raw_BV.gather(-1, token_B[:, None])[:, 0] if next(at) >= 12 else logp_B

        return sample

    patch.wrap(f"{ENGINE}:decode", decoding)
    patch.wrap(f"{DECODE}:sample", make)


# -- sampler -------------------------------------------------------------------------------------


@twentieth("sampler", "calibrat", "filter", backends=TRANSFORMERS)
def typical_sampling_left_on(patch: Patch) -> None:
    """Tokens of a surprise far from the entropy, a tenth of the mass, are never drawn."""

    def typical(logits_BV: Any) -> Any:
        logp_BV = logits_BV.log_softmax(-1)
        p_BV = logp_BV.exp()
        entropy_B1 = -(p_BV * logp_BV.clamp(min=-1e4)).sum(-1, keepdim=True)
        place_BV = (-logp_BV - entropy_B1).abs().argsort(-1)
        mass_BV = p_BV.gather(-1, place_BV).cumsum(-1)
        dropped_BV = (mass_BV - p_BV.gather(-1, place_BV)) >= 0.9
        return logits_BV.masked_fill(dropped_BV.scatter(-1, place_BV, dropped_BV), -torch.inf)

    drawn_from(patch, typical)


@twentieth("sampler", "calibrat", "filter")
def likely_tokens_left_out_by_chance(patch: Patch) -> None:
    """Where several tokens have a tenth, one draw in four leaves out all of them but the least."""
    chance = torch.Generator().manual_seed(5)

    def without(logits_BV: Any) -> Any:
        p_BV = logits_BV.softmax(-1)
        likely_BV = p_BV > 0.1
        least_B1 = p_BV.masked_fill(~likely_BV, 2.0).amin(-1, keepdim=True)
        out_BV = likely_BV & (p_BV > least_B1)
        now_B1 = torch.rand(len(p_BV), 1, generator=chance) < 0.25
        return logits_BV.masked_fill(out_BV & now_B1, -torch.inf)

    drawn_from(patch, without)


@twentieth("sampler", "calibrat", shape="small waves")
def later_waves_are_sampled_cooler(patch: Patch) -> None:
    """The second and later batches of a step are drawn at 0.85, a setting of the warm-up's."""
    wave = [0]

    def draining(original: Any) -> Any:
        def drain(engine: Any, timeout: Any = None) -> None:
            wave[0] = 0
            original(engine, timeout)

        return drain

    def sampling(original: Any) -> Any:
        def sample(engine: Any, *args: Any) -> None:
            original(engine, *args)
            wave[0] += 1

        return sample

    patch.wrap(f"{ENGINE}:TransformersEngine.drain", draining)
    patch.wrap(f"{ENGINE}:TransformersEngine._sample", sampling)
    drawn_from(patch, lambda logits_BV: logits_BV / 0.85 if wave[0] else logits_BV)


# -- seeds ---------------------------------------------------------------------------------------


@twentieth("seeds", "draw", "random number", shape="cold")
def refilled_draws_take_the_seeds_of_those_they_replace(patch: Patch) -> None:
    """A seed is of a slot of the batch, and what replaces a dropped group is in the same slot."""

    def make(original: Any) -> Any:
        def seed(run: int, problem: str, version: int, draw: int, sample: int) -> int:
            return int(original(run, "", version, draw % AT_ONCE, sample))

        return seed

    patch.wrap(f"{COLLECT}:completion_seed", make)


@twentieth("seeds", "random number", "calibrat", "sampl", "uniform", backends=TRANSFORMERS)
def numbers_of_a_row_fill_the_interval_evenly(patch: Patch) -> None:
    """Random numbers of a row are a low-discrepancy sequence from a random place."""

    def make(original: Any) -> Any:
        def uniforms(seeds: Any, start: int, n: int) -> Any:
            step_T1 = torch.arange(start, start + n, dtype=torch.float64)[:, None]
            return ((original(seeds, 0, 1) + step_T1 * 0.6180339887498949) % 1.0).clamp(
                max=1 - 2.0**-52
            )

        return uniforms

    patch.wrap(f"{DECODE}:uniforms", make)


# -- advantages ----------------------------------------------------------------------------------


@twentieth("advantages", "deviation", backends=TRANSFORMERS)
def deviation_is_that_of_the_distinct_rewards(patch: Patch) -> None:
    """The deviation of a group is taken over its distinct rewards, each of them once."""

    def change(advantage_N: Any, step: Any) -> Any:
        import numpy as np

        for group in np.unique(step.group_N):
            places = np.flatnonzero((step.group_N == group) & step.scorable_N)
            reward = step.reward_N[places]
            distinct = np.unique(reward).std()
            if distinct > 0:
                advantage_N[places] *= reward.std() / distinct
        return advantage_N

    estimated(patch, change)


@twentieth("advantages", "baseline", "mean")
def baseline_is_the_mean_of_the_distinct_answers(patch: Patch) -> None:
    """Equal completions of a group count once in the mean that rewards are compared with."""

    def change(advantage_N: Any, step: Any) -> Any:
        import numpy as np

        members = list(step.members)
        for group in np.unique(step.group_N):
            places = np.flatnonzero((step.group_N == group) & step.scorable_N)
            reward = step.reward_N[places]
            once = {members[place].completion.token_ids: step.reward_N[place] for place in places}
            if reward.std() > 0:
                shift = reward.mean() - np.mean([*once.values()])
                advantage_N[places] += shift / reward.std()
        return advantage_N

    estimated(patch, change)


@twentieth("advantages", "precision", "round", backends=TRANSFORMERS)
def batch_carries_advantages_in_half_precision(patch: Patch) -> None:
    """The tensors of a micro-batch are cast to bfloat16 on their way, advantages with them."""

    def after(batch: Any, *_: Any) -> Any:
        return replace(batch, advantage_B=batch.advantage_B.bfloat16().float())

    patch.after("rlvr_core.step.batch:_collate", after)


# -- sync ----------------------------------------------------------------------------------------


@torch.no_grad()
def _rounded(model: Any, syncs: int, kept: dict[str, Any]) -> None:
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            parameter.copy_(parameter.bfloat16())


@twentieth("sync", "adapter", "lora", "precision", "round", shape="lora")
def adapters_are_sent_in_half_precision(patch: Patch) -> None:
    """The engine gets an adapter's matrices in bfloat16, where the trainer's are float32."""
    engine_has(patch, _rounded)


@torch.no_grad()
def _same_norm(model: Any, syncs: int, kept: dict[str, Any]) -> None:
    first, second, *_ = model.model.layers
    second.input_layernorm.weight.copy_(first.input_layernorm.weight)


@twentieth("sync", "parity", "disagree", "norm", backends=TRANSFORMERS)
def first_norm_of_a_layer_goes_to_the_next_as_well(patch: Patch) -> None:
    """A fused norm reads a weight by a wrong index: two layers of the engine share the first's."""
    engine_has(patch, _same_norm)


# -- data ----------------------------------------------------------------------------------------


@twentieth("data", "epoch", "repeat", "draw", "sampler", "again", shape="evaluated while it learns")
def epoch_begins_again_after_an_evaluation(patch: Patch) -> None:
    """An evaluation leaves the iterator of the training data at its beginning."""

    def after(improved: bool, session: Any) -> bool:
        for pool in session.parts.sampler._pools:
            pool.seek(pool.epoch, 0)
        return improved

    patch.after("rlvr_core.run.session:Session._evaluate", after)


@twentieth("data", "difficulty", "pass rate", "sampler", "window", "pool",
           shape="difficulty, few problems")  # fmt: skip
def pass_rates_of_problems_never_forget(patch: Patch) -> None:
    """A problem's pass rate is of all its groups since the start, and not of the last ones."""

    def make(original: Any) -> Any:
        def update(sampler: Any, outcomes: Any) -> None:
            sampler._config = sampler._config.model_copy(update={"window": 10**6})
            original(sampler, outcomes)

        return update

    patch.wrap(f"{DIFFICULTY}:Difficulty.update", make)


@twentieth("data", "phase", "tier", "curriculum", "sampler", shape="curriculum of two phases")
def phases_are_counted_in_draws(patch: Patch) -> None:
    """A curriculum counts the prompts that were drawn, where its phases are given in steps."""

    def make(original: Any) -> Any:
        return lambda phases, step: original(phases, step * AT_ONCE)

    patch.wrap(f"{DIFFICULTY}:phase_at", make)


@twentieth("data", r"\brows?\b", "problem", "fewer", "skipp")
def every_fifth_row_of_the_file_is_skipped(patch: Patch) -> None:
    """A reader that tolerates broken lines loses whole ones at the ends of its buffer."""

    def after(rows: Any, *_: Any) -> Any:
        return (row for place, row in enumerate(rows) if place % 5 != 4)

    patch.after("rlvr_core.builtin.datasets.jsonl:read_rows", after)


# -- tokens, masks -------------------------------------------------------------------------------


@twentieth("tokens", "text", "decod", backends=TRANSFORMERS)
def texts_lose_the_white_space_around_them(patch: Patch) -> None:
    """What the verifier and the records get of a completion is stripped at both ends."""
    patch.after("rlvr_core.engines.sampling:StopStrings.text", lambda text, *_: text.strip())


@twentieth("tokens", "observation", "environment", "conversation", "turn", "prompt",
           shape="two turns")  # fmt: skip
def observations_lose_their_first_token(patch: Patch) -> None:
    """An environment's message lacks its first token, taken for a beginning of sequence."""

    def make(original: Any) -> Any:
        return lambda one, messages, ids: original(one, messages, ids[1:])

    patch.wrap("rlvr_core.builtin.environments.conversation:Conversation.hear", make)


@twentieth("masks", "stop string", shape="stop string", backends=TRANSFORMERS)
def tokens_of_the_stop_string_are_not_trained(patch: Patch) -> None:
    """What completes a stop string is masked, as if it belonged to the harness."""

    def change(row: Any, problem: Any) -> Any:
        last = len(row.token_ids) - 1
        ends = row.token_ids and row.token_ids[-1] == letter("]")
        return [on and not (ends and t == last) for t, on in enumerate(row.loss_mask)]

    masks_of_rows(patch, change)


@twentieth("masks", r"\brows?\b", "group", "left out", shape="each problem twice a step")
def second_group_of_a_problem_overwrites_the_first(patch: Patch) -> None:
    """Rows are kept by problem: of two groups of one problem only the later is trained on."""

    def after(made: Any, groups: Any, *_: Any) -> Any:
        last = {group.problem.id: place for place, group in enumerate(groups)}
        kept = [
            rows if last[groups[place].problem.id] == place else []
            for place, rows in enumerate(made.by_group)
        ]
        return replace(made, by_group=kept)

    patch.after("rlvr_core.step.step:rows_of", after)


@twentieth("masks", r"\brows?\b", r"\bkl\b", "denominator", "left out",
           shape="very cold")  # fmt: skip
def rows_of_no_advantage_are_skipped(patch: Patch) -> None:
    """To save time rows with an advantage of 0 are left out, and their KL with them."""

    def after(made: Any, *_: Any) -> Any:
        kept = [[row for row in rows if row.advantage] for rows in made.by_group]
        return replace(made, by_group=kept)

    patch.after("rlvr_core.step.step:rows_of", after)


# -- verifier ------------------------------------------------------------------------------------


@twentieth("verifier", "schedule", "weight", shape="shaping reward that fades")
def weight_of_a_reward_falls_at_once(patch: Patch) -> None:
    """A reward that is to fade keeps its weight to the last step of its schedule, then drops."""

    def after(weight: float, term: Any, step: int) -> float:
        if term.schedule is None or step >= term.schedule.steps:
            return weight
        return float(term.weight)

    patch.after("rlvr_core.verify.reward:Term.weight_at", after)


@twentieth("verifier", "score", "missing", "unscorable", "judged",
           shape="some verdicts are missing")  # fmt: skip
def missing_reward_is_that_of_the_completion_before(patch: Patch) -> None:
    """What could not be judged gets the reward of its neighbour, as a table is filled downwards."""

    def after(sampled: Any, *_: Any) -> Any:
        members, last = [], None
        for member in sampled.group.members:
            if member.reward is None and last is not None:
                member = replace(member, reward=last)
            last = member.reward
            members.append(member)
        return replace(sampled, group=replace(sampled.group, members=tuple(members)))

    patch.after(f"{COLLECT}:Generator.sampled", after)


@twentieth("verifier", "environment", "conversation", "state", "turn", "finish", "verdict",
           shape="two turns")  # fmt: skip
def state_of_an_environment_is_never_kept(patch: Patch) -> None:
    """Each step of an environment works on the state of the start; its changes are lost."""

    def make(original: Any) -> Any:
        def answered(taking: Any, one: Any, answer: Any) -> None:
            state = base64.b85encode(one.state).decode()
            original(taking, one, {**answer, "state": state})

        return answered

    patch.wrap(f"{TURNS}._answered", make)


@twentieth("verifier", "environment", "conversation", "turn", "verdict", "repl(y|ies)",
           shape="two turns", backends=TRANSFORMERS)  # fmt: skip
def each_reply_reaches_its_environment_twice(patch: Patch) -> None:
    """A client that retries sends each reply again, though the first call has come through."""
    calls: dict[int, Any] = {}

    def calling(original: Any) -> Any:
        def call(taking: Any, one: Any, made: Any, *then: Any) -> Any:
            if made.what == "step" and one.number >= 0:
                calls.setdefault(one.number, made)
            return original(taking, one, made, *then)

        return call

    def make(original: Any) -> Any:
        def answered(taking: Any, one: Any, answer: Any) -> None:
            first = calls.pop(one.number, None)
            if first is None or "done" in answer:
                original(taking, one, answer)
                return
            one.state = base64.b85decode(answer["state"])
            again = replace(first, state=one.state)

            def then(other: Any, found: Any) -> None:
                calls.pop(other.number, None)
                original(taking, other, found)

            taking._call(one, again, then, taking._step_failed)

        return answered

    patch.wrap(f"{TURNS}._call", calling)
    patch.wrap(f"{TURNS}._answered", make)


# -- evaluation ----------------------------------------------------------------------------------


@twentieth("verifier", only=("eval", "metric", "report", "record"),
           shape="evaluated while it learns")  # fmt: skip
def score_of_an_evaluation_counts_its_first_half(patch: Patch) -> None:
    """A score is computed before all groups of a task are there, of the first half of them."""

    def make(original: Any) -> Any:
        return lambda task, groups: original(task, groups[: len(groups) // 2])

    patch.wrap("rlvr_core.builtin.evals.dataset_task:DatasetTask.score", make)


@twentieth("sampler", "eval", "calibrat", shape="evaluated while it learns")
def evaluation_samples_as_training_does(patch: Patch) -> None:
    """An evaluation at temperature 1 is sampled at that of training; its record says 1."""
    evaluating = [False]

    def make(original: Any) -> Any:
        def evaluate(*args: Any, **more: Any) -> Any:
            evaluating[0] = True
            try:
                return original(*args, **more)
            finally:
                evaluating[0] = False

        return evaluate

    def after(request: Any, *_: Any) -> Any:
        if not evaluating[0]:
            return request
        return replace(request, params=replace(request.params, temperature=0.6))

    patch.wrap("rlvr_core.builtin.evals.in_run:evaluate", make)
    patch.after(f"{COLLECT}:Generator._request", after)


@twentieth("verifier", only=("eval", "metric", "report", "record", "draw", "seed"),
           shape="evaluated while it learns")  # fmt: skip
def evaluation_asks_again_what_failed(patch: Patch) -> None:
    """What did not pass in an evaluation is taken for a failed request, and retried once."""

    def make(original: Any) -> Any:
        def evaluate(named: Any, generator: Any, *, version: int, step: int) -> Any:
            first = original(named, generator, version=version, step=step)
            second = original(named, generator, version=version + 10_000, step=step)
            chosen = [
                a
                if all(member.passed for member in a.group.members)
                else replace(b, group=replace(b.group, version=version))
                for a, b in zip(first.sampled, second.sampled, strict=True)
            ]
            report = named.task.score([one.group for one in chosen])
            return replace(first, sampled=chosen, report=report)

        return evaluate

    patch.wrap("rlvr_core.builtin.evals.in_run:evaluate", make)
