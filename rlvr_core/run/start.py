"""From a prepared run to a finished one: load the model, open the folder, run, record the end.

The folder is made last, so that a run that can not start leaves nothing behind.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_core.api.errors import ConfigError
from rlvr_core.api.protocols import EngineContext
from rlvr_core.api.traits import EngineTraits, traits_of
from rlvr_core.builtin.jobs.mirror import Mirror
from rlvr_core.builtin.trackers.tensorboard import TensorBoard
from rlvr_core.parallel.ranks import Ranks
from rlvr_core.record.checkpoints import CheckpointStore
from rlvr_core.record.ledger import Ledger
from rlvr_core.record.manifest import Manifest
from rlvr_core.record.mute import MuteRecorder
from rlvr_core.record.recorder import Recorder
from rlvr_core.record.rundir import RunFolder
from rlvr_core.run.early_stop import EarlyStop
from rlvr_core.run.ending import recorded_outcome
from rlvr_core.run.generating import engine_of, generator_of, producer_of, spread_over
from rlvr_core.run.learner import trainer_of
from rlvr_core.run.resuming import checkpoint_to_go_on_from, resume
from rlvr_core.run.session import Session
from rlvr_core.run.stop import Stop
from rlvr_core.step.step import PolicyTrainer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rlvr_core.api.protocols import Engine, Guard, Store, WeightSource
    from rlvr_core.cli.display import Display
    from rlvr_core.run.prepare import Prepared


MIRROR_PATIENCE = 600.0
"""Seconds without any progress after which the end of a run no longer waits for its mirror."""

MIRROR_GRACE = 60.0
"""The same for a run that was asked to stop: a managed machine goes two minutes after notice."""


def start(
    prepared: Prepared,
    display: Display,
    *,
    folder: RunFolder | None,
    command: Sequence[str],
    ranks: Ranks | None = None,
    stop: Stop | None = None,
) -> RunFolder:
    """Run to the end.

    Args:
        prepared: What to run.
        display: Where to show it.
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
    with contextlib.ExitStack() as stack:
        stack.callback(display.finish, [])  # whatever happens, the terminal is given back
        display.start(prepared.lines)
        display.phase("loading the model")
        engine = engine_of(prepared)
        trainer, source = trainer_of(prepared, ranks, engine)
        display.phase("starting the engine")
        stack.enter_context(_started(engine, prepared, trainer, source))
        guards = _guards(prepared)
        fresh = folder is None
        store = _mirror_store(prepared)
        folder = folder or ranks.on_main(lambda: _new_folder(prepared))
        mirror = None
        if store is not None and ranks.main:
            mirror = stack.enter_context(_mirrored(store(folder), folder, prepared, display, fresh))
        recorder: Recorder | MuteRecorder = MuteRecorder(ranks.index)
        if ranks.main:
            recorder = stack.enter_context(Recorder(folder))
        manifest = _manifest(prepared, folder, command, ranks) if ranks.main else None
        if manifest is not None and prepared.contamination:
            found = {name: one.data() for name, one in prepared.contamination.items()}
            manifest.update(contamination=found)
        session = _session(prepared, display, folder, recorder, trainer, source, engine, guards)
        session.stop, session.mirror = stop, mirror
        if ranks.main:
            for _ in prepared.config.track:
                tracker = stack.enter_context(contextlib.closing(TensorBoard(folder)))
                session.trackers.append(tracker)
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


def _mirror_store(prepared: Prepared) -> Callable[[RunFolder], Store] | None:
    """Where run folders are mirrored to; asked for before there is one, lest it be in vain."""
    uri = prepared.config.run.mirror
    if uri is None:
        return None
    prepared.host.ask_store(uri)
    return lambda folder: prepared.host.ask_store(f"{uri.rstrip('/')}/{folder.name}")


@contextlib.contextmanager
def _mirrored(
    store: Store, folder: RunFolder, prepared: Prepared, display: Display, fresh: bool
) -> Iterator[Mirror]:
    """A mirror for the length of the run, which has its whole folder when the run has ended."""
    mirror = Mirror(store, folder.path, keep=prepared.config.checkpoint.keep)
    mirror.start(fresh=fresh)
    limit = MIRROR_PATIENCE
    try:
        yield mirror
    except KeyboardInterrupt:
        limit = MIRROR_GRACE
        raise
    finally:
        display.say("copying what is left to run.mirror")
        for text in mirror.close(limit):
            display.say(text)


@contextlib.contextmanager
def _started(
    engine: Engine, prepared: Prepared, trainer: PolicyTrainer, source: WeightSource
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
            )
        )
        yield
    finally:
        engine.close()


def _guards(prepared: Prepared) -> list[Guard]:
    return [prepared.resolved.build("guard", ref) for ref in prepared.config.guards.use]


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
    return Manifest.start(
        folder,
        name=prepared.config.run.name,
        command=command,
        plugins=plugins,
        data=prepared.fingerprints,
        sources=prepared.resolved.sources(prepared.problems.values()),
        processes=ranks.world,
    )


def _session(
    prepared: Prepared,
    display: Display,
    folder: RunFolder,
    recorder: Recorder | MuteRecorder,
    trainer: PolicyTrainer,
    source: WeightSource,
    engine: Engine,
    guards: list[Guard],
) -> Session:
    config = prepared.config
    tokenizer = prepared.tokenizer
    alone = generator_of(prepared, display, engine)
    return Session(
        resolved=prepared.resolved,
        host=prepared.host,
        folder=folder,
        recorder=recorder,
        ledger=Ledger(),
        checkpoints=CheckpointStore(folder.checkpoints, config.checkpoint.keep),
        display=display,
        generator=spread_over(alone, trainer.ranks),
        producer=producer_of(prepared, alone, trainer.ranks),
        engine=engine,
        source=source,
        sampler=prepared.sampler,
        problems=prepared.problems,
        trainer=trainer,
        tokenizer=tokenizer,
        tasks=prepared.tasks,
        guards=guards,
        errors=prepared.judge.errors,
        plan=prepared.judge.plan,
        trackers=[],
        early_stop=None if config.eval.early_stop is None else EarlyStop(config.eval.early_stop),
        ranks=trainer.ranks,
    )
