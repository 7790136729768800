"""What generates in a run: the engine, and the generators around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from rlvr_core.parallel.ranks import Ranks
from rlvr_core.rollout.collect import Generator
from rlvr_core.rollout.source import InTurns, RolloutMode, SourceParts, sampling_of
from rlvr_core.verify.error_rate import ErrorRate

if TYPE_CHECKING:
    import torch

    from rlvr_core.api import Engine
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.run.prepare import Prepared


def rollout_mode(resolved: Resolved) -> RolloutMode:
    """Choose how generation and training share the run's time.

    Groups that may be a few updates old are sampled ahead; else both take turns.
    """
    if resolved.config.train.max_staleness == 0:
        return InTurns()
    mode: RolloutMode = resolved.host.service("core/ahead")(resolved)
    return mode


def build_engine(prepared: Prepared, device: torch.device) -> Engine:
    """The engine as the run's mode needs it, not started yet."""
    engine: Engine = prepared.resolved.build("engine", prepared.engine)
    return prepared.mode.engine(engine, prepared.engine.use, device)


def with_environments(prepared: Prepared, engine: Engine) -> Engine:
    """The engine with environments that answer it, if any problem has one."""
    return prepared.conversations.play(
        engine, prepared.renderer.suffix_ids, background=prepared.mode.background
    )


def source_parts(
    prepared: Prepared, engine: Engine, ranks: Ranks, waiting: Callable[[str], None]
) -> SourceParts:
    """What the run's rollouts are made with.

    Args:
        prepared: The run.
        engine: Its engine.
        ranks: Its processes.
        waiting: Called with the label of what is being waited for.
    """
    config = prepared.config
    generator = Generator(
        engine=engine,
        judge=prepared.judge,
        prompt=prepared.renderer.prompt,
        seed=config.run.seed,
        deadline=config.run.timeout,
        say_waiting=waiting,
    )
    return SourceParts(
        generator=generator,
        shared=_distributed(generator, ranks) if ranks.world > 1 else generator,
        sampler=prepared.sampler,
        problems=prepared.problems,
        params=sampling_of(config),
        check=prepared.judge.errors.check,
        ranks=ranks,
    )


def _distributed(generator: Generator, ranks: Ranks) -> Generator:
    from rlvr_core.rollout.distributed import DistributedGenerator

    total = generator.judge.errors
    own = replace(generator, judge=replace(generator.judge, errors=ErrorRate(total.limit)))
    parts = {field.name: getattr(own, field.name) for field in fields(own)}
    return DistributedGenerator(**parts, ranks=ranks, errors=total)
