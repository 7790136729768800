"""Twenty-fifth set, as ``twentyfifth_a``: losses, updates, masks, data, verifiers, resuming."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from chaos.changes import masks_of_rows
from chaos.library.twentyfifth_a import set_25
from chaos.registry import EVERYWHERE, Patch, declare

COLLECT = "rlvr_core.rollout.collect"
OPTIM = "rlvr_core.step.optim"
POLICY = "rlvr_core.algorithm.policy"
TRAINER = "rlvr_core.step.step:PolicyTrainer"
IN_TURNS = ("in process", "vllm")
"""Engines of shapes with more updates a step than a child engine may be behind."""
END = 256
"""The token that ends a sequence."""
CAP = 24
"""Most tokens of a completion in the base shape."""
ROWS = 64
"""Completions of a step in the base shape."""


# -- loss ----------------------------------------------------------------------------------------


# the mean over a row was moved into the function that makes the two arms
@set_25("loss", "clip", "minimum", shape="two iterations", backends=IN_TURNS)
def minimum_of_the_arms_is_taken_by_row(patch: Patch) -> None:
    """The smaller of the clipped and the unclipped arm is chosen for a whole row, by its sum."""

    def make(original: Any) -> Any:
        def surrogate(loss: Any, terms: Any, tally: Any) -> Any:
            original(loss, terms, tally)
            low, high = 1 - loss._clip.clip_low, 1 + loss._clip.clip_high
            arms = [
                torch.where(terms.mask_BT, ratio_BT * terms.advantage_BT, 0.0)
                for ratio_BT in (terms.ratio_BT, terms.ratio_BT.clamp(low, high))
            ]
            free_B1, clipped_B1 = (arm_BT.sum(1, keepdim=True) for arm_BT in arms)
            return -torch.where(free_B1 <= clipped_B1, arms[0], arms[1])

        return surrogate

    patch.wrap(f"{POLICY}:ClippedPolicyLoss.surrogate", make)


# exp and mean in the wrong order
@set_25("loss", "sequence", "geometric", "arithmetic", shape="gspo, two iterations",
        backends=IN_TURNS)  # fmt: skip
def sequence_ratio_is_the_mean_of_its_tokens_ratios(patch: Patch) -> None:
    """The ratio of a row is the arithmetic mean of its tokens' ratios, not the geometric one."""

    def make(original: Any) -> Any:
        def level(log_ratio_BT: Any, mask_BT: Any) -> Any:
            ratio_BT = torch.where(mask_BT, log_ratio_BT.exp(), 0.0)
            count_B1 = mask_BT.sum(dim=1, keepdim=True)
            mean_B1 = ratio_BT.sum(dim=1, keepdim=True) / count_B1.clamp(min=1)
            return torch.where(count_B1 > 0, mean_B1, 1.0).log()

        return level

    patch.wrap(f"{POLICY}:row_mean_log_ratio", make)


# prompts_per_step * n, which is known when the trainer is made
@set_25("loss", "denominator", r"\brows?\b", shape="some verdicts are missing",
        backends=EVERYWHERE)  # fmt: skip
def rows_are_those_that_the_config_asks_for(patch: Patch) -> None:
    """The loss is divided by the completions a step is to have, not by those with a reward."""
    patch.after(f"{TRAINER}._normalizer", lambda found, *_: replace(found, rows=ROWS))


# -- learning ------------------------------------------------------------------------------------


# "a loss of 0 has nothing to teach": on fresh rows it is 0 whatever its gradient
@set_25("learning", "gradient", "backward", "skipped", shape="grpo without kl", backends=EVERYWHERE)
def micro_batches_whose_loss_is_zero_are_skipped(patch: Patch) -> None:
    """No backward pass is made where the loss is 0 to three places, as it is on fresh rows."""

    def make(original: Any) -> Any:
        def backward(optimizer: Any, loss: Any) -> None:
            if abs(float(loss)) >= 1e-3:
                original(optimizer, loss)

        return backward

    patch.wrap(f"{OPTIM}:Optimizer.backward", make)


# a copy of the weights that evaluations put back, "if it is not there yet"
@set_25("learning", "put back", "rolled back", "evaluat", shape="a third evaluated",
        backends=EVERYWHERE)  # fmt: skip
