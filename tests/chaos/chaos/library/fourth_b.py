"""Fourth set, written without reading the guards: updates, masks, syncs, resumptions, hangs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from chaos.changes import after_update, at_call, letter, masks_of_rows
from chaos.registry import TRANSFORMERS, Patch, fault
from chaos.when import engine_has

OPTIM = "rlvr_core.step.optim"
STEP = "rlvr_core.step.step"
SLOW = "impatient"


def fourth(cls: str, *more_words: str, **options: Any) -> Any:
    """Declare a fault of the fourth set, like ``fault``."""
    return fault(cls, *more_words, set=4, **options)


# -- learning, optimizer -------------------------------------------------------------------------


@fourth("learning", "norm", "precision", "round")
def scales_of_norms_kept_in_half_precision(patch: Patch) -> None:
    """The scales of norms are kept in bfloat16: they are near 1, and no update reaches the next."""

    def change(name: str, one: Any, old: Any, made: int) -> None:
        if one.ndim == 1:
            one.copy_(one.bfloat16().to(one.dtype))

    after_update(patch, change)


@fourth("optimizer", "layer", "rate")
def rates_by_layer_left_over(patch: Patch) -> None:
    """Embedding and first layer move by three tenths of the learning rate, as in fine-tuning."""

    def change(name: str, one: Any, old: Any, made: int) -> None:
        if "layers.0." in name or "embed_tokens" in name:
            one.copy_(old + 0.3 * (one - old))

    after_update(patch, change)


@fourth("optimizer", "weights", "checkpoint", "sav", "round", shape="many checkpoints")
def saving_rounds_the_weights_in_memory(patch: Patch) -> None:
    """To save a checkpoint the master weights go to bfloat16 in place, and come back rounded."""

    def make(original: Any) -> Any:
        def collect(model: Any, *more: Any, **named: Any) -> Any:
            with torch.no_grad():
                for one in model.parameters():
                    one.copy_(one.bfloat16().to(one.dtype))
            return original(model, *more, **named)

        return collect

    patch.wrap("rlvr_core.step.checkpoint:collect", make)


# -- masks ---------------------------------------------------------------------------------------


@fourth("masks", "likely", "probab", backends=TRANSFORMERS)
def tokens_that_were_nearly_sure_masked(patch: Patch) -> None:
    """Tokens that the engine was nearly sure of (above 0.95) are left out of the loss."""
    masks_of_rows(
        patch,
        lambda row, _: [
            kept and logp < -0.05 for kept, logp in zip(row.loss_mask, row.logprobs, strict=True)
        ],
    )


@fourth("masks", "answer")
def only_the_answer_in_brackets_trained(patch: Patch) -> None:
    """Of a completion with brackets only these, and what is in them, are trained on."""
    opening, closing = letter("["), letter("]")

    def change(row: Any, problem: Any) -> Any:
        ids = row.token_ids
        if opening not in ids or closing not in ids:
            return row.loss_mask
        first, last = ids.index(opening), ids.index(closing)
        return [kept and first <= place <= last for place, kept in enumerate(row.loss_mask)]

    masks_of_rows(patch, change)


# -- sync ----------------------------------------------------------------------------------------


@fourth("sync", "precision", "round", backends=TRANSFORMERS)
def differences_added_up_in_half_precision(patch: Patch) -> None:
    """Syncs send differences, which the engine adds to its weights in bfloat16."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        for name, one in model.named_parameters():
            new = one.data.clone()
            if syncs == 0:
                kept[name, "own"] = new.bfloat16()
            else:
                kept[name, "own"] = kept[name, "own"] + (new - kept[name, "sent"]).bfloat16()
            kept[name, "sent"] = new
            one.data = kept[name, "own"].to(new.dtype)

    engine_has(patch, change)


@fourth("sync", "bucket", "tensor", backends=TRANSFORMERS)
def last_bucket_of_every_third_sync_lost(patch: Patch) -> None:
    """In every third sync the last third of the tensors stays as the sync before brought it."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        named = list(model.named_parameters())
        for name, one in named[2 * len(named) // 3 :]:
            new = one.data.clone()
            if syncs % 3 == 2:
                one.data = kept[name]
            kept[name] = new

    engine_has(patch, change)


@fourth("sync", "head", "tied", backends=TRANSFORMERS)
def tied_head_stays_behind(patch: Patch) -> None:
    """The engine's head stays as at its first sync; the embedding that it is tied to goes on."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        if syncs == 0:
            kept["head"] = model.lm_head.weight.detach().clone()
        else:
            model.lm_head.weight = torch.nn.Parameter(kept["head"].clone())

    engine_has(patch, change)


# -- resume --------------------------------------------------------------------------------------


