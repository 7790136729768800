"""Runs a prepared run: loads the model, opens the folder, trains, records the end.

The folder is created last, so that a run that cannot start leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_core.api import (
    BindsToRun,
    ConfigError,
    EngineContext,
    EngineTraits,
    Guard,
    GuardContext,
    Json,
    Reporter,
    ReportsMetrics,
    StepObserver,
    StepView,
    traits_of,
)
from rlvr_core.api.components import RunObserver, Stateful
from rlvr_core.api.launching import RunMirror
from rlvr_core.guards.observer import StepObservers
from rlvr_core.parallel.ranks import Ranks
from rlvr_core.record.checkpoints import CheckpointStore
from rlvr_core.record.ledger import Ledger
from rlvr_core.record.manifest import Manifest
from rlvr_core.record.metrics import run_glossary
from rlvr_core.record.recorder import NullRecorder, Recorder
from rlvr_core.record.rundir import RunFolder
from rlvr_core.rollout.collect import Generator
from rlvr_core.rollout.source import SourceParts, sampling_of
from rlvr_core.run.ending import Stop, recorded_outcome
from rlvr_core.run.events import Guards, RunEvents, plugin_hooks
from rlvr_core.run.learner import trainer_device, trainer_of
from rlvr_core.run.session import Session
from rlvr_core.step.step import PolicyTrainer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rlvr_core.api import Engine, TransportChoice, WeightSource
    from rlvr_core.run.prepare import Prepared


def start(
    prepared: Prepared,
    display: RunObserver,
    *,
    folder: RunFolder | None,
    command: Sequence[str],
    ranks: Ranks | None = None,
    stop: Stop | None = None,
    drive: Callable[[Session, Mapping[str, Json]], None] = Session.run,
) -> RunFolder:
    """Run a prepared run to its end.

    Args:
        prepared: The prepared run.
        display: The display of its progress.
        folder: The folder of a run to resume; None for a new run.
        command: The command line, for the record.
        ranks: The processes of the run; only this one if omitted.
        stop: The stop request, set by signals.
        drive: What is done with the session, given the whole configuration; by default all
            remaining steps.

    Returns:
        The run's folder.

    Raises:
        RunError: If the run failed; its folder records this too.
        MachineError: If model or engine cannot be loaded.
    """
    ranks, stop = ranks or Ranks(), stop or Stop()
    config = prepared.config
    events = RunEvents(display)
    with contextlib.ExitStack() as stack:
        stack.callback(display.close)  # restore the terminal whatever happens
        events.subscribe(prepared.guards.phases())
        events.plan(prepared.lines)
        events.phase("loading the model")
        bare: Engine = prepared.resolved.build("engine", prepared.engine)
        bare = prepared.mode.engine(bare, prepared.engine.use, trainer_device())
        engine = prepared.conversations.play(
            bare, prepared.renderer.suffix_ids, background=prepared.mode.background
        )
        trainer, source = trainer_of(prepared, ranks, engine)
        events.phase("starting the engine")
        stack.callback(engine.close)
        engine.start(_engine_context(prepared, engine, trainer, source, _transport(prepared, bare)))
        guards = _bound(prepared, trainer, bare, ranks, events)
        fresh = folder is None
        recording = _recording(prepared, folder, command, ranks, events, guards, bare)
        folder, recorder, manifest = stack.enter_context(recording)
        parts = _source_parts(prepared, engine, ranks, events.phase)
        rollouts, ledger = prepared.mode.source(parts), Ledger()
        stateful: dict[str, Stateful] = {
            "sampler": prepared.sampler,
            "rollouts": rollouts,
            "errors": prepared.judge.errors,
            "ledger": ledger,
            "guards": guards,
        }
        trackers = prepared.trackers.values() if ranks.main else ()
        watching = [*guards.guards.values(), *trackers, trainer.optimizer.builder]
        session = Session(
            config=config,
            host=prepared.resolved.host,
            folder=folder,
            recorder=recorder,
            ledger=ledger,
            checkpoints=CheckpointStore(folder.checkpoints, config.checkpoint.keep),
            events=events,
            parts=parts,
            rollouts=rollouts,
            source=source,
            trainer=trainer,
            tokenizer=prepared.tokenizer,
            evaluations=prepared.evaluations,
            stateful=stateful,
            reports=bare if isinstance(bare, ReportsMetrics) else None,
            reporters=[one for one in watching if isinstance(one, Reporter)],
            stop=stop,
            identity=manifest and manifest.fields.get("identity"),
        )
        newest = resumption = None
        if not fresh:
            targets = prepared.resolved.sources(prepared.problems.values())
            from rlvr_core.run.resumption.resumption import Resumption

            resumption = Resumption(session, manifest, targets, prepared.resolved.dump())
            newest = ranks.on_main(resumption.checkpoint)
        with recorded_outcome(session, manifest), stop.heeded(), ranks.explained():
            if resumption is not None:
                if ranks.main:  # e.g. with more steps: recorded for the next resumption
                    folder.configure(prepared.resolved.dump())
                resumption.go_on(newest, command)
            drive(session, prepared.resolved.dump())
    return folder


def _bound(
    prepared: Prepared,
    trainer: PolicyTrainer,
    engine: Engine,
    ranks: Ranks,
    events: RunEvents,
) -> Guards:
    """Tell the guards of the run, and let them observe the trainer's steps.

    A verifier that watches the run is one of them.
    """
    judging = prepared.judge.plan.verifiers.items()
    watching = {name: verifier for name, verifier in judging if isinstance(verifier, Guard)}
    guards = Guards({**prepared.guards.guards, **watching})
    longest = max(prepared.config.sampling.max_tokens, prepared.evaluations.max_tokens)
    context = GuardContext(
        config=prepared.config,
        trainer=trainer,
        engine=engine,
        sampler=prepared.sampler,
        judge=prepared.judge,
        problems=prepared.problems,
        tokenizer=prepared.tokenizer,
        ranks=ranks,
        room=prepared.longest_prompt + longest,
        longest_prompt=prepared.longest_prompt,
        say=events.message,
        phase=events.phase,
        record=prepared.data_reports.append,
        view=StepView(),
    )
    for guard in guards.guards.values():
        if isinstance(guard, BindsToRun):
            guard.bind(context)
    observers = [guard for guard in guards.guards.values() if isinstance(guard, StepObserver)]
    if observers:
        trainer.observer = StepObservers(observers, context.view)
    return guards


@contextlib.contextmanager
def _recording(
    prepared: Prepared,
    folder: RunFolder | None,
    command: Sequence[str],
    ranks: Ranks,
    events: RunEvents,
    guards: Guards,
    engine: Engine,
) -> Iterator[tuple[RunFolder, Recorder | NullRecorder, Manifest | None]]:
    """Open the run's folder, and subscribe everything that observes the run.

    Yields:
        The folder, its recorder, and its manifest; the manifest is None in a process that does not
        write it.
    """
    config, host = prepared.config, prepared.resolved.host
    mirror = None
    if config.run.mirror is not None:
        mirror = host.provide(
            "mirror_run",
            RunMirror,
            "run.mirror",
            "cluster",
            {
                "uri": config.run.mirror,
                "open_store": host.ask_store,
                "keep": config.checkpoint.keep,
                "say": events.message,
            },
        )
    fresh = folder is None

    text, data = prepared.resolved.loaded.text, prepared.resolved.dump()

    def new_folder() -> RunFolder:
        root = host.locate_run() or Path(config.run.dir)
        return RunFolder.create(root, config.run.name, config_text=text, resolved=data)

    folder = folder or ranks.on_main(new_folder)
    if not ranks.main:
        events.subscribe(guards)
        yield folder, NullRecorder(ranks.index), None
        return
    with contextlib.ExitStack() as stack:
        if mirror is not None:
            stack.enter_context(mirror.copying(folder.path, fresh=fresh))
        components = {component.cls for component in prepared.resolved.components.values()}
        components |= {type(engine), type(prepared.mode), *map(type, guards.guards.values())}
        recorder = stack.enter_context(Recorder(folder, glossary=run_glossary(*components)))
        manifest = _manifest(prepared, folder, command, ranks)
        if config.run.identity or prepared.data_reports or guards.guards:
            from rlvr_core.run.warned import begin

            begin(prepared, manifest, events, fresh=fresh)
        if prepared.trackers:
            from rlvr_core.record.trackers.tracking import Tracking

            tracking = Tracking(prepared.trackers, events.message)
            stack.callback(tracking.close)  # closed before the mirror copies the rest
            events.subscribe(tracking)
        events.subscribe(plugin_hooks(host))
        events.subscribe(guards)
        if mirror is not None:
            events.subscribe(mirror)
        yield folder, recorder, manifest


def _source_parts(
    prepared: Prepared, engine: Engine, ranks: Ranks, waiting: Callable[[str], None]
) -> SourceParts:
    """Assemble a rollout source's parts; ``waiting`` is called with what is being waited for."""
    config = prepared.config
    generator = Generator(
        engine=engine,
        judge=prepared.judge,
        prompt=prepared.renderer.prompt,
        seed=config.run.seed,
        deadline=config.run.timeout,
        say_waiting=waiting,
    )
    shared = generator
    if ranks.world > 1:
        from rlvr_core.rollout.distributed import distributed

        shared = distributed(generator, ranks)
    return SourceParts(
        generator=generator,
        shared=shared,
        sampler=prepared.sampler,
        problems=prepared.problems,
        params=sampling_of(config),
        check=prepared.judge.errors.check,
        ranks=ranks,
    )