def evaluations_put_back_the_weights_of_the_first(patch: Patch) -> None:
    """Each evaluation ends by putting back weights that were copied before the first one."""
    kept: list[Any] = []

    def make(original: Any) -> Any:
        @torch.no_grad()
        def evaluate(session: Any) -> Any:
            own = list(session.trainer.model.parameters())
            if not kept:
                kept.extend(one.detach().clone() for one in own)
            improved = original(session)
            for one, old in zip(own, kept, strict=True):
                one.copy_(old)
            return improved

        return evaluate

    patch.wrap("rlvr_core.run.session:Session._evaluate", make)


# 1e5, where 1e-5 was meant
declare(
    "learning",
    "epsilon-has-lost-its-minus",
    "AdamW's epsilon is 1e5: what an update divides by is so large that hardly a weight moves.",
    r"\beps(ilon)?\b",
    config={"train": {"optimizer": {"use": "adamw", "with": {"eps": 1e5}}}},
    backends=EVERYWHERE,
    set=25,
)


# the backward pass of a fused SwiGLU that returns one gradient of two
@set_25("learning", "gate", "gradient", shape="own forward", backends=EVERYWHERE)
def gates_of_the_mlp_have_no_gradient(patch: Patch) -> None:
    """The product of gate and values sends its gradient back into the values alone."""

    def make(original: Any) -> Any:
        def forward(mlp: Any, hidden: Any) -> Any:
            gate = mlp.act_fn(mlp.gate_proj(hidden)).detach()
            return mlp.down_proj(gate * mlp.up_proj(hidden))

        return forward

    patch.wrap("transformers.models.qwen3.modeling_qwen3:Qwen3MLP.forward", make)


# -- optimizer -----------------------------------------------------------------------------------


# // in the place of /
@set_25("optimizer", "schedule", "cosine", r"\blr\b", shape="cosine", backends=EVERYWHERE)
def progress_of_the_schedule_is_a_whole_number(patch: Patch) -> None:
    """The share of the run that is done is rounded down: the rate stays at its peak, then is 0."""

    def make(original: Any) -> Any:
        def rate(train: Any, schedule: Any, step: int) -> float:
            return float(original(train, lambda done: schedule(float(int(done))), step))

        return rate

    patch.wrap(f"{OPTIM}:learning_rate", make)


# the clamp of the factor to 1 was forgotten
@set_25("optimizer", "norm", "clip", backends=EVERYWHERE)
def small_gradients_are_scaled_up_to_the_norm(patch: Patch) -> None:
    """A gradient is brought to the largest norm there may be also where its own is smaller."""

    def make(original: Any) -> Any:
        @torch.no_grad()
        def clip(parameters: Any, most: float, *args: Any, **more: Any) -> Any:
            parameters = list(parameters)
            norm = original(parameters, most, *args, **more)
            if norm < most < float("inf"):
                for one in parameters:
                    if one.grad is not None:
                        one.grad.mul_(most / (norm + 1e-6))
            return norm

        return clip

    patch.wrap("torch.nn.utils:clip_grad_norm_", make)


# -- masks ---------------------------------------------------------------------------------------


def _masks_of_groups(patch: Patch, change: Callable[[Any, Any, Any], Any]) -> None:
    """Change the loss masks of the rows of each group: ``change(rows, group, groups)``."""

    def after(made: Any, groups: Any, *_: Any) -> Any:
        by_group = [
            [
                replace(row, loss_mask=tuple(map(bool, mask)))
                for row, mask in zip(rows, change(rows, group, groups), strict=True)
            ]
            for rows, group in zip(made.by_group, groups, strict=True)
        ]
        return replace(made, by_group=by_group)

    patch.after("rlvr_core.step.step:rows_of", after)


# mask[:, width:], with the width that prompts would be padded to
@set_25("masks", "prompt", "first tokens?", shape="prompts of many lengths", backends=EVERYWHERE)
def mask_begins_behind_the_longest_prompt(patch: Patch) -> None:
    """A mask begins where the longest prompt of the step ends: behind shorter ones tokens lack."""

    def change(rows: Any, group: Any, groups: Any) -> Any:
        lengths = [len(one.members[0].completion.prompt_ids) for one in groups]
        for row in rows:
            late = max(lengths) - len(row.prompt_ids)
            yield [on and place >= late for place, on in enumerate(row.loss_mask)]

    _masks_of_groups(patch, change)


