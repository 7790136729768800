"""Plans a run's memory and time, for a configuration and for changes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rlvr_core.api import ConfigError
from rlvr_core.toolkit import Host, model_path, resolve_file
from rlvr_doctor.cards import CARDS
from rlvr_doctor.planner.checkpointing import choose
from rlvr_doctor.planner.memory import Memory, memory_of
from rlvr_doctor.planner.setup import Setup, every_of, setup_of
from rlvr_doctor.planner.shape import read_model
from rlvr_doctor.planner.speed import Speed, checkpoint_bytes, speed_of

UNCHECKED = "computed from formulas and public figures of the card; not measured on a GPU"


@dataclass(frozen=True, slots=True)
class Plan:
    """The memory and the time of a run.

    Attributes:
        setup: The run in numbers.
        memory: Memory of a GPU that trains.
        speed: Time of a step.
        checkpoint: Bytes of one checkpoint.
        notes: The assumptions made.
    """

    setup: Setup
    memory: Memory
    speed: Speed
    checkpoint: float
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether training fits, and the engine has room for the longest completion."""
        return self.memory.lack == 0


@dataclass(frozen=True)
class Planner:
    """Plans one configuration, unchanged or changed.

    Attributes:
        config: The file.
        overrides: The user's ``KEY=VALUE``.
        host: The plugins.
        gpu: A name in ``CARDS``.
        engine_gpus: Number of the GPUs that ``rlvr launch --engine-gpus`` would reserve.
        mean_tokens: Mean tokens of a completion; None for half the cap.
    """

    config: Path
    overrides: tuple[str, ...]
    host: Host
    gpu: str
    engine_gpus: int | None = None
    mean_tokens: float | None = None

    def plan(self, count: int, changes: Sequence[str] = ()) -> Plan:
        """Plan the run on ``count`` GPUs with further ``KEY=VALUE``.

        Raises:
            ConfigError: If the configuration or the number of GPUs is wrong.
            MachineError: If its model cannot be read or is of an unknown kind.
        """
        resolved = resolve_file(self.config, (*self.overrides, *changes), self.host)
        cap = resolved.config.sampling.max_tokens
        if self.mean_tokens is not None and self.mean_tokens > cap:
            raise ConfigError(
                f"a mean of {self.mean_tokens:g} tokens is above sampling.max_tokens ({cap})",
                where="--mean-tokens",
                remedy=f"give at most {cap}",
            )
        section = resolved.config.model
        shape, adapter = read_model(model_path(section.path, self.host), section)
        card, mean = CARDS[self.gpu], self.mean_tokens
        setup, notes = setup_of(resolved, card, count, self.engine_gpus, shape, adapter, mean)
        if resolved.config.train.gradient_checkpointing == "auto":
            choice = choose(setup, card.memory)
            setup = replace(setup, every=every_of(choice.which))
            notes.append(f"train.gradient_checkpointing: auto chooses {choice.which} on this card")
        memory = memory_of(setup)
        speed = speed_of(setup, memory.kv_room)
        return Plan(setup, memory, speed, checkpoint_bytes(setup), (*notes, UNCHECKED))
