"""Rehearses the largest micro-batch on the stand-in; a line of JSON for each case.

    python -m tests.together.gpu_standin.rehearsals '[{"memory": 40, "budget": 16384}]'

A process of its own, like ``run.py``. ``memory`` is the card's, in GiB; the rest are keys of
``CASE``. With ``rehearsed``, steps are made without rehearsals, and with one before each
of the steps that it lists.
"""
# ruff: noqa: E402  # the stand-in's library is loaded before torch

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from tests.together.gpu_standin import build

build.load()

import torch

from rlvr_core.api import MachineError
from rlvr_core.config.model import SamplingSection, TrainSection
from rlvr_guards import gpu as guard
from rlvr_guards import rehearsal
from tests.together.gpu_standin import device as standin
from tests.together.gpu_standin.run import put
from tests.together.gpu_standin.steps import CASE, groups, models, trainer_of


class Config(SimpleNamespace):
    """The two sections that a rehearsal reads."""

    def model_copy(self, update: Mapping[str, Any]) -> Config:
        return Config(**{**vars(self), **update})


def config_of(case: Mapping[str, Any], train: TrainSection) -> Config:
    n = {"prompts_per_step": case["groups"], "gradient_checkpointing": "none"}
    if case["checkpointing"]:
        n["gradient_checkpointing"] = "all"
    sampling = SamplingSection(n=case["n"], max_tokens=case["tokens"])
    return Config(train=train.model_copy(update=n), sampling=sampling)


def run(case: Mapping[str, Any]) -> dict[str, Any]:
    """What a rehearsal says; ``error`` and ``remedies`` where it does not fit."""
    real = case["size"] == "tiny"
    name = case.get("name", "NVIDIA H100 80GB HBM3")
    more = {"capacity": int(case["memory"] * 2**30), "name": name}
    with standin.StandIn(shapes_only=not real, **more) as gpu:
        made = models(case, "cpu" if real else "meta")
        put(gpu, case, made)
        trainer = trainer_of(case, made)
        before, rest = numbers(trainer), gpu.live
        try:
            said = rehearsal.check(trainer, config_of(case, trainer.train), case["prompt"])
        except MachineError as error:
            one = error.complaints[0]
            return {"error": one.what, "where": one.where, "remedies": list(one.remedy)}
        found = {"said": said, "peak": gpu.peak / 2**30, "same": before == numbers(trainer)}
        return found | {"left_behind": gpu.live - rest}


def numbers(trainer: Any) -> str:
    """Everything of a run that a rehearsal must not change."""
    weights = [] if trainer.model.dtype != torch.float32 else [*trainer.model.parameters()]
    shapes = any(one.held.is_meta for one in weights if isinstance(one, standin.OnDevice))
    state = {
        "weights": [] if shapes else [one.detach().tolist() for one in weights],
        "gradients": [one.grad is None for one in trainer.optimizer.parameters],
        "optimizer": {
            key: value.tolist()
            for key, value in trainer.optimizer.state_tensors().items()
            if not shapes
        },
        "scale": trainer.optimizer.scaler.state_dict(),
        "torch": torch.get_rng_state().tolist(),
        "python": str(random.getstate()),
    }
    return json.dumps(state, sort_keys=True)


PATHS = ("core/packed",)


def steps(case: Mapping[str, Any], *, rehearsed: Sequence[int]) -> dict[str, Any]:
    """Take the steps of a case, with a rehearsal before some of them."""
    with standin.StandIn(capacity=1 << 40, name=case.get("name", "stand-in")) as gpu:
        made = models(case, "cpu")
        put(gpu, case, made)
        given = groups(case, made["policy"].config.vocab_size)
        trainer = trainer_of(case, made)
        meter = trainer.observer = guard.GpuGuard(guard.GpuGuard.Config())
        section = SimpleNamespace(
            model=SimpleNamespace(forward_paths=PATHS if case["forward_paths"] else [])
        )
        meter.bind(
            SimpleNamespace(  # type: ignore[arg-type]
                trainer=trainer, config=section, record=lambda _: None, say=lambda _: None
            )
        )
        metrics, waits, seconds = [], [], []
        for step in range(case["steps"]):
            if step in rehearsed:
                rehearsal.check(trainer, config_of(case, trainer.train), case["prompt"])
            gpu.forget()
            report = trainer.update(given, step, step)
            waits.append(sum(gpu.waits.values()))
            seconds.append(report.seconds)
            metrics.append(dict(report.metrics))
        gpu_metrics = [{k: m.pop(k) for k in list(m) if k.startswith("gpu/")} for m in metrics]
        return {
            "metrics": metrics,
            "numbers": numbers(trainer),
            "gpu": gpu_metrics,
            "waits": waits,
            "seconds": seconds,
            "tokens": meter._tokens,
            "parameters": sum(one.numel() for one in trainer.model.parameters()),
        }


if __name__ == "__main__":
    standin.pretend()
    for given in json.loads(sys.argv[1]):
        case = {**CASE, **given}
        if "rehearsed" in given:
            ways = [steps(case, rehearsed=when) for when in ((), given["rehearsed"])]
            print(json.dumps(ways), flush=True)
        else:
            print(json.dumps(run(case)), flush=True)
