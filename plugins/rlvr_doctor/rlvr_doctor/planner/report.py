"""Prints a plan, or returns it as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rlvr_core.toolkit import print_line, print_table
from rlvr_doctor.planner.advice import Change
from rlvr_doctor.planner.plans import Plan

GIB = 2**30
_ADVICE = 5


def as_json(plan: Plan, changes: Sequence[Change]) -> dict[str, Any]:
    """Return a plan as plain data, in bytes and seconds."""
    setup, memory = plan.setup, plan.memory
    derived = ("peak", "moment", "left", "lack")
    return {
        "fits": plan.fits,
        "lack": memory.lack,
        "parameters": setup.shape.params,
        "trained_parameters": setup.trained,
        "gpus": {
            "train": setup.trainers,
            "generate": setup.engine.gpus,
            "shared": setup.engine.shared,
        },
        "card": asdict(setup.card),
        "worst_micro_batch": asdict(setup.worst_micro()),
        "memory": asdict(memory) | {name: getattr(memory, name) for name in derived},
        "seconds": asdict(plan.speed),
        "disk": {"checkpoint": plan.checkpoint, "all": setup.checkpoints * plan.checkpoint},
        "changes": [
            {
                "settings": list(change.settings),
                "count": change.count,
                "fits": change.plan.fits,
                "peak": change.plan.memory.peak,
                "step": change.plan.speed.step,
            }
            for change in changes
        ],
        "notes": list(plan.notes),
    }


def print_plan(plan: Plan, changes: Sequence[Change], gpu: str) -> None:
    """Print a plan."""
    setup, speed = plan.setup, plan.speed
    engine = setup.engine
    where = "and generate" if engine.shared else f"and {engine.gpus} more generate"
    size = f"{setup.shape.params / 1e9:.3g}B parameters"
    print_line(f"{size}; {setup.trainers} x {gpu} train {where}")
    print_table(("memory of a GPU that trains", "GiB"), _memory(plan))
    times = [
        ("generation", speed.generation),
        ("log-probs and reference", speed.scoring),
        ("forward and backward", speed.gradient),
        ("optimizer", speed.optimizer),
        ("weight sync", speed.sync),
        ("step" + (", generation beside training" if setup.overlapped else ""), speed.step),
    ]
    print_table(("time of a step", "seconds"), [(name, f"{time:.3g}") for name, time in times])
    print_line(
        f"bottleneck: {speed.bottleneck}; {speed.tokens:,.0f} trained tokens/s; MFU "
        f"{speed.mfu:.0%} while training; {speed.hours:.3g} hours for {setup.steps:,} steps"
    )
    print_line(
        f"disk: {_gib(plan.checkpoint)} GiB a checkpoint, "
        f"{_gib(setup.checkpoints * plan.checkpoint)} GiB for {setup.checkpoints} at a time"
    )
    for note in plan.notes:
        print_line(f"note: {note}")
    print_line(verdict(plan))
    _print_changes(plan, changes)


def _memory(plan: Plan) -> list[tuple[str, str]]:
    """Return the lines of the memory table; amounts of 0 are left out."""
    setup, memory = plan.setup, plan.memory
    held, worst = memory.held, memory.worst
    tokens = setup.worst_micro().tokens
    parts = [
        ("weights", held.weights),
        ("reference", held.reference),
        ("optimizer", held.optimizer),
        ("gradients (ddp)", held.buckets),
        ("CUDA, assumed", memory.reserved),
        ("= held throughout", held.total + memory.reserved),
        ("gathered and sent layers (fsdp)", worst.gathered),
        ("gradients", worst.gradients),
        (f"activations of {tokens:,} tokens", worst.activations),
        ("LM head: logits, gradient", worst.head),
        ("work space", worst.work),
        (f"= training at its most: {worst.name}", memory.training),
    ]
    lines = [(name, _gib(amount)) for name, amount in parts if amount]
    if setup.engine.own_weights:
        owner = "an engine beside it" if setup.engine.shared else "an engine on its own GPU"
        lines.append((f"for {owner}", _gib(setup.engine.memory)))
    if setup.engine.shared:
        lines.append(("= generation, what is held included", _gib(memory.generating)))
    lines.append(("room for keys and values", _gib(memory.kv_room)))
    return lines


def verdict(plan: Plan) -> str:
    """Return whether a plan fits, and by how much, in words."""
    memory = plan.memory
    if memory.left < 0:
        return (
            f"DOES NOT FIT: {_gib(memory.peak)} GiB at {memory.moment}, "
            f"{_gib(-memory.left)} more than the card's {_gib(memory.card)}"
        )
    if memory.lack > 0:
        return (
            f"DOES NOT FIT: the engine lacks {_gib(memory.lack)} GiB for its weights and the "
            f"keys and values of one completion"
        )
    return (
        f"fits: {_gib(memory.peak)} GiB at {memory.moment}, {_gib(memory.left)} of "
        f"{_gib(memory.card)} are left"
    )


def _print_changes(plan: Plan, changes: Sequence[Change]) -> None:
    if not changes:
        tried = "is both faster and fits" if plan.fits else "makes it fit"
        print_line(f"no change that is tried {tried}")
        return
    rows = [
        (
            " ".join(change.settings),
            str(change.count),
            _gib(change.plan.memory.peak),
            f"{change.plan.speed.step:.3g}",
        )
        for change in changes[:_ADVICE]
    ]
    does = "faster, and it fits" if plan.fits else "with this it fits"
    print_table((f"{does} (--set)", "--count", "peak GiB", "step s"), rows)


def _gib(amount: float) -> str:
    return f"{amount / GIB:.2f}"
