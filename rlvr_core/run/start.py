"""From a prepared run to a finished one: load the model, open the folder, run, record the end.

The folder is made last, so that a run that can not start leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import ConfigError, EngineContext, EngineTraits, Json, ReportsMetrics, traits_of
from rlvr_core.api.components import declared_metrics
from rlvr_core.api.watching import RunObserver, Stateful
from rlvr_core.parallel.ranks import Ranks
from rlvr_core.record.checkpoints import CheckpointStore
from rlvr_core.record.glossary import Glossary
from rlvr_core.record.ledger import Ledger
from rlvr_core.record.manifest import Manifest
from rlvr_core.record.recorder import NullRecorder, Recorder
from rlvr_core.record.rundir import RunFolder
from rlvr_core.run.ending import recorded_outcome
from rlvr_core.run.evaluating import Evaluations
from rlvr_core.run.events import Guards, PluginHooks, RunEvents
from rlvr_core.run.generating import build_engine, source_parts, with_environments
from rlvr_core.run.learner import trainer_device, trainer_of
from rlvr_core.run.resuming import checkpoint_to_go_on_from, resume
from rlvr_core.run.session import Session
from rlvr_core.run.stop import Stop
from rlvr_core.run.tracking import Tracking
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
) -> RunFolder:
    """Run to the end.

    Args:
        prepared: What to run.
        display: Shows it.
        folder: The folder of a run to go on with; None for a new run.
        command: The command line, for the record.
        ranks: The processes of the run; this one alone when left out.
        stop: Who asks it to stop after a step.

    Returns:
        The run's folder.

    Raises:
        RunError: If the run could not go on; its folder says so too.
        MachineError: If model or engine cannot be loaded.
    """
    ranks, stop = ranks or Ranks(), stop or Stop()
    events = RunEvents(display)
    with contextlib.ExitStack() as stack:
        stack.callback(display.close)  # whatever happens, the terminal is given back
        events.plan(prepared.lines)
        events.phase("loading the model")
        bare = build_engine(prepared, trainer_device())
        engine = with_environments(prepared, bare)
        trainer, source = trainer_of(prepared, ranks, engine)
        events.phase("starting the engine")
        transport = _transport(prepared, bare)
        stack.enter_context(_started(engine, prepared, trainer, source, transport))
        guards = _guards(prepared)
        mirror = _mirror(prepared, events)
        fresh = folder is None
        folder = folder or ranks.on_main(lambda: _new_folder(prepared))
        if mirror is not None and ranks.main:
            stack.enter_context(mirror.copying(folder.path, fresh=fresh))
        recorder: Recorder | NullRecorder = NullRecorder(ranks.index)
        if ranks.main:
            recorder = stack.enter_context(Recorder(folder, glossary=_glossary(prepared)))
        manifest = _manifest(prepared, folder, command, ranks) if ranks.main else None
        if manifest is not None and prepared.data_reports:
            manifest.update(checks={one.name: dict(one.record) for one in prepared.data_reports})
        if ranks.main:
            tracking = Tracking(prepared.trackers, events.message)
            stack.callback(tracking.close)  # before the mirror copies what is left
            events.subscribe(tracking)
            events.subscribe(PluginHooks(prepared.host))
        events.subscribe(guards)
        if mirror is not None and ranks.main:
            events.subscribe(mirror)
        session = _session(
            prepared, events, folder, recorder, trainer, source, engine, guards, stop
        )
        session.reports = bare if isinstance(bare, ReportsMetrics) else None
        newest = None
        if not fresh:
            newest = ranks.on_main(partial(checkpoint_to_go_on_from, session, manifest))
        with recorded_outcome(session, manifest), ranks.explained():
            if not fresh:
                if ranks.main:  # more steps, say; the next resumption is to know
                    folder.configure(prepared.resolved.dump())
                resume(session, manifest, command, newest)
            session.run()
    return folder


def _mirror(prepared: Prepared, events: RunEvents) -> Any:
    """What copies the run's folder to ``run.mirror``; None where the configuration names none."""
    config, host = prepared.config, prepared.host
    if config.run.mirror is None:
        return None
    mirror = host.service("core/mirror")
    return mirror(config.run.mirror, host.ask_store, config.checkpoint.keep, events.message)


