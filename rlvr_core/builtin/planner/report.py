"""A plan in words and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rlvr_core.api.services import print_line, print_table
from rlvr_core.builtin.planner.advice import Change, changes
from rlvr_core.builtin.planner.memory import Memory, memory_of
from rlvr_core.builtin.planner.setup import Setup
from rlvr_core.builtin.planner.speed import Speed, checkpoint_bytes, speed_of

_ADVICE = 5
UNCHECKED = "computed from formulas and public figures of the card; not checked on a GPU"


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is said of a run.

    Attributes:
        setup: What was given.
        memory: Of a GPU that trains.
        speed: Of a step.
        checkpoint: Bytes of one.
        disk: Bytes of all that are there at a time.
        changes: That would help, best first.
        notes: What was assumed.
    """

    setup: Setup
    memory: Memory
    speed: Speed
    checkpoint: float
    disk: float
    changes: tuple[Change, ...]
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether training fits, and the engine has room for keys and values."""
        return self.memory.left >= 0 and self.memory.kv_room > 0


def plan_of(setup: Setup, notes: list[str]) -> Plan:
    """Compute everything."""
    memory = memory_of(setup)
    return Plan(
        setup,
        memory,
        speed_of(setup, memory.kv_room),
        *checkpoint_bytes(setup),
        tuple(changes(setup)[:_ADVICE]),
        (*notes, UNCHECKED),
    )


def as_json(plan: Plan) -> dict[str, Any]:
    """Return it as plain data; bytes and seconds."""
    setup = plan.setup
    return {
        "fits": plan.fits,
        "parameters": setup.shape.params,
        "trained_parameters": setup.trained,
        "gpus": {"train": setup.trainers, "generate": setup.generators, "shared": setup.shared},
        "card": asdict(setup.card),
        "worst_micro_batch": asdict(setup.worst_micro()),
        "memory": asdict(plan.memory),
        "seconds": asdict(plan.speed),
        "disk": {"checkpoint": plan.checkpoint, "all": plan.disk},
        "changes": [asdict(one) for one in plan.changes],
        "notes": list(plan.notes),
    }


def print_plan(plan: Plan, gpu: str) -> None:
    """Print it for people."""
    setup, memory, speed = plan.setup, plan.memory, plan.speed
    micro = setup.worst_micro()
    where = "which also generate" if setup.shared else f"{setup.generators} more generate"
    print_line(
        f"{setup.shape.params / 1e9:.3g}B parameters, {setup.trainers} x {gpu} train, {where}"
    )
    rows = [
        ("weights", _gib(memory.master)),
        ("gathered layers (fsdp)", _gib(memory.compute)),
        ("reference", _gib(memory.reference)),
        ("optimizer", _gib(memory.optimizer)),
        ("between steps", _gib(memory.at_rest)),
        ("gradients", _gib(memory.gradients)),
        (f"activations of {micro.tokens:,} tokens", _gib(memory.activations)),
        ("LM head: logits, gradient", _gib(memory.head)),
        ("work space, CUDA", _gib(memory.work)),
        ("engine's share", _gib(memory.engine)),
        ("of it or its own card: KV cache", _gib(memory.kv_room)),
        (f"peak: {memory.moment}", _gib(memory.peak)),
        (f"left of {setup.card.memory / 2**30:.1f}", _gib(memory.left)),
    ]
    print_table(("memory of a training GPU", "GiB"), rows)
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
        f"disk: {_gib(plan.checkpoint)} GiB a checkpoint, {_gib(plan.disk)} GiB with "
        f"checkpoint.keep={setup.keep} and one being written"
    )
    print_line("it fits" if plan.fits else _lack(memory))
    if plan.changes:
        rows = [
            (
                one.setting,
                f"{_gib(one.peak)} ({(one.peak - memory.peak) / 2**30:+.2f})",
                f"{one.step:.3g} ({one.step / speed.step - 1:+.0%})",
                "yes" if one.fits else "no",
            )
            for one in plan.changes
        ]
        print_table(("change", "peak GiB", "step s", "fits"), rows)
    for note in plan.notes:
        print_line(f"note: {note}")


def _lack(memory: Memory) -> str:
    if memory.left < 0:
        return f"it does not fit: {_gib(-memory.left)} GiB too much at: {memory.moment}"
    return "it does not fit: the engine's share has no room for keys and values"


def _gib(amount: float) -> str:
    return f"{amount / 2**30:.2f}"
