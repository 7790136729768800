"""What generates in a run: the engine, in the background or not, and what asks it."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from rlvr_core.api.errors import ConfigError
from rlvr_core.api.protocols import BackgroundEngine
from rlvr_core.api.traits import EngineTraits, SamplerTraits, traits_of
from rlvr_core.builtin.asynchronous.background_turns import BackgroundTurns
from rlvr_core.builtin.asynchronous.buffer import GroupBuffer
from rlvr_core.builtin.asynchronous.link import link_up
from rlvr_core.builtin.asynchronous.producer import Producer
from rlvr_core.builtin.asynchronous.spread import SpreadGenerator
from rlvr_core.builtin.asynchronous.team import Helper, Other, TeamGenerator, TeamProducer
from rlvr_core.builtin.child.child import in_child
from rlvr_core.builtin.environments.turns import TurnTaking
from rlvr_core.config.model import ENGINE_RESTARTS
from rlvr_core.data.suffix import suffix_ids
from rlvr_core.parallel.ranks import Ranks
from rlvr_core.rollout.collect import Generator
from rlvr_core.run.session import sampling_of
from rlvr_core.verify.error_rate import ErrorRate

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rlvr_core.api.protocols import Engine
    from rlvr_core.cli.display import Display
    from rlvr_core.config.model import RunConfig
    from rlvr_core.run.prepare import Prepared


LINK_LIMIT = 60.0
"""Seconds that processes, which have met already, have to find each other once more."""


def in_background(config: RunConfig) -> bool:
    """Whether generation goes on while training runs."""
    return config.train.max_staleness > 0


def engine_of(prepared: Prepared) -> Engine:
    """What generates: the engine itself, or with environments that answer it.

    It is one that works in the background if generation goes on while training runs.
    """
    engine: Engine = prepared.resolved.build("engine", prepared.engine)
    suffix = partial(suffix_ids, prepared.renderer)
    if not in_background(prepared.config):
        return (
            TurnTaking(engine, prepared.environments, suffix) if prepared.environments else engine
        )
    background = _background(prepared, engine)
    if not prepared.environments:
        return background
    return BackgroundTurns(background, prepared.environments, suffix)


def _background(prepared: Prepared, engine: Engine) -> BackgroundEngine:
    """The engine, in a process of its own if it does not work in the background by itself.

    Raises:
        ConfigError: If it cannot do what ``train.at_sync`` asks for.
    """
    config = prepared.config
    background: BackgroundEngine
    if isinstance(engine, BackgroundEngine):
        background = engine
        if config.train.engine_restarts != ENGINE_RESTARTS:
            raise ConfigError(
                f"train.engine_restarts is for engines that are put into a process of their own, "
                f"and {prepared.engine.use} has processes of its own making",
                where=prepared.resolved.where(("train", "engine_restarts")),
                remedy="leave it out; rlvr list engine NAME shows the engine's own options",
            )
    elif traits_of(engine, EngineTraits).separate:
        raise ConfigError(
            f"engine {prepared.engine.use} is spoken to by the process that trains: it generates "
            "and trains in turns",
            where=prepared.resolved.where(("train", "max_staleness")),
            remedy="set max_staleness: 0, or engine: vllm",
        )
    else:
        background = in_child(engine, config.run.deadline, config.train.engine_restarts)
    if config.train.at_sync not in background.at_sync:
        raise ConfigError(
            f"engine {prepared.engine.use} cannot {config.train.at_sync} unfinished requests at a "
            f"weight sync; it can {', '.join(sorted(background.at_sync))}",
            where=prepared.resolved.where(("train", "at_sync")),
            remedy="set train.at_sync: drain",
        )
    return background


def producer_of(
    prepared: Prepared, generator: Generator, ranks: Ranks
) -> Producer | TeamProducer | None:
    """What generates in the background; None if generation and training take turns."""
    if not in_background(prepared.config):
        return None
    if ranks.world == 1:
        return _own_producer(prepared, generator)
    links = link_up(ranks, LINK_LIMIT)
    if not ranks.main:
        return TeamProducer(ranks, None, [Helper(generator, links[0], ranks.index)])
    others = [Other(links[rank]) for rank in range(1, ranks.world)]
    parts = {field.name: getattr(generator, field.name) for field in fields(generator)}
    own = _own_producer(prepared, TeamGenerator(**parts, others=others))
    return TeamProducer(ranks, own, others)


def _own_producer(prepared: Prepared, generator: Generator) -> Producer:
    train = prepared.config.train
    return Producer(
        generator,
        prepared.sampler,
        sampling_of(prepared.config),
        GroupBuffer(
            prepared.sampler.refill,
            max_staleness=train.max_staleness,
            steps=train.steps,
            updates_per_step=train.updates_per_step,
            reads=traits_of(prepared.sampler, SamplerTraits).max_reads,
        ),
        at_sync=train.at_sync,
        check=prepared.judge.errors.check,
    )


def share_threads(config: RunConfig, model: PreTrainedModel, engine: Engine) -> None:
    """Leave half of the threads to the engine's process, which takes as many as this one has."""
    if not in_background(config) or traits_of(engine, EngineTraits).elsewhere:
        return
    if model.device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() // 2))


def generator_of(prepared: Prepared, display: Display, engine: Engine) -> Generator:
    """The generator of this process."""
    config = prepared.config
    return Generator(
        engine=engine,
        judge=prepared.judge,
        prompt=prepared.renderer.prompt,
        seed=config.run.seed,
        deadline=config.run.deadline,
        say_waiting=display.phase,
    )


def spread_over(alone: Generator, ranks: Ranks) -> Generator:
    """The generator of all processes."""
    if ranks.world == 1:
        return alone
    counted = alone.judge.errors
    own = replace(alone, judge=replace(alone.judge, errors=ErrorRate(counted.limit)))
    parts = {field.name: getattr(own, field.name) for field in fields(own)}
    return SpreadGenerator(**parts, ranks=ranks, errors=counted)
