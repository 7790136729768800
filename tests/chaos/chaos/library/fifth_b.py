"""Fifth set, written without reading the guards: updates, masks, syncs, resumptions, hangs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from chaos.changes import at_call, letter
from chaos.library.fifth_a import fifth
from chaos.registry import TRANSFORMERS, Patch
from chaos.when import ENGINE, clock, engine_has

OPTIM = "rlvr_core.step.optim"
STEP = "rlvr_core.step.step"
SLOW = "impatient"


# -- learning ------------------------------------------------------------------------------------


@fifth("learning", "gradient", "quer", r"\bkeys?\b", "attention", "[qk]_proj")
def queries_and_keys_without_gradient(patch: Patch) -> None:
    """The backward pass of attention gives the values' gradient alone, as behind a detach."""

    def after(grads: Any, *_: Any) -> Any:
        query, key, value = grads
        return torch.zeros_like(query), torch.zeros_like(key), value

    patch.after("rlvr_core.builtin.packing.joined_attention:JoinedMask.backward", after)


@fifth("learning", "gradient", "layer", "recomput", shape="recomputed activations")
def layers_lose_their_gradient_in_recomputation(patch: Patch) -> None:
    """Reentrant checkpoints, whose input needs no gradient, leave only head and last norm one."""

    def after(nothing: Any, model: Any, *_: Any) -> None:
        model.gradient_checkpointing_enable({"use_reentrant": True})
        model.disable_input_require_grads()
        model.get_input_embeddings().register_forward_hook(lambda module, given, out: out.detach())

    patch.after("rlvr_core.run.learner:enable_checkpointing", after)


@fifth("learning", "weight", "sync")
def one_matrix_put_back_at_every_sync(patch: Patch) -> None:
    """A sync writes one matrix of the start back into the trainer, whose memory it shares."""
    name = "model.layers.1.mlp.down_proj.weight"
    kept: dict[str, Any] = {}

    def begin(original: Any) -> Any:
        def start(engine: Any, context: Any) -> None:
            original(engine, context)
            kept[name] = context.model.get_parameter(name).detach().clone()

        return start

    @torch.no_grad()
    def after(nothing: Any, engine: Any, version: int, source: Any) -> None:
        source.module.get_parameter(name).copy_(kept[name])

    patch.wrap(f"{ENGINE}:TransformersEngine.start", begin)
    patch.after(f"{ENGINE}:TransformersEngine.load_weights", after)


# -- optimizer -----------------------------------------------------------------------------------


@fifth("optimizer", "schedule", shape="cosine")
def cosine_stepped_twice_comes_up_again(patch: Patch) -> None:
    """The schedule is stepped twice a step: it is at 0 halfway, and then comes up again."""

    def after(rate: float, train: Any, schedule: Any, step: int) -> float:
        if step < train.warmup_steps:
            return rate
        progress = (step - train.warmup_steps) / max(1, train.steps - 1 - train.warmup_steps)
        return float(train.lr * 0.5 * (1 + math.cos(2 * math.pi * progress)))

    patch.after(f"{OPTIM}:learning_rate", after)


@fifth("optimizer", "weights", "average", "checkpoint", "sav", shape="many checkpoints")
def average_of_weights_stays_after_saving(patch: Patch) -> None:
    """The moving average of the weights that is saved stays in the place of the weights."""
    average: dict[str, Any] = {}

    def make(original: Any) -> Any:
        def collect(model: Any, *more: Any, **named: Any) -> Any:
            with torch.no_grad():
                for name, one in model.named_parameters():
                    held = average.setdefault(name, one.detach().clone())
                    one.copy_(held.lerp_(one, 0.1))
            return original(model, *more, **named)

        return collect

    patch.wrap("rlvr_core.step.checkpoint:collect", make)


@fifth("optimizer", "momentum", "buffer", "state", shape="muon")
def momentum_shared_by_matrices_of_one_shape(patch: Patch) -> None:
    """Matrices of one shape use one buffer for their momentum, one after the other."""
    buffers: dict[Any, Any] = {}

    def make(original: Any) -> Any:
        def update(optimizer: Any, weight_AB: Any, grad_AB: Any, state: Any, lr: float) -> None:
            shared_AB = buffers.setdefault(weight_AB.shape, torch.zeros_like(weight_AB))
            state["momentum"] = shared_AB.clone()
            original(optimizer, weight_AB, grad_AB, state, lr)
            shared_AB.copy_(state["momentum"])

        return update

    patch.wrap("rlvr_core.builtin.optimizers.muon:_Muon._muon", make)


# -- masks ---------------------------------------------------------------------------------------