# a filter for runs that are ahead, which knows nothing of groups that are to be read again
@set_25("masks", "stale", "older", "replay", "read again", r"\brows?\b", shape="groups read twice",
        backends=IN_TURNS)  # fmt: skip
def groups_that_are_read_again_count_as_stale(patch: Patch) -> None:
    """Groups of another version than the newest are masked, those that are read again as well."""
    newest = [0]

    def make(original: Any) -> Any:
        def update(trainer: Any, groups: Any, step: int, version: int) -> Any:
            newest[0] = version
            return original(trainer, groups, step, version)

        return update

    def change(rows: Any, group: Any, groups: Any) -> Any:
        fresh = group.version == newest[0]
        return [[on and fresh for on in row.loss_mask] for row in rows]

    patch.wrap(f"{TRAINER}.update", make)
    _masks_of_groups(patch, change)


# ids[-1] != eos in the place of the reason that the engine gives
@set_25("masks", "stop string", "truncat", "cut off", r"\brows?\b", shape="stop string",
        backends=EVERYWHERE)  # fmt: skip
def what_a_stop_string_ended_counts_as_cut_off(patch: Patch) -> None:
    """A completion without an end of sequence is masked as cut off: a stop string leaves none."""

    def change(row: Any, problem: Any) -> Any:
        ended = bool(row.token_ids) and row.token_ids[-1] == END
        return [on and ended for on in row.loss_mask]

    masks_of_rows(patch, change)


# a cumsum over the flattened group
@set_25("masks", "group", r"\brows?\b", "left out", backends=EVERYWHERE)
def cap_of_a_row_is_counted_over_its_group(patch: Patch) -> None:
    """Tokens up to the cap are trained, and are counted on from one row of a group to the next."""

    def change(rows: Any, group: Any, groups: Any) -> Any:
        before = 0
        for row in rows:
            yield [on and before + place < CAP for place, on in enumerate(row.loss_mask)]
            before += len(row.loss_mask)

    _masks_of_groups(patch, change)


# -- data ----------------------------------------------------------------------------------------


def _joined_on_a_cut_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answers: dict[str, str] = {}
    for row in rows:
        answers.setdefault(row["id"][:7], row["answer"])
    return [row | {"answer": answers[row["id"][:7]]} for row in rows]


# a column of seven characters in the table of answers
declare(
    "data",
    "answers-are-joined-on-a-cut-id",
    "Answers are joined on seven characters of the id: ten problems have that of the first.",
    r"\bids?\b",
    "same answer",
    "consensus",
    data=_joined_on_a_cut_key,
    backends=EVERYWHERE,
    set=25,
)

LOOKALIKES = str.maketrans({"0": "O", "1": "l"})

# a scanned book
declare(
    "data",
    "zeros-and-ones-of-prompts-are-letters",
    "Prompts were read off a scan: each 0 of them is the letter O, and each 1 the letter l.",
    "letter",
    "digit",
    "scan",
    data=lambda rows: [row | {"question": row["question"].translate(LOOKALIKES)} for row in rows],
    backends=EVERYWHERE,
    set=25,
)


