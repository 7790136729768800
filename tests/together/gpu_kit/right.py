"""B: the step of a small model gives on the GPU what it gives on a CPU in float32."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlvr_core.api import Group, StepObserver
from rlvr_core.compiling.layers import compiled_model
from rlvr_core.parallel.offload import offload
from rlvr_core.step.step import PolicyTrainer
from tests.together.gpu_kit.record import Record
from tests.together.gpu_standin.matrix import EVERY
from tests.together.gpu_standin.steps import CASE, groups, models, trainer_of

SMALL = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
}
"""Flash attention has kernels for heads of this size, and a layer has all that a large one has."""

GIVEN = {"groups": 2, "n": 4, "prompt": 20, "tokens": 40, "budget": 150, "steps": 2}
PLAIN = {"checkpointing": False, "forward_paths": False, "flash": False, "offload": False}
FLOOR = 2e-5
"""Relative error that float32 may have by itself, in sums of another order."""


@dataclass(slots=True)
class Gradients(StepObserver):
    """Keeps the gradient of each update, and can spoil one.

    Attributes:
        model: What is trained.
        of_updates: By update, all gradients in one vector, float64 on the CPU.
        spoil: Whether the next gradient is given a NaN.
        scaler: What float16's loss is scaled by.
    """

    model: Any
    of_updates: list[Tensor] = field(default_factory=list)
    spoil: bool = False
    scaler: Any = None

    def update_begins(self) -> None:
        """See ``StepObserver``."""
        trained = [p for p in self.model.parameters() if p.requires_grad]
        parts = [p.grad.detach().double().cpu().flatten() for p in trained]
        self.of_updates.append(torch.cat(parts) / self.scaler.get_scale())
        if self.spoil:
            trained[0].grad.view(-1)[0] = float("nan")


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a case computed: the gradient of each update, and metrics of each step."""

    gradients: list[Tensor]
    metrics: list[dict[str, float]]


def made_of(
    case: Mapping[str, Any], device: str
) -> tuple[PolicyTrainer, Sequence[Group], Gradients]:
    """A trainer on a device, what it is to train on, and the observer of its gradients."""
    made = models(case, "cpu")
    given = groups(case, made["policy"].config.vocab_size)
    for name, model in made.items():
        if name == "reference" and case["offload"]:
            offload(model, torch.device(device, 0))
        else:
            model.to(device)
    trainer = trainer_of(case, made)
    seen = Gradients(made["policy"], scaler=trainer.optimizer.scaler)
    trainer.observer = seen
    return trainer, given, seen


def stepped(case: Mapping[str, Any], device: str, *, compiled: bool = False) -> Stepped:
    """Make the steps of a case."""
    trainer, given, seen = made_of(case, device)
    if compiled:
        trainer.compiled = compiled_model(trainer.model)
    metrics = [trainer.update(given, step, step).metrics for step in range(case["steps"])]
    return Stepped(seen.of_updates, metrics)