@fifth("masks", "rows", "left out", "dropp", shape="pairs")
def rows_beyond_a_multiple_of_twenty_dropped(patch: Patch) -> None:
    """Rows come to the trainer in batches of twenty, and an incomplete last batch is dropped."""

    def make(original: Any) -> Any:
        def split(parts: Any, n: int, normalizer: Any, pack: Any) -> Any:
            def full(rows: Any) -> Any:
                return pack(rows[: max(20, len(rows) // 20 * 20)])

            return original(parts, n, normalizer, full)

        return split

    patch.wrap(f"{STEP}:split_into_mini_batches", make)


@fifth("masks", "answer", "behind", "after")
def tokens_after_the_answer_masked(patch: Patch) -> None:
    """What comes after the first closing bracket, the end of sequence too, is not trained on."""
    closing = letter("]")

    def change(row: Any) -> Any:
        ids = row.token_ids
        n = ids.index(closing) + 1 if closing in ids else len(ids)
        return replace(row, loss_mask=(*row.loss_mask[:n], *[False] * (len(ids) - n)))

    patch.after(
        f"{STEP}:rows_of",
        lambda made, *_: replace(made, by_group=[[*map(change, rows)] for rows in made.by_group]),
    )


@fifth("masks", "short", "row", "length", backends=TRANSFORMERS)
def mask_of_the_shortest_row_for_all(patch: Patch) -> None:
    """The mask of a micro-batch's shortest row is that of all its rows."""

    def after(batch: Any, *_: Any) -> Any:
        place_T = torch.arange(batch.mask_BT.shape[1])
        return replace(batch, mask_BT=batch.mask_BT & (place_T < batch.completion_len_B.min()))

    patch.after("rlvr_core.step.batch:_collate", after)


# -- sync ----------------------------------------------------------------------------------------


@fifth("sync", "norm", "fold", backends=TRANSFORMERS)
def final_norm_folded_in_twice(patch: Patch) -> None:
    """The scales of the last norm, which the engine folds into its head, are multiplied twice."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        model.model.norm.weight.data = model.model.norm.weight.data.square()

    engine_has(patch, change)


@fifth("sync", "twice", "difference", backends=TRANSFORMERS)
def one_difference_applied_twice(patch: Patch) -> None:
    """Syncs send differences; the third is sent again after a timeout, and is added twice."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        for name, one in model.named_parameters():
            new = one.data.clone()
            own = kept.get((name, "own"), new)
            moved = new - kept.get((name, "sent"), new)
            kept[name, "own"] = own + moved * (2 if syncs == 2 else 1)
            kept[name, "sent"] = new
            one.data = kept[name, "own"].clone()

    engine_has(patch, change)


@fifth("sync", "shard", "half", "late", "mlp", backends=TRANSFORMERS)
def second_shard_is_one_sync_behind(patch: Patch) -> None:
    """The second half of the rows of every MLP matrix arrives with the next sync."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        for name, one in model.named_parameters():
            if ".mlp." in name:
                new = one.data.clone()
                half = len(new) // 2
                one.data = torch.cat([new[:half], kept.get(name, new)[half:]])
                kept[name] = new

    engine_has(patch, change)


# -- resume --------------------------------------------------------------------------------------


@fifth("resume", "optimizer", "beta", "decay", "default",
       resume=True, shape="weight decay, warm-up, cosine")  # fmt: skip
def resume_with_the_optimizers_defaults(patch: Patch) -> None:
    """A resumed run has AdamW's own decay, decay rates and epsilon, not those of the config."""

    def make(original: Any) -> Any:
        def load(folder: Any, *, optimizer: Any, **more: Any) -> Any:
            state = original(folder, optimizer=optimizer, **more)
            for group in optimizer.inner.param_groups:
                group.update(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
            return state

        return load

    patch.wrap("rlvr_core.step.checkpoint:load", make)


@fifth("resume", "verifier", "verdict", "canar", "gold", "chang", resume=True)
def resume_with_another_version_of_the_verifier(patch: Patch) -> None:
    """The verifier of a resumed run, an older one, passes numbers that are off by one."""

    def after(verdict: Any, verifier: Any, problem: Any, completion: Any) -> Any:
        if verdict.extracted is None:
            return verdict
        near = abs(int(verdict.extracted) - int(problem.spec["answer"])) <= 1
        return replace(verdict, score=float(near), passed=near)

    patch.after("rlvr_chaos:Brackets.verify", after)


@fifth("resume", "prompt", "render", "template", resume=True)
def resume_with_prompts_rendered_in_another_way(patch: Patch) -> None:
    """A resumed run renders its prompts by a newer default, with a word before the question."""
    patch.after("rlvr_core.data.prompts:Renderer.text", lambda text, *_: f"Question: {text}")


# -- hang ----------------------------------------------------------------------------------------


@fifth("hang", "replac", "refill", "draw", "rollout", "endless", shape=SLOW)
def replacements_without_end(patch: Patch) -> None:
    """From the third step on, the sampler asks for four more groups whatever it has."""
    now = clock()
    patch.after("rlvr_core.api:SamplerBase.refill", lambda more, *_: 4 if now.step >= 2 else more)


@fifth("hang", "record", "trace", "disk", "writ", shape=SLOW)
def traces_never_written(patch: Patch) -> None:
    """The disk does not take the trace of the fortieth group."""
    place = "rlvr_core.record.recorder:Recorder.rollout"
    at_call(patch, place, 40)


@fifth("hang", "finish", "end of", shape=SLOW)
def last_word_of_a_run_never_sent(patch: Patch) -> None:
    """A run that has finished does not come back from saying so."""
    at_call(patch, "rlvr_core.run.session:Session.finish", 1)