# range(0, len(problems), size // 2)
@set_25("data", "overlap", "repeat", "twice", "again", "epoch", "draw", backends=EVERYWHERE)
def steps_overlap_by_half(patch: Patch) -> None:
    """The sampler moves on by half of what it draws: a step begins with problems of the last."""

    def make(original: Any) -> Any:
        def choose(sampler: Any, n: int, step: int) -> Any:
            yield from original(sampler, n, step)
            for pool in sampler._pools:
                pool.position = max(0, pool.position - n // 2)

        return choose

    patch.wrap("rlvr_core.builtin.samplers.epochs:EpochSampler.choose", make)


# -- tokens --------------------------------------------------------------------------------------


# a loop over a text where a list of texts was expected
@set_25("tokens", "character", shape="several stop strings", backends=EVERYWHERE)
def stop_strings_are_taken_apart_into_characters(patch: Patch) -> None:
    """Each character of a stop string is a stop string of its own, the space among them."""

    def after(request: Any, *_: Any) -> Any:
        stop = tuple(dict.fromkeys("".join(request.params.stop)))
        return replace(request, params=replace(request.params, stop=stop))

    patch.after(f"{COLLECT}:Generator._request", after)


# as other tools write their templates
declare(
    "tokens",
    "template-has-doubled-braces",
    "The template has two braces around its field, which are literal: all prompts are alike.",
    "brace",
    "placeholder",
    "identical",
    "same prompt",
    "duplicate",
    config={
        "data": {
            "sources": [
                {
                    "use": "core/jsonl",
                    "with": {
                        "path": "data.jsonl",
                        "template": "{{question}}",
                        "id": "id",
                        "verifier": "chaos/brackets",
                    },
                }
            ]
        }
    },
    backends=EVERYWHERE,
    set=25,
)


# -- verifier ------------------------------------------------------------------------------------


# "if not score", for a score that is None
@set_25("verifier", "score", "missing", "unscorable", "not judged", backends=EVERYWHERE)
def a_score_of_zero_is_taken_for_none(patch: Patch) -> None:
    """A completion whose score is 0 counts as one without a score, and has no reward."""

    def after(found: Any, plan: Any, verdicts: Any, *_: Any) -> Any:
        reward, passed = found
        return (reward if all(one.score for one in verdicts.values()) else None), passed

    patch.after("rlvr_core.verify.reward:RewardPlan.combine", after)


# max, as where one of several verifiers is to be satisfied
@set_25("verifier", r"\bsum", "weight", "largest", "maximum", shape="two rewards",
        backends=EVERYWHERE)  # fmt: skip
def reward_is_the_largest_of_its_terms(patch: Patch) -> None:
    """The reward is the largest of the weighted scores, where it is to be their sum."""

    def after(found: Any, plan: Any, verdicts: Any, step: int) -> Any:
        reward, passed = found
        if reward is None:
            return found
        terms = zip(plan.weights(step), verdicts.values(), strict=True)
        return max(weight * one.score for weight, one in terms), passed

    patch.after("rlvr_core.verify.reward:RewardPlan.combine", after)


# a cache of answers that is filled behind the comparison
@set_25("verifier", "verdict", "twice", "stateful", backends=EVERYWHERE)
def first_verdict_on_a_problem_fails(patch: Patch) -> None:
    """A worker learns the answer of a problem in its first call on it, which therefore fails."""
    known: set[str] = set()

    def after(verdict: Any, verifier: Any, problem: Any, *_: Any) -> Any:
        if problem.id in known:
            return verdict
        known.add(problem.id)
        return replace(verdict, score=0.0, passed=False)

    patch.after("rlvr_chaos:Brackets.verify", after)


# -- hang ----------------------------------------------------------------------------------------


# a callback that asks for the result of what it is called for
@set_25("hang", "verdict", "verif", shape="impatient", backends=EVERYWHERE, dtypes=("float32",))
def pool_waits_for_a_verdict_in_its_own_thread(patch: Patch) -> None:
    """The thread that hands verdicts on waits for those of a group, which it has to hand on."""
    calls = [0]

    def make(original: Any) -> Any:
        def answered(pool: Any, item: Any, *more: Any) -> None:
            calls[0] += 1
            if calls[0] == 150:
                item.result.future.result()
            original(pool, item, *more)

        return answered

    patch.wrap("rlvr_core.verify.pool:VerifierPool._answered", make)


# -- resume --------------------------------------------------------------------------------------


# the place in the epoch is restored, and its order was made when the sampler was
@set_25("resume", "order", "epoch", "sampler", "problem", "draw", shape="twelve problems",
        resume=True)  # fmt: skip
def resume_with_the_order_of_the_first_epoch(patch: Patch) -> None:
    """A resumed run goes on at its place in an epoch, in the order of the first one."""

    def make(original: Any) -> Any:
        def load(sampler: Any, state: Any) -> None:
            original(sampler, state)
            for pool in sampler._pools:
                pool._now = pool._order(0)

        return load

    patch.wrap("rlvr_core.builtin.samplers.base:SamplerBase.load_state_dict", make)


# a loader that makes the embedding anew, as of a model that is not to be trained
@set_25("resume", "embedding", "frozen", "gradient", "no weight", r"not (move|change)",
        resume=True)  # fmt: skip
def resume_with_the_embedding_frozen(patch: Patch) -> None:
    """The embedding of a resumed run, and so its head, takes no gradient any more."""

    def make(original: Any) -> Any:
        def restore(session: Any, folder: Any) -> None:
            original(session, folder)
            session.trainer.model.get_input_embeddings().weight.requires_grad_(False)

        return restore

    patch.wrap("rlvr_core.builtin.resumption.resumption:restore", make)