def _engine_context(
    prepared: Prepared,
    engine: Engine,
    trainer: PolicyTrainer,
    source: WeightSource,
    transport: TransportChoice | None,
) -> EngineContext:
    config = prepared.config
    model: PreTrainedModel | None = None
    if not traits_of(engine, EngineTraits).separate:
        # an engine with its own weights needs only the configuration of a sharded model
        model = trainer.model if source.sharded else source.module
    longest = max(config.sampling.max_tokens, prepared.evaluations.max_tokens)
    return EngineContext(
        model_path=prepared.model_path,
        model=model,
        tokenizer=prepared.tokenizer,
        dtype=trainer.precision.compute,
        max_model_len=prepared.longest_prompt + longest,
        seed=config.run.seed,
        trust_remote_code=config.model.trust_remote_code,
        adapter_rank=None if config.model.lora is None else config.model.lora.rank,
        transport=transport,
    )


def _transport(prepared: Prepared, engine: Engine) -> TransportChoice | None:
    """Return the configured weight transport; None if the engine chooses.

    Raises:
        ConfigError: If this engine does not run in another process that weights could be sent to.
    """
    component = prepared.resolved.components.get(("engine", "transport"))
    if component is None:
        return None
    if not traits_of(engine, EngineTraits).takes_transport:
        raise ConfigError(
            f"engine {prepared.engine.use} takes the trainer's weights in this process: there is "
            "no transport",
            where=prepared.resolved.where(("engine", "transport")),
            remedy="leave it out; vllm-server has one, and any engine that generates while "
            "training runs (train.max_staleness above 0)",
        )
    from rlvr_core.engines.transport import ChosenTransport

    entry, options = component.entry, component.config.model_dump(mode="json", by_alias=True)
    return ChosenTransport(entry.name, entry.target, entry.plugin, options)