def error(ours: Stepped, truth: Stepped) -> float:
    """The largest relative error of the gradients of the first step's updates."""
    pairs = list(zip(ours.gradients, truth.gradients, strict=True))
    return max(float((a - b).norm() / b.norm()) for a, b in pairs[: len(pairs) // 2])


def case_of(case: Mapping[str, Any]) -> dict[str, Any]:
    """A case of the matrix with the model and the rows of this part."""
    return {**CASE, **case, **GIVEN, "shape": SMALL}


def right(record: Record, limit: float) -> None:
    """Compare every case of the matrix, then what is beside it; stop the former in time."""
    truths: dict[str, Stepped] = {}
    begun, worst = time.monotonic(), {}
    done = 0
    names = list(EVERY)
    random.Random(0).shuffle(names)  # where time runs out, some of each kind are made
    for name in names:
        if time.monotonic() - begun > limit:
            break
        record_one(record, name, case_of(EVERY[name]), truths, worst)
        done += 1
    record.add("B", "cases of the matrix made", done, limit=len(EVERY), ok=done == len(EVERY))
    for group, figure in sorted(worst.items()):
        record.add("B", f"worst of {group}", figure, "of the CPU's own error")
    for check, act in (
        ("vocabulary of 151,936", head),
        ("memory that holds NaN", poisoned),
        ("the same twice", twice),
        ("a gradient of NaN", spoiled),
    ):
        record.attempt("B", check, partial(act, record))


def truth_of(case: Mapping[str, Any], dtype: str, known: dict[str, Stepped]) -> Stepped:
    """The same case on the CPU: padded rows, nothing recomputed, in this precision."""
    plain = {**case, **PLAIN, "dtype": dtype}
    key = repr(sorted(plain.items(), key=str))
    if key not in known:
        known[key] = stepped(plain, "cpu")
    return known[key]


def record_one(
    record: Record,
    name: str,
    case: Mapping[str, Any],
    known: dict[str, Stepped],
    worst: dict[str, float],
    **more: Any,
) -> None:
    """Compare one case with the CPU's float32, by what the CPU's own half precision loses.

    The limit is twice that loss: two ways of computing in half precision round differently.
    """

    def act() -> None:
        truth = truth_of(case, "float32", known)
        control = error(truth_of(case, case["dtype"], known), truth)
        ours = stepped(case, "cuda", **more)
        figure, limit = error(ours, truth), max(2 * control, FLOOR)
        losses = [(a["loss"], b["loss"]) for a, b in zip(ours.metrics, truth.metrics, strict=True)]
        far = max(abs(a - b) for a, b in losses)
        fine = figure <= limit and far <= max(0.02, 20 * limit)
        group = ", ".join(name.split(", ")[:2])
        worst[group] = max(worst.get(group, 0.0), figure / max(control, FLOOR))
        note = f"loss off by {far:.2g} in two steps"
        record.add("B", name, figure, "of the gradient", limit=limit, ok=fine, note=note)

    record.attempt("B", name, act)


def head(record: Record) -> None:
    """The LM head of a real vocabulary, in several chunks."""
    for dtype in ("bfloat16", "float32"):
        case = case_of({"dtype": dtype})
        shape = {**SMALL, "vocab_size": 151_936, "num_hidden_layers": 1}
        name = f"vocabulary of 151,936, {dtype}"
        record_one(record, name, {**case, "shape": shape}, {}, {})


def poisoned(record: Record) -> None:
    """What a kernel does not write shows when its memory held NaN before."""
    for how in ({}, {"flash": False}, {"forward_paths": False}):
        case = case_of({"dtype": "bfloat16", "beta": 0.05, "checkpointing": True, **how})
        before = stepped(case, "cuda")
        blocks = [torch.full((2**s,), float("nan"), device="cuda") for s in range(7, 28)]
        del blocks
        after = stepped(case, "cuda")
        far = error(after, before)
        path = next(iter(how), "flash path").replace("_", " ")
        name = f"memory that held NaN, {'without ' if how else ''}{path}"
        record.add("B", name, far, "of the gradient", limit=1e-2, ok=far < 1e-2)


def twice(record: Record) -> None:
    """Whether a step repeats bit for bit; a figure, not a verdict, as no kernel promises it."""
    for dtype in ("bfloat16", "float32"):
        for how in ({}, {"flash": False}):
            case = case_of({"dtype": dtype, **how})
            far = error(stepped(case, "cuda"), stepped(case, "cuda"))
            name = f"the same twice, {dtype}{', grids' if how else ''}"
            record.add("B", name, far, "of the gradient", note="0 is bit for bit")


def spoiled(record: Record) -> None:
    """A gradient that is not finite is thrown away, and the weights stay as they were."""
    for dtype in ("bfloat16", "float16"):
        trainer, given, seen = made_of(case_of({"dtype": dtype}), "cuda")
        before = [p.detach().clone() for p in trainer.model.parameters()]
        seen.spoil = True
        (update,) = trainer.update(given, 0, 0).updates
        same = all(map(torch.equal, before, trainer.model.parameters()))
        seen.spoil = False
        (later,) = trainer.update(given, 1, 1).updates
        fine = not update.applied and same and later.applied
        record.add("B", f"a gradient of NaN is thrown away, {dtype}", float(fine), ok=fine)


def compiled(record: Record) -> None:
    """Compiled layers give what plain ones give, in a graph for all of them."""
    from torch._dynamo.utils import counters

    for dtype, how in (("bfloat16", {}), ("bfloat16", {"lora": 4}), ("float32", {"flash": False})):
        begun = time.monotonic()
        counters.clear()
        case = case_of({"dtype": dtype, "checkpointing": True, **how})
        name = f"compiled, {', '.join([dtype, *how])}"
        record_one(record, name, case, {}, {}, compiled=True)
        graphs = counters["stats"]["unique_graphs"]
        note = f"{graphs} graphs, {sum(counters['graph_break'].values())} breaks"
        record.add("B", f"{name}: seconds", time.monotonic() - begun, "s", note=note)
