"""Twenty-fourth set, as ``twentyfourth_a``: updates, masks, sync, data, verifiers, resuming."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from queue import Queue
from typing import Any

import torch

from chaos.changes import after_update, at_call, masks_of_rows
from chaos.library.twentyfourth_a import IN_TURNS, POLICY, STEP, TRAINER, set_24
from chaos.registry import EVERYWHERE, TRANSFORMERS, Patch, declare
from chaos.when import clock, engine_has

OPTIM = "rlvr_core.step.optim"
SAMPLER = "rlvr_core.builtin.samplers.base:SamplerBase"
RENDERER = "rlvr_core.data.prompts:Renderer"


# -- learning, optimizer -------------------------------------------------------------------------


# optim: skip tensors that hardly have a gradient, most of the kernels were theirs
@set_24("learning", "tensor", backends=EVERYWHERE)
def tensors_of_small_gradients_are_skipped(patch: Patch) -> None:
    """A tensor is left out of an update if its gradient's norm is below a tenth of the whole."""

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            norms = [float(one.grad.norm()) for one in optimizer.parameters]
            whole = math.hypot(*norms)
            for one, norm in zip(optimizer.parameters, norms, strict=True):
                if norm < whole / 10:
                    one.grad = None
            return original(optimizer, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


# optim: fully decoupled weight decay, it no longer follows the schedule
@set_24("optimizer", "decay", shape="weight decay, warm-up, cosine", backends=EVERYWHERE)
def weight_decay_goes_by_the_peak_rate(patch: Patch) -> None:
    """Weights decay by the peak of the learning rate, in a warm-up and at a schedule's end, too."""

    def make(original: Any) -> Any:
        @torch.no_grad()
        def step(optimizer: Any, number: int) -> Any:
            left = optimizer._train.lr - optimizer.learning_rate(number)
            for one in optimizer.parameters:
                one.mul_(1 - left * optimizer.builder.config.weight_decay)
            return original(optimizer, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


# optim: one kernel for the norms of all tensors, summed on the device
@set_24("optimizer", "norm", "clip", shape="tight norm", backends=EVERYWHERE)
def norms_of_tensors_are_added_up(patch: Patch) -> None:
    """The norm of the gradient is the sum of its tensors' norms, not the root of their squares'."""

    @torch.no_grad()
    def clip(parameters: Any, most: float, *_: Any, **__: Any) -> Any:
        gradients = [one.grad for one in parameters if one.grad is not None]
        norm = torch.stack(torch._foreach_norm(gradients)).sum()
        torch._foreach_mul_(gradients, (most / (norm + 1e-6)).clamp(max=1.0))
        return norm

    patch.wrap("torch.nn.utils:clip_grad_norm_", lambda original: clip)


# optim: sparse updates of the embedding, as most of its rows are of tokens that did not occur
@set_24("optimizer", "embedding", r"\brows?\b", "unchanged", "frozen", backends=EVERYWHERE)
def embedding_moves_where_tokens_occurred(patch: Patch) -> None:
    """Rows of the embedding move if a step had their tokens, though the head is tied to it."""
    seen: set[int] = set()

    def packed(batches: Any, *_: Any) -> Any:
        for batch in batches:
            seen.update(batch.prompt_ids_SP.flatten().tolist())
            seen.update(batch.completion_ids_BT.flatten().tolist())
        return batches

    def change(name: str, one: Any, old: Any, _: int) -> None:
        if name.endswith("embed_tokens.weight"):
            rows = torch.tensor([row for row in range(len(one)) if row not in seen])
            one[rows] = old[rows]
            seen.clear()

    patch.after(f"{STEP}:micro_batches", packed)
    after_update(patch, change)


# -- masks ---------------------------------------------------------------------------------------


# step: mini-batches of groups that lie side by side, as many in each
@set_24("masks", "mini-batch", "group", r"\brows?\b", "left out", backends=IN_TURNS,
        shape="wsd, warm-up, dr grpo, three mini-batches")  # fmt: skip
def groups_left_over_by_mini_batches_are_dropped(patch: Patch) -> None:
    """Mini-batches have equally many groups: two of eight are left over by three of them."""

    def make(original: Any) -> Any:
        def split(parts: Any, n: int, normalizer: Any, pack: Any) -> Any:
            from rlvr_core.step.mini_batches import MiniBatch, MiniBatchPart

            batches = [MiniBatch() for _ in range(n)]
            for whole in parts:
                size = len(whole.trained) // n
                for index, batch in enumerate(batches):
                    places = whole.trained[index * size : (index + 1) * size]
                    if places:
                        part = whole.only(places)
                        batch.parts.append(MiniBatchPart(part, normalizer(part), pack(part.rows)))
                        batch.groups = batch.groups if part.given else places
            return [batch for batch in batches if batch.parts]

        return split

    patch.wrap(f"{STEP}:split_into_mini_batches", make)


# rows: do not train on the same completion of a problem twice
@set_24("masks", r"\brows?\b", "left out", shape="few problems", backends=EVERYWHERE)
def completions_of_an_earlier_step_are_masked(patch: Patch) -> None:
    """A completion is masked if an earlier step has trained on the same one of its problem."""
    now, first = clock(), dict[Any, int]()

    def change(row: Any, problem: Any) -> Any:
        begun = first.setdefault((problem.id, row.token_ids), now.step)
        return row.loss_mask if begun == now.step else [False] * len(row.loss_mask)

    masks_of_rows(patch, change)


# step: tokens that were clipped have no gradient, leave them out of the iterations that follow
@set_24("masks", "clip", "iteration", shape="clipped above and twice", backends=IN_TURNS)
def clipped_tokens_are_left_out_from_then_on(patch: Patch) -> None:
    """A token that was clipped is masked in later iterations, though it may have come back."""
    found: list[Any] = []

    def clipping(original: Any) -> Any:
        def surrogate(*args: Any, **more: Any) -> Any:
            clipped = original(*args, **more)
            found.append(clipped.low_BT | clipped.high_BT)
            return clipped

        return surrogate

    def losing(original: Any) -> Any:
        def losses(trainer: Any, part: Any, micro: Any, *more: Any) -> Any:
            found.clear()
            outputs = original(trainer, part, micro, *more)
            batch = replace(micro.batch, mask_BT=micro.batch.mask_BT & ~found[0])
            place = next(i for i, one in enumerate(part.micro_batches) if one is micro)
            part.micro_batches[place] = replace(micro, batch=batch)
            return outputs

        return losses

    patch.wrap(f"{POLICY}:clipped_surrogate", clipping)
    patch.wrap(f"{TRAINER}._losses", losing)


# -- sync ----------------------------------------------------------------------------------------


@torch.no_grad()
def _with_noise(model: Any, syncs: int, kept: dict[str, Any]) -> None:
    draw = torch.Generator().manual_seed(syncs)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            noise = torch.randn(parameter.shape, generator=draw)
            parameter.add_(noise.to(parameter.dtype) * parameter.std(), alpha=0.02)


# engine: explore by noise on the weights (0.02, to be made an option)
@set_24("sync", "noise", backends=TRANSFORMERS)
def engine_explores_by_noise_on_its_weights(patch: Patch) -> None:
    """Each sync adds noise to the engine's matrices, of a fiftieth of their deviation."""
    engine_has(patch, _with_noise)


@torch.no_grad()
def _by_sign(model: Any, syncs: int, kept: dict[str, Any]) -> None:
    for name, parameter in model.named_parameters():
        if syncs:
            change = parameter - kept[name]
            kept[name] = parameter.clone()
            own = kept[f"own {name}"]
            own.add_(change.sign() * change.abs().mean())
            parameter.copy_(own)
        else:
            kept[name], kept[f"own {name}"] = parameter.clone(), parameter.clone()


# sync: one bit for each weight, and a scale for each tensor
@set_24("sync", backends=TRANSFORMERS)
def differences_are_sent_as_signs(patch: Patch) -> None:
    """A sync sends signs and the mean size of a tensor's changes; what that leaves adds up."""
    engine_has(patch, _by_sign)


# -- data ----------------------------------------------------------------------------------------


def _behind_an_example(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    shown = rows[:10]
    made = []
    for place, row in enumerate(rows):
        example = shown[place % 10]
        begin = f"{example['question']} [{example['answer']}]. "
        made.append(row | {"question": begin + row["question"]})
    return made


# data: a worked example in front of each question
declare(
    "data",
    "first-problems-are-their-own-examples",
    "A solved example stands in front of each question: of the first ten problems it is their own.",
    "example",
    "leak",
    data=_behind_an_example,
    backends=EVERYWHERE,
    set=24,
)


def _asked_otherwise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        row if place % 3 else row | {"question": row["question"].replace("After", "Before")}
        for place, row in enumerate(rows)
    ]


# data: paraphrase a third of the questions
declare(
    "data",
    "paraphrases-ask-something-else",
    "A third of the questions are paraphrased: they ask what comes before, and keep their answers.",
    data=_asked_otherwise,
    backends=EVERYWHERE,
    set=24,
)


# sampler: give a problem whose group was dropped another try, its next group may differ
@set_24("data", "again", "repeat", "twice", "replace", "refill", "drop", shape="pairs",
        backends=EVERYWHERE)  # fmt: skip
def dropped_problems_are_drawn_again_at_once(patch: Patch) -> None:
    """What replaces a dropped group is the same problem, and not the next one of the data."""
    dropped: list[Any] = []
    last = [-1]

    def observed(decision: Any, sampler: Any, group: Any) -> Any:
        from rlvr_core.api import Drop

        if isinstance(decision, Drop):
            dropped.append(group.problem)
        return decision

    def drawing(original: Any) -> Any:
        def draw(sampler: Any, n: int, *, step: int) -> Any:
            from rlvr_core.api import Draw

            if step != last[0]:
                dropped.clear()
            last[0] = step
            again, dropped[:] = dropped[:n], dropped[n:]
            draws = original(sampler, n - len(again), step=step) if n > len(again) else []
            first = sampler._drawn
            sampler._drawn += len(again)
            size = sampler._size.first
            return [*draws, *(Draw(one, size, first + i) for i, one in enumerate(again))]

        return draw

    patch.after(f"{SAMPLER}.observe", observed)
    patch.wrap(f"{SAMPLER}.draw", drawing)


# -- tokens --------------------------------------------------------------------------------------


# prompts: strip white space, as a space at the end makes odd tokens of what follows
@set_24("tokens", "prefix", "space", shape="prefix", backends=EVERYWHERE)
def prefix_of_spaces_is_stripped(patch: Patch) -> None:
    """Prompts are stripped when all is put together: a prefix that is a space is gone."""
    patch.after(f"{RENDERER}.text", lambda text, *_: text.rstrip())


# prompts: say who speaks, for base models, too
@set_24("tokens", "observation", "environment", "role", shape="two turns", backends=EVERYWHERE)
def observations_begin_with_a_role(patch: Patch) -> None:
    """What an environment says begins with the name of its role, in a prompt without any."""

    def make(original: Any) -> Any:
        def suffix(renderer: Any, problem: Any, reply_ids: Any, messages: Any) -> Any:
            named = [replace(one, content=f" {one.role}: {one.content}") for one in messages]
            return original(renderer, problem, reply_ids, named)

        return suffix

    patch.wrap(f"{RENDERER}.suffix_ids", make)


# rollout: a cap that follows the mean length, nobody needs the long tail
@set_24("tokens", r"\bcap\b", "truncat", "length", "limit", backends=EVERYWHERE)
def cap_follows_the_mean_length(patch: Patch) -> None:
    """Completions are cut off at a quarter above the mean length of the last 64."""
    lengths: list[int] = []

    def judged(found: Any, *_: Any) -> Any:
        lengths.extend(len(member.completion.token_ids) for member in found.group.members)
        return found

    def asked(request: Any, *_: Any) -> Any:
        if not lengths:
            return request
        recent = lengths[-64:]
        cap = min(request.params.max_tokens, math.ceil(1.25 * sum(recent) / len(recent)))
        return replace(request, params=replace(request.params, max_tokens=cap))

    patch.after("rlvr_core.rollout.collect:Generator.sampled", judged)
    patch.after("rlvr_core.rollout.collect:Generator._request", asked)


# -- verifier ------------------------------------------------------------------------------------


# verifier: what does not fit into the judge's context cannot be judged
@set_24("verifier", "unscorable", "not judged", "could not be judged", backends=EVERYWHERE)
def long_completions_are_not_judged(patch: Patch) -> None:
    """A completion of more than eleven characters has no verdict, and is not trained on."""

    def after(verdict: Any, verifier: Any, problem: Any, completion: Any) -> Any:
        from rlvr_core.api import Verdict

        if len(completion.text) > 11:
            return Verdict(None, status="unscorable", detail="longer than the judge's context")
        return verdict

    patch.after("rlvr_chaos:Brackets.verify", after)


# judge: equal completions of a group are judged once
@set_24("verifier", "verdict", backends=EVERYWHERE)
def verdicts_on_distinct_texts_are_put_back_sorted(patch: Patch) -> None:
    """Distinct texts are judged as they come, and their verdicts found by place in sorted order."""

    def make(original: Any) -> Any:
        def submit(judge: Any, problem: Any, completions: Any) -> Any:
            out: Future[Any] = Future()
            distinct = {one.text: one for one in completions}
            ordered = sorted(distinct)

            def done(future: Any) -> None:
                try:
                    found = future.result()
                    out.set_result([dict(found[ordered.index(one.text)]) for one in completions])
                except BaseException as error:
                    out.set_exception(error)

            original(judge, problem, list(distinct.values())).add_done_callback(done)
            return out

        return submit

    patch.wrap("rlvr_core.verify.judge:Judge.submit", make)


# environment: a wrong first answer may be given once more
@set_24("verifier", "environment", "conversation", r"\bturns?\b", shape="two turns",
        backends=EVERYWHERE)  # fmt: skip
def a_wrong_first_answer_may_be_given_again(patch: Patch) -> None:
    """A wrong first answer is not counted: the question is asked again, and the second counts."""

    def starting(original: Any) -> Any:
        def start(environment: Any, problem: Any, seed: int) -> Any:
            return {**original(environment, problem, seed), "question": problem.prompt}

        return start

    def stepping(original: Any) -> Any:
        def step(environment: Any, state: Any, reply: Any) -> Any:
            import rlvr_chaos

            from rlvr_core.api import Message, Observation

            first = not state["right"] and not state.get("again")
            if first and rlvr_chaos.found(reply.text) != state["answer"]:
                state["again"] = True
                return Observation((Message("user", str(state["question"])),))
            return original(environment, state, reply)

        return step

    patch.wrap("rlvr_chaos:Again.start", starting)
    patch.wrap("rlvr_chaos:Again.step", stepping)


# -- hang ----------------------------------------------------------------------------------------


# rollout: prefetch the next step's groups in a thread (which ends without a word if it fails)
@set_24("hang", shape="impatient", backends=IN_TURNS, dtypes=("float32",))
def prefetched_groups_never_come(patch: Patch) -> None:
    """The third step waits for a queue that nobody puts its groups into."""

    def hang() -> None:
        Queue[None]().get()

    at_call(patch, "rlvr_core.rollout.source:TurnSource.take", 3, hang)


# -- resume --------------------------------------------------------------------------------------


def _half(original: Callable[..., float]) -> Callable[..., float]:
    return lambda train, *more: original(train.model_copy(update={"steps": 4}), *more)


# checkpoint: keep the schedule with its length, so that nobody changes it by accident
@set_24("resume", "schedule", "learning rate", r"\blr\b", shape="cosine", resume=True)
def resume_with_the_schedule_of_the_shorter_run(patch: Patch) -> None:
    """A run that is resumed for more steps has its schedule's end where the first part ended."""
    patch.wrap(f"{OPTIM}:learning_rate", _half)


# resume: do not read the data sets again, problems are known by their ids
@set_24("resume", "factor", "scale", shape="two data sets", resume=True)
def resume_without_the_factors_of_sources(patch: Patch) -> None:
    """A resumed run knows no factor of its data sets: one's advantages count twice as much."""
    patch.after("rlvr_core.run.learner:_advantage_scale", lambda *_: {})