def _manifest(
    prepared: Prepared, folder: RunFolder, command: Sequence[str], ranks: Ranks
) -> Manifest:
    """Open the run's manifest, or start one with plugins, data, checkout and sources.

    Raises:
        ConfigError: If the run was started with different data.
    """
    if folder.manifest.exists():
        manifest = Manifest.read(folder)
        recorded, found = manifest.fields.get("data") or {}, prepared.fingerprints
        # older runs did not record a loss's given answers
        if any(recorded[name] != found.get(name) for name in recorded):
            raise ConfigError(
                "the data are not those the run began with: problems were added, taken out or "
                "changed",
                where=str(folder.path),
                remedy="put them back to go on, or start a new run",
            )
        return manifest
    host, here = prepared.resolved.host, Path.cwd()
    git, targets = None, prepared.resolved.sources(prepared.problems.values())
    if "GIT_DIR" in os.environ or any((each / ".git").exists() for each in (here, *here.parents)):
        from rlvr_core.record.provenance.checkout import save_patches

        git = save_patches(folder, here)
    from rlvr_core.record.provenance.sources import save_sources

    return Manifest.start(
        folder,
        name=prepared.config.run.name,
        command=command,
        plugins=host.plugin_versions(),
        data=prepared.fingerprints,
        git=git,
        sources=save_sources(folder, targets) if targets else None,
        processes=ranks.world,
    )
