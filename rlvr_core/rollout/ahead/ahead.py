"""Rollouts generated ahead of the trainer: ``train.max_staleness`` above 0."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING

import torch

from rlvr_core.api import (
    BackgroundEngine,
    Complaint,
    ConfigError,
    Engine,
    EngineTraits,
    Json,
    Metric,
    SamplerTraits,
    traits_of,
)
from rlvr_core.api.rollouts import Ages, Rollouts, RolloutSource
from rlvr_core.engines.child.child import in_child
from rlvr_core.engines.child.link import link_up
from rlvr_core.rollout.ahead.buffer import GroupBuffer
from rlvr_core.rollout.ahead.distributed import (
    BalancedGenerator,
    Peer,
    Worker,
)
from rlvr_core.rollout.ahead.producer import Producer
from rlvr_core.rollout.collect import Generator, more_groups
from rlvr_core.rollout.source import RolloutMode, TurnSource

if TYPE_CHECKING:
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.rollout.source import SourceParts


LINK_LIMIT = 60.0
"""Seconds that processes which are already connected may take to connect again."""


class Ahead(RolloutMode):
    """Rollout mode in which generation continues during training, at most ``max_staleness`` ahead.

    Args:
        resolved: The checked configuration.
    """

    reports = (
        Metric("staleness/mean", "Mean updates between sampling and training.", "updates"),
        Metric("staleness/max", "Most updates between sampling and training.", "updates"),
        Metric(
            "staleness/<fate>/<n>",
            "Completions of ledger/<fate> sampled <n> updates before this step.",
            "completions",
        ),
        Metric(
            "staleness/reread/<n>",
            "Completions of groups/replayed sampled <n> updates before this step.",
            "completions",
        ),
        Metric("staleness/expired", "Groups too old for the reads they had left.", "groups"),
    )

    background = True

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved
        self._run, self._train = resolved.config.run, resolved.config.train

    def check(self, *, learns: bool, max_reads: int) -> None:
        """Refuse a staleness bound that no group could meet, and a run that generates nothing.

        Raises:
            ConfigError: If either is the case; reports both faults at once.
        """
        where = self._resolved.where(("train", "max_staleness"))
        faults: list[Complaint] = []
        least = max_reads * self._train.updates_per_step
        if self._train.max_staleness < least:
            what = (
                f"a group that is sampled one step ahead and trained on in {max_reads} steps "
                f"(the sampler's max_reads) is {least} updates old in the last of them"
            )
            remedy = f"set max_staleness to {least} or more, or lower max_reads"
            faults.append(Complaint(what, where, (remedy,)))
        if not learns:
            what = "no loss learns from completions, so nothing is generated while training runs"
            faults.append(Complaint(what, where, ("take max_staleness out",)))
        if faults:
            raise ConfigError.collect(faults)

    def lines(self) -> list[str]:
        """Describe the bound on staleness, and the handling of unfinished requests."""
        return [
            f"rollouts: while training runs, at most {self._train.max_staleness} updates old; "
            f"{self._train.in_flight} at a weight sync"
        ]

    def engine(self, engine: Engine, name: str, device: torch.device) -> BackgroundEngine:
        """Return the engine, moved to its own process unless it can work in the background itself.

        Raises:
            ConfigError: If it does not support the setting of ``train.in_flight``.
        """
        background = self._background(engine, name)
        if self._train.in_flight not in background.in_flight:
            raise ConfigError(
                f"engine {name} cannot {self._train.in_flight} unfinished requests at a weight "
                f"sync; it can {', '.join(sorted(background.in_flight))}",
                where=self._resolved.where(("train", "in_flight")),
                remedy="set train.in_flight: drain",
            )
        share_threads(engine, device)
        return background

    def _background(self, engine: Engine, name: str) -> BackgroundEngine:
        if isinstance(engine, BackgroundEngine):
            return engine
        traits = traits_of(engine, EngineTraits)
        if not (traits.separate or traits.collective):
            return in_child(engine, self._run.timeout)
        how, remedies = "can be called by the training process only", ("or take engine: vllm",)
        if not traits.separate:
            how = "is shared by the processes that train"
            remedies = ("or take engine: vllm-server with tensor_parallel, on GPUs of its own",)
        raise ConfigError(
            f"engine {name} {how}, so it cannot generate while training runs",
            where=self._resolved.where(("train", "max_staleness")),
            remedy=("set max_staleness: 0", *remedies),
        )

    def source(self, parts: SourceParts) -> RolloutSource:
        """See ``RolloutMode.source``; all processes of the run must call it together."""
        ranks, generator = parts.ranks, parts.generator
        links: list[Worker] | list[Peer] = []
        if ranks.world > 1:
            connections = link_up(ranks, LINK_LIMIT)
            if ranks.main:
                links = peers = [Peer(connections[rank]) for rank in range(1, ranks.world)]
                settings = {
                    field.name: getattr(generator, field.name) for field in fields(Generator)
                }
                generator = BalancedGenerator(**settings, peers=peers)
            else:
                links = [Worker(generator, connections[0], ranks.index)]
        producer = self._producer(parts, generator) if ranks.main else None
        return AheadSource(parts, producer, links, self._train.max_staleness)

    def _producer(self, parts: SourceParts, generator: Generator) -> Producer:
        sampler, train = parts.sampler, self._train
        return Producer(
            generator,
            sampler,
            parts.params,
            GroupBuffer(
                partial(more_groups, sampler),
                max_staleness=train.max_staleness,
                steps=train.steps,
                updates_per_step=train.updates_per_step,
                reads=traits_of(sampler, SamplerTraits).max_reads,
            ),
            in_flight=train.in_flight,
            check=parts.check,
        )


class AheadSource(TurnSource):
    """Takes each step's groups from the producer of process 0, which generates ahead.

    Deadlines apply to process 0, which does the waiting; every process loads its own engine's
    weights.

    Args:
        parts: Of the run.
        producer: Fills the buffer; None in a process other than 0.
        links: Connections to close when generation ends.
        max_staleness: The most updates between a group's sampling and its step.
    """

    def __init__(
        self,
        parts: SourceParts,
        producer: Producer | None,
        links: Sequence[Worker | Peer],
        max_staleness: int,
    ) -> None:
        super().__init__(parts)
        self._ranks = parts.ranks
        self._producer, self._links = producer, links
        self._max_staleness = max_staleness

    @property
    def _main(self) -> Producer:
        assert self._producer is not None, "process 0 alone decides"
        return self._producer

    @contextlib.contextmanager
    def running(self, step: int, version: int) -> Iterator[None]:
        """Generate in a background thread while the block runs."""
        if self._producer is not None:
            self._producer.start(step, version, self._replay.readings())
        try:
            yield
        finally:
            if self._producer is not None:
                self._producer.stop()
            for link in self._links:
                link.close()

    def take(self, step: int, version: int) -> Rollouts:
        """Wait for the step's groups; see ``RolloutSource.take``."""
        wanted = self._parts.sampler.prompts_per_step
        replayed = self._replay.waiting(wanted)
        rollouts = self._ranks.on_main(lambda: self._main.take(step))
        # new groups were generated before it was known that a step would be skipped
        room = wanted - len(rollouts.kept)
        rollouts.replayed = replayed[: max(0, room)]
        return rollouts

    def before_training(self) -> None:
        """Do nothing: the engine keeps generating."""

    def _expire(self, version: int) -> dict[str, float]:
        """Drop groups that have become too old to be read again; return their number."""
        if not self._max_staleness:  # only tests take this mode with nothing ahead
            return {}
        return {"staleness/expired": self._replay.expire(version - self._max_staleness)}

    def sync(self, step: int, version: int, load: Callable[[], None] | None) -> None:
        """Pause generation and load the weights; see ``RolloutSource.sync``."""
        readings = self._replay.readings()
        self._ranks.on_main(lambda: self._main.hold(step, readings, updated=load is not None))
        if load is not None:
            load()
        if self._producer is not None:
            self._producer.go_on(step, version)

    def pause(self) -> None:
        """See ``RolloutSource.pause``."""
        self._ranks.on_main(lambda: self._main.quiet())

    def resume(self) -> None:
        """See ``RolloutSource.resume``; called after the end of a step, where processes meet."""
        if self._producer is not None:
            self._producer.release()

    def drawn(self) -> int:
        """See ``RolloutSource.drawn``; includes completions of later steps."""
        return self._ranks.on_main(lambda: self._main.drawn())

    def metrics(self, ages: Ages) -> dict[str, float]:
        """Return the sampler's metrics, and the ages of the step's completions."""
        return staleness_metrics(ages) | self._ranks.on_main(lambda: self._main.sampler_metrics())

    def state_dict(self) -> dict[str, Json]:
        """Return the groups that wait for their step, and those that will be trained on again."""
        return super().state_dict() | {"producer": self._main.state_dict()}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """See ``RolloutSource.load_state_dict``."""
        super().load_state_dict(state)
        if self._producer is not None:
            self._producer.load_state_dict(state["producer"], self._parts.problems)


def share_threads(engine: Engine, device: torch.device) -> None:
    """Leave half of the threads to the engine's process, which starts with as many."""
    if device.type != "cpu" or traits_of(engine, EngineTraits).elsewhere:
        return
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() // 2))


def staleness_metrics(ages: Ages) -> dict[str, float]:
    """Return metrics of the age of trained and of discarded completions."""
    ages = +ages  # all completions of a group that is read again may be masked
    metrics: dict[str, float] = {
        f"staleness/{fate}/{age}": count for (fate, age), count in sorted(ages.items())
    }
    trained: Counter[int] = Counter()
    for (fate, age), count in ages.items():
        if fate in ("trained", "reread"):
            trained[age] += count
    if trained:
        weighed = sum(age * count for age, count in trained.items())
        metrics["staleness/mean"] = weighed / sum(trained.values())
        metrics["staleness/max"] = max(trained)
    return metrics