@contextlib.contextmanager
def _started(
    engine: Engine,
    prepared: Prepared,
    trainer: PolicyTrainer,
    source: WeightSource,
    transport: TransportChoice | None,
) -> Iterator[None]:
    config = prepared.config
    model: PreTrainedModel | None = None
    if not traits_of(engine, EngineTraits).separate:
        # of a sharded model an engine with weights of its own reads the settings alone
        model = trainer.model if source.sharded else source.module
    longest = max(
        [config.sampling.max_tokens, *(named.task.sampling.max_tokens for named in prepared.tasks)]
    )
    try:
        engine.start(
            EngineContext(
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
        )
        yield
    finally:
        engine.close()


def _transport(prepared: Prepared, engine: Engine) -> TransportChoice | None:
    """The transport that the configuration names; None where the engine is to choose.

    Raises:
        ConfigError: If this engine takes weights in no other process.
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


def _glossary(prepared: Prepared) -> Glossary:
    """The metrics of the kernel and of the run's components."""
    classes = {component.cls for component in prepared.resolved.components.values()}
    classes.add(prepared.host.entry("engine", prepared.engine.use).load())
    return Glossary(metric for cls in classes for metric in declared_metrics(cls))


def _guards(prepared: Prepared) -> Guards:
    return Guards(
        {
            f"{place}: {ref.use}": prepared.resolved.build("guard", ref)
            for place, ref in enumerate(prepared.config.guards.use)
        }
    )


def _new_folder(prepared: Prepared) -> RunFolder:
    config, resolved = prepared.config, prepared.resolved
    root = prepared.host.locate_run() or Path(config.run.dir)
    return RunFolder.create(
        root, config.run.name, config_text=resolved.loaded.text, resolved=resolved.dump()
    )


def _manifest(
    prepared: Prepared, folder: RunFolder, command: Sequence[str], ranks: Ranks
) -> Manifest:
    if folder.manifest.exists():
        manifest = Manifest.read(folder)
        recorded, found = manifest.fields.get("data") or {}, prepared.fingerprints
        # older runs did not record the answers of a loss
        if any(recorded[name] != found.get(name) for name in recorded):
            raise ConfigError(
                "the data are not those the run began with: problems were added, taken out or "
                "changed",
                where=str(folder.path),
                remedy="put them back to go on, or start a new run",
            )
        return manifest
    plugins = {
        record.distribution: record.version
        for record in prepared.host.records
        if record.distribution and record.version
    }
    git, sources = _provenance(prepared, folder)
    return Manifest.start(
        folder,
        name=prepared.config.run.name,
        command=command,
        plugins=plugins,
        data=prepared.fingerprints,
        git=git,
        sources=sources,
        processes=ranks.world,
    )


def _provenance(prepared: Prepared, folder: RunFolder) -> tuple[Json, Json]:
    """The git checkout that the run is started in, and the files that its config names."""
    host, here = prepared.host, Path.cwd()
    git = None
    if "GIT_DIR" in os.environ or any((each / ".git").exists() for each in (here, *here.parents)):
        git = host.service("core/checkout")(folder, here)
    files = prepared.resolved.sources(prepared.problems.values())
    return git, host.service("core/sources")(folder, files) if files else None


def _session(
    prepared: Prepared,
    events: RunEvents,
    folder: RunFolder,
    recorder: Recorder | NullRecorder,
    trainer: PolicyTrainer,
    source: WeightSource,
    engine: Engine,
    guards: Guards,
    stop: Stop,
) -> Session:
    config = prepared.config
    parts = source_parts(prepared, engine, trainer.ranks, events.phase)
    rollouts, ledger, errors = prepared.mode.source(parts), Ledger(), prepared.judge.errors
    stateful: dict[str, Stateful] = {
        "sampler": prepared.sampler,
        "rollouts": rollouts,
        "errors": errors,
        "ledger": ledger,
        "guards": guards,
    }
    return Session(
        resolved=prepared.resolved,
        folder=folder,
        recorder=recorder,
        ledger=ledger,
        checkpoints=CheckpointStore(folder.checkpoints, config.checkpoint.keep),
        events=events,
        rollouts=rollouts,
        engine=engine,
        source=source,
        problems=prepared.problems,
        trainer=trainer,
        tokenizer=prepared.tokenizer,
        evaluations=Evaluations(config, prepared.tasks, parts.shared, errors),
        stateful=stateful,
        plan=prepared.judge.plan,
        ranks=trainer.ranks,
        stop=stop,
    )