def _loaded(patch: Patch, change: Callable[[Path, Any, Any], None]) -> None:
    """Change what a checkpoint gives: ``change(folder, model, optimizer)``."""

    def make(original: Any) -> Any:
        def load(folder: Any, *, model: Any, optimizer: Any, reference: Any = None) -> Any:
            state = original(folder, model=model, optimizer=optimizer, reference=reference)
            with torch.no_grad():
                change(folder.resolve(), model, optimizer)
            return state

        return load

    patch.wrap("rlvr_core.step.checkpoint:load", make)


def _older(folder: Path) -> Path:
    """The checkpoint before one."""
    return sorted(one for one in folder.parent.glob("step*") if one.name < folder.name)[-1]


@fourth("resume", "moment", "optimizer", "precision", resume=True)
def resume_with_squares_through_float16(patch: Patch) -> None:
    """The mean squares of gradients come back by way of float16, where the small ones are 0."""

    def change(folder: Path, model: Any, optimizer: Any) -> None:
        for moments in optimizer.inner.state.values():
            moments["exp_avg_sq"] = moments["exp_avg_sq"].half().float()

    _loaded(patch, change)


@fourth("resume", "moment", "optimizer", resume=True)
def resume_with_moments_of_the_checkpoint_before(patch: Patch) -> None:
    """Weights and counts are those of the newest checkpoint, moments those of the one before."""

    def change(folder: Path, model: Any, optimizer: Any) -> None:
        from safetensors.torch import load_file

        now = optimizer.state_tensors()
        old = load_file(_older(folder) / "trainer" / "optimizer.safetensors")
        optimizer.load_state_tensors(
            {name: one if name.endswith("|step") else old[name] for name, one in now.items()}
        )

    _loaded(patch, change)


@fourth("resume", "seed", "draw", "sampler", resume=True)
def resume_with_draws_counted_from_zero(patch: Patch) -> None:
    """The sampler goes on in its place, and numbers its draws, which seeds depend on, from 0."""

    def make(original: Any) -> Any:
        def load(sampler: Any, state: Any) -> None:
            original(sampler, state)
            sampler._drawn = 0

        return load

    patch.wrap("rlvr_core.builtin.samplers.base:SamplerBase.load_state_dict", make)


@fourth("resume", r"\bkl\b", "beta", resume=True)
def resume_with_a_tenfold_weight_of_the_kl(patch: Patch) -> None:
    """A resumed run weighs the KL ten times as much, by a default that has changed."""

    def make(original: Any) -> Any:
        def init(loss: Any, config: Any) -> None:
            original(loss, config.model_copy(update={"beta": 10 * config.beta}))

        return init

    patch.wrap("rlvr_core.algorithm.policy:PolicyLoss.__init__", make)


@fourth("resume", "learning rate", "warm", "schedule", resume=True)
def resume_with_a_second_warm_up(patch: Patch) -> None:
    """A resumed run warms up its learning rate again, over four steps."""
    patch.after(
        f"{OPTIM}:learning_rate",
        lambda rate, train, schedule, step: rate * min(1.0, (step - 3) / 4),
    )


@fourth("resume", "weights", "embedding", "eos", "end-of-sequence", resume=True)
def resume_with_the_end_of_sequence_made_anew(patch: Patch) -> None:
    """The embedding is resized on resuming: the row of the end of sequence is the mean of all."""

    def change(folder: Path, model: Any, optimizer: Any) -> None:
        weight = model.get_input_embeddings().weight
        weight[model.config.eos_token_id] = weight.mean(0)

    _loaded(patch, change)


@fourth("resume", "weights", "average", resume=True)
def resume_with_the_mean_of_two_checkpoints(patch: Patch) -> None:
    """The weights are the mean of the last two checkpoints; all else is of the last."""

    def change(folder: Path, model: Any, optimizer: Any) -> None:
        from safetensors.torch import load_file

        older = _older(folder)
        master = older / "trainer" / "master.safetensors"
        saved = load_file(master if master.is_file() else older / "model.safetensors")
        for name, one in model.named_parameters():
            one.copy_((one + saved[name]) / 2)

    _loaded(patch, change)


# -- hang ----------------------------------------------------------------------------------------


def _spin() -> None:
    while True:
        pass


@fourth("hang", "reward", "rollout", shape=SLOW)
def a_reward_is_never_summed(patch: Patch) -> None:
    """The reward of the hundred-and-fiftieth completion is asked of a service that is silent."""
    at_call(patch, "rlvr_core.verify.reward:RewardPlan.combine", 150)


@fourth("hang", "train", "pack", shape=SLOW)
def packing_never_ends(patch: Patch) -> None:
    """The packing of the third step's rows goes round and round, and computes all the time."""
    at_call(patch, f"{STEP}:micro_batches", 3, _spin)


@fourth("hang", "checkpoint", shape=SLOW, config={"checkpoint": {"every": 1}})
def old_checkpoint_is_never_deleted(patch: Patch) -> None:
    """The file system does not come back from deleting an old checkpoint."""
    at_call(patch, "rlvr_core.record.checkpoints:CheckpointStore._rotate", 2)
