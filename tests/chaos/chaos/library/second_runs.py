"""Second set, written later and without reading the guards: hangs and resumed runs."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import torch

from chaos.changes import FOREVER
from chaos.registry import Patch, later

LOAD = "rlvr_core.step.checkpoint:load"
POOL = "rlvr_core.builtin.samplers.epochs:Pool._order"


# -- hang ----------------------------------------------------------------------------------------


def hangs(patch: Patch, place: str, call: int = 1) -> None:
    """Let a function never return from its n-th call."""
    calls = {"n": 0}

    def make(original: Any) -> Any:
        def hanging(*args: Any, **more: Any) -> Any:
            calls["n"] += 1
            if calls["n"] == call:
                time.sleep(FOREVER)
            return original(*args, **more)

        return hanging

    patch.wrap(place, make)


@later("hang", shape="impatient")
def sampler_hangs_in_the_second_step(patch: Patch) -> None:
    """The sampler never comes back with the problems of the second step."""
    hangs(patch, "rlvr_core.api:SamplerBase.draw", 2)


@later("hang", shape="impatient")
def records_hang(patch: Patch) -> None:
    """The disk does not take the third step's metrics."""
    hangs(patch, "rlvr_core.record.recorder:Recorder.metrics", 3)


@later("hang", shape="impatient")
def last_checkpoint_hangs(patch: Patch) -> None:
    """The checkpoint at the end is never written to its end."""
    hangs(patch, "rlvr_core.record.checkpoints:CheckpointStore.write", 1)


@later("hang", shape="impatient")
def model_never_loads(patch: Patch) -> None:
    """The model's files never come."""
    hangs(patch, "rlvr_core.run.learner:load_policy", 1)


@later("hang", shape="impatient")
def verifier_hangs_when_it_is_made(patch: Patch) -> None:
    """The verifier is never ready in a worker, as if it waited for a server."""
    main = os.getpid()

    def make(original: Any) -> Any:
        def begin(*args: Any) -> None:
            if os.getpid() != main:
                time.sleep(FOREVER)
            original(*args)

        return begin

    patch.wrap("rlvr_chaos:Brackets.__init__", make)


# -- resume --------------------------------------------------------------------------------------


@later("resume", "learning rate", resume=True)
def resume_at_another_learning_rate(patch: Patch) -> None:
    """A resumed run learns at three times its learning rate."""
    patch.after("rlvr_core.step.optim:learning_rate", lambda rate, *_: 3 * rate)


@later("resume", "order", "problem", resume=True)
def resume_with_another_order(patch: Patch) -> None:
    """A resumed run shuffles its data with another key."""
    patch.after(POOL, lambda ids, *_: ids[::-1])


@later("resume", "optimizer", resume=True)
def resume_with_steps_of_adam_at_zero(patch: Patch) -> None:
    """The optimizer's moments come back, its count of updates does not."""

    def make(original: Any) -> Any:
        def restore(optimizer: Any, tensors: Any) -> Any:
            changed = {
                name: torch.zeros_like(tensor) if name.endswith("|step") else tensor
                for name, tensor in tensors.items()
            }
            return original(optimizer, changed)

        return restore

    patch.wrap("rlvr_core.step.optim:Optimizer.load_state_tensors", make)


@later("resume", "weights", resume=True)
def resume_with_older_weights(patch: Patch) -> None:
    """A resumed run has its state of step 4 and its weights of step 2."""

    def make(original: Any) -> Any:
        def load(folder: Any, *, model: Any, **more: Any) -> Any:
            from safetensors.torch import load_file

            state = original(folder, model=model, **more)
            older = folder.resolve().parent / "step000002"
            master = older / "trainer" / "master.safetensors"
            kept = load_file(master if master.exists() else older / "model.safetensors")
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    if name in kept:
                        parameter.copy_(kept[name])
            return state

        return load

    patch.wrap(LOAD, make)


@later("resume", "weights", resume=True)
def resume_without_one_tensor(patch: Patch) -> None:
    """One matrix of a resumed run stays as it was at the start."""

    def make(original: Any) -> Any:
        def load(folder: Any, *, model: Any, **more: Any) -> Any:
            left = next(
                p for n, p in model.named_parameters() if n.endswith("0.mlp.up_proj.weight")
            )
            before = left.detach().clone()
            state = original(folder, model=model, **more)
            with torch.no_grad():
                left.copy_(before)
            return state

        return load

    patch.wrap(LOAD, make)


@later("resume", "data", "answers", "changed", resume=True)
def resume_with_other_answers(patch: Patch) -> None:
    """Between the two halves of a run, a third of the answers in its file have changed."""
    patch.hit()
    place = patch.folder / "data.jsonl"
    rows = [json.loads(line) for line in place.read_text().splitlines()]
    for row in rows[::3]:
        row["answer"] = str(int(row["answer"]) + 1)
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))


@later("resume", "temperature", "changed", resume=True)
def resume_at_another_temperature(patch: Patch) -> None:
    """A resumed run samples at a temperature of 0.7, where its first half sampled at 1."""

    def make(original: Any) -> Any:
        def params(config: Any) -> Any:
            from dataclasses import replace

            return replace(original(config), temperature=0.7)

        return params

    patch.wrap("rlvr_core.run.start:sampling_of", make)
