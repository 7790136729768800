"""From a prepared run to a finished one: load the model, open the folder, run, record the end.

The folder is made last, so that a run that can not start leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.config.model import ENGINE_RESTARTS
from rlvr_core.data.suffix import suffix_ids
from rlvr_core.data.uri import is_uri, local_path
from rlvr_core.engines.child import in_child
from rlvr_core.engines.sync import ModuleSource
from rlvr_core.errors import ConfigError, MachineError, RlvrError, RunError
from rlvr_core.protocols import BackgroundEngine, EngineContext
from rlvr_core.ranks import Ranks
from rlvr_core.record.checkpoints import CheckpointStore
from rlvr_core.record.ledger import Ledger
from rlvr_core.record.manifest import Manifest, Outcome
from rlvr_core.record.mirror import Mirror
from rlvr_core.record.mute import MuteRecorder
from rlvr_core.record.recorder import Recorder
from rlvr_core.record.results import write_results
from rlvr_core.record.rundir import RunFolder
from rlvr_core.record.tensorboard import TensorBoard
from rlvr_core.rollout.background_turns import BackgroundTurns
from rlvr_core.rollout.buffer import GroupBuffer
from rlvr_core.rollout.collect import Generator
from rlvr_core.rollout.link import link_up
from rlvr_core.rollout.producer import Producer
from rlvr_core.rollout.spread import SpreadGenerator
from rlvr_core.rollout.team import Helper, Other, TeamGenerator, TeamProducer
from rlvr_core.rollout.turns import TurnTaking
from rlvr_core.run.early_stop import EarlyStop
from rlvr_core.run.session import Session, sampling_of
from rlvr_core.run.stop import Stop
from rlvr_core.train import checkpoint, lora
from rlvr_core.train.forward import compile_body
from rlvr_core.train.model import (
    DTYPES,
    Precision,
    enable_checkpointing,
    load_policy,
    load_reference,
    load_tokenizer,
)
from rlvr_core.train.objective import Objective, Term
from rlvr_core.train.offload import offload
from rlvr_core.train.optim import Optimizer
from rlvr_core.train.parallel import GatheredSource, Spread, replica_of
from rlvr_core.train.reference import Reference, SeparateModel, UnderAdapter
from rlvr_core.train.step import PolicyTrainer
from rlvr_core.train.teacher import Teacher, check_vocabulary, prompt_of
from rlvr_core.verify.error_rate import ErrorRate

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rlvr_core.cli.display import Display
    from rlvr_core.config.model import RunConfig
    from rlvr_core.config.tree import Loc
    from rlvr_core.protocols import Engine, Guard, Store, WeightSource
    from rlvr_core.run.prepare import Prepared


MIRROR_PATIENCE = 600.0
"""Seconds without any progress after which the end of a run no longer waits for its mirror."""

MIRROR_GRACE = 60.0
"""The same for a run that was asked to stop: a managed machine goes two minutes after notice."""

LINK_LIMIT = 60.0
"""Seconds that processes, which have met already, have to find each other once more."""

ONE_THREAD = 500_000
"""Parameters below which a model on a CPU gets one thread."""


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
        engine = _engine(prepared)
        trainer, source = _trainer(prepared, ranks, engine)
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
            newest = ranks.on_main(partial(_checkpoint_to_go_on_from, session, manifest))
        with _outcome(session, manifest), ranks.explained():
            if not fresh:
                _resume(session, manifest, command, newest)
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


def in_background(config: RunConfig) -> bool:
    """Whether generation goes on while training runs."""
    return config.train.max_staleness > 0


def _engine(prepared: Prepared) -> Engine:
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
    elif getattr(engine, "separate", False):
        raise ConfigError(
            f"engine {prepared.engine.use} is spoken to by the process that trains: it generates "
            "and trains in turns",
            where=prepared.resolved.where(("train", "max_staleness")),
            remedy="set max_staleness: 0, or engine: vllm",
        )
    elif getattr(getattr(engine, "config", None), "lora", None) == "adapter":
        raise ConfigError(
            "an engine in a process of its own takes whole weights, and this one wants adapters",
            where=prepared.resolved.where(("engine", "with", "lora")),
            remedy="set lora: merged, or train.max_staleness: 0",
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


def _producer(
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
        ),
        at_sync=train.at_sync,
        check=prepared.judge.errors.check,
    )


def _device() -> torch.device:
    from accelerate import PartialState

    return torch.device(PartialState().device)


def _trainer(
    prepared: Prepared, ranks: Ranks, engine: Engine
) -> tuple[PolicyTrainer, WeightSource]:
    """The trainer, and where engines take its weights from."""
    config = prepared.config
    precision = Precision(DTYPES[config.model.dtype])
    device = _device()
    spread = Spread(ranks, config.train.parallel) if ranks.world > 1 else None
    # what is sharded goes to its device layer by layer
    sharded = spread is not None and spread.sharded
    place = torch.device("cpu") if sharded else device
    torch.manual_seed(config.run.seed)
    model = _policy(prepared, place, precision)
    if in_background(config):
        _share_threads(model, engine)
    objective = _objective(prepared, place, precision)
    reference = None
    if objective.needs_reference:
        reference = _reference(prepared, model, place, precision)
    compiled = compile_body(model) if config.train.compile else None
    source: WeightSource = ModuleSource(model)
    if spread is not None and sharded:
        shares = not any(getattr(engine, one, False) for one in ("separate", "own_weights"))
        source = GatheredSource(model, replica_of(model, device) if shares else None, spread)
    if spread is not None:
        options = {
            "temperature": config.sampling.temperature,
            "autocast_dtype": precision.autocast,
        }
        spread.add(model, trained=True, compiled=compiled, **options)
        # a reference under the adapter is the policy, which is in already
        own = [reference.model] if isinstance(reference, SeparateModel) else []
        for frozen in [*own, *objective.teachers]:
            spread.add(frozen, trained=False, **options)
    trainer = PolicyTrainer(
        model=model,
        reference=reference,
        objective=objective,
        optimizer=Optimizer(model, config.train, precision.compute),
        precision=precision,
        train=config.train,
        temperature=config.sampling.temperature,
        max_completion_tokens=config.sampling.max_tokens,
        reward_weights=prepared.judge.plan.weights,
        advantage_scale=_advantage_scale(prepared),
        compiled=compiled,
        seed=config.run.seed,
        ranks=ranks,
        spread=spread,
    )
    return trainer, source


def _policy(prepared: Prepared, place: torch.device, precision: Precision) -> PreTrainedModel:
    config = prepared.config
    model = load_policy(prepared.model_path, config.model, place)
    _spare_threads(model)
    if config.train.gradient_checkpointing:
        enable_checkpointing(model)
    if config.model.lora is not None:
        lora.attach(
            model,
            config.model.lora,
            seed=config.run.seed,
            compute=precision.compute,
            path=prepared.model_path,
            revision=config.model.revision,
            where=prepared.resolved.where(("model", "lora", "target_modules")),
        )
    return model


def _objective(prepared: Prepared, device: torch.device, precision: Precision) -> Objective:
    """The terms of the loss; a name that is met again gets ``#2``."""
    terms: list[Term] = []
    for loc, ref in prepared.config.losses.items():
        loss = prepared.resolved.build("loss", ref)
        leaf = ref.use.rpartition("/")[2]
        copies = sum(term.name.partition("#")[0] == leaf for term in terms)
        terms.append(
            Term(
                name=leaf if copies == 0 else f"{leaf}#{copies + 1}",
                loss=loss,
                weight=ref.weight,
                demonstrations=prepared.demonstrations.get(loc),
                teacher=_teacher(prepared, loss, loc, device, precision),
            )
        )
    told = [term.name for term in terms if term.teacher and term.teacher.prompt]
    if len(told) > 1:
        raise ConfigError(
            f"{' and '.join(told)} both give their teacher a prompt of its own",
            where="loss",
            remedy="keep one of them",
        )
    return Objective(tuple(terms))


def _teacher(
    prepared: Prepared, loss: Any, loc: Loc, device: torch.device, precision: Precision
) -> Teacher | None:
    """The teacher a distillation asks for: a frozen model, or the policy told more."""
    if hasattr(loss, "teacher"):
        where = prepared.resolved.where((*loc, "with", "teacher"))
        section = prepared.config.model.model_copy(update={"revision": None})
        path = str(local_path(loss.teacher)) if is_uri(loss.teacher) else loss.teacher
        check_vocabulary(load_tokenizer(path, section), prepared.tokenizer, where)
        return Teacher(loss.top_k, load_reference(path, section, device, precision.compute))
    if hasattr(loss, "top_k"):
        prompt = prompt_of(loss.prompt, prepared.renderer)
        for source in prepared.sources:
            for problem in source.problems:
                prompt(problem)  # a field that a problem lacks is told before the first step
        return Teacher(loss.top_k, prompt=prompt)
    return None


def _advantage_scale(prepared: Prepared) -> dict[str, float]:
    """The factor on the advantages of each problem that has one."""
    return {
        problem.id: ref.advantage_scale
        for ref, source in zip(prepared.config.data.sources, prepared.sources, strict=True)
        if ref.advantage_scale != 1
        for problem in source.problems
    }


def _reference(
    prepared: Prepared, policy: PreTrainedModel, place: torch.device, precision: Precision
) -> Reference:
    section = prepared.config.train.reference
    if prepared.config.model.lora is not None:
        return UnderAdapter(policy, section)
    # what is added up in small parts is not rounded in between
    dtype = precision.compute if section.mix == 1.0 else torch.float32
    home = torch.device("cpu") if section.offload else place
    model = load_reference(prepared.model_path, prepared.config.model, home, dtype)
    if section.offload:
        offload(model, place)
    return SeparateModel(model, policy, section)


def _spare_threads(model: PreTrainedModel) -> None:
    """Compute with one thread where a second one waits more than it works.

    A step of a model this small is a string of operations of some microseconds. With two threads
    the quick start took 2 to 4 times the CPU time of one on a machine with other work, and no less
    wall time on an idle one. ``OMP_NUM_THREADS`` has the last word.
    """
    small = sum(parameter.numel() for parameter in model.parameters()) < ONE_THREAD
    if small and model.device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


@contextlib.contextmanager
def _started(
    engine: Engine, prepared: Prepared, trainer: PolicyTrainer, source: WeightSource
) -> Iterator[None]:
    config = prepared.config
    model: PreTrainedModel | None = None
    if not getattr(engine, "separate", False):
        # of a sharded model an engine with weights of its own reads the settings alone
        model = trainer.model if getattr(source, "sharded", False) else source.module
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


def _share_threads(model: PreTrainedModel, engine: Engine) -> None:
    """Leave half of the threads to the engine's process, which takes as many as this one has."""
    if getattr(engine, "elsewhere", False):
        return
    if model.device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() // 2))


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
        if manifest.fields.get("data") not in (None, prepared.fingerprints):
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
    alone = _generator(prepared, display, engine)
    return Session(
        resolved=prepared.resolved,
        host=prepared.host,
        folder=folder,
        recorder=recorder,
        ledger=Ledger(),
        checkpoints=CheckpointStore(folder.checkpoints, config.checkpoint.keep),
        display=display,
        generator=_spread(alone, trainer.ranks),
        producer=_producer(prepared, alone, trainer.ranks),
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


def _generator(prepared: Prepared, display: Display, engine: Engine) -> Generator:
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


def _spread(alone: Generator, ranks: Ranks) -> Generator:
    """The generator of all processes."""
    if ranks.world == 1:
        return alone
    counted = alone.judge.errors
    own = replace(alone, judge=replace(alone.judge, errors=ErrorRate(counted.limit)))
    parts = {field.name: getattr(own, field.name) for field in fields(own)}
    return SpreadGenerator(**parts, ranks=ranks, errors=counted)


def _checkpoint_to_go_on_from(session: Session, manifest: Manifest | None) -> Path | None:
    """The newest complete checkpoint; None to start again in the same folder.

    Raises:
        ConfigError: If the run has gone further than ``train.steps``.
        RunError: If the run has finished and nothing is left to go on from.
    """
    assert manifest is not None, "rank 0 decides"
    newest = session.checkpoints.newest(session.display.say)
    where = str(session.folder.path)
    if newest is None and manifest.fields.get("outcome") in ("finished", "stopped"):
        raise RunError(
            "the run has finished, and its checkpoints are gone: nothing to go on from",
            where=where,
            remedy="start a new run",
        )
    if newest is None:
        return None
    taken, planned = checkpoint.step_of(newest), session.config.train.steps
    if taken > planned:
        raise ConfigError(
            f"train.steps is {planned}, and the run has already taken {taken}",
            where=where,
            remedy=f"set train.steps to more than {taken} to go on",
        )
    if taken == planned:
        session.display.say("the run has taken all its steps: nothing is left to do")
    return newest


def _resume(
    session: Session, manifest: Manifest | None, command: Sequence[str], newest: Path | None
) -> None:
    if newest is None:
        session.display.say("no complete checkpoint: starting again from the first step")
        session.recorder.rewind({})
    else:
        session.display.say(f"going on from {newest}")
        _check_seen(newest, session.ranks)
        session.resume(newest)
        if session.stop_reason is not None:
            session.display.say(
                f"nothing is left to do. {session.stop_reason}; a larger eval.early_stop.patience, "
                f"or none (eval.early_stop=null), lets the run go on"
            )
    if manifest is not None:
        manifest.resume(command=command, step=session.step, processes=session.ranks.world)


def _check_seen(checkpoint_folder: Path, ranks: Ranks) -> None:
    """Refuse a checkpoint that only some machines see."""
    if not checkpoint_folder.is_dir():
        raise MachineError(
            f"process {ranks.index} does not see the checkpoint '{checkpoint_folder}'",
            where="run.dir",
            remedy="on several machines, run.dir must be a folder they share",
        )


@contextlib.contextmanager
def _outcome(session: Session, manifest: Manifest | None) -> Iterator[None]:
    """Write how the run ended into its folder, whatever way that was.

    Args:
        session: The run.
        manifest: Its record; None in a process that does not write it.
    """
    if manifest is None:
        yield
        return
    outcome: Outcome = "failed"
    fault = reason = None
    try:
        yield
        reason = session.stop_reason
        outcome = "finished" if reason is None else "stopped"
    except KeyboardInterrupt:
        outcome = "interrupted"
        raise
    except BaseException as error:
        fault = f"{type(error).__name__}: {error}"
        raise
    finally:
        path = session.folder.path
        closing: list[Callable[[], object]] = [
            session.recorder.sync,
            lambda: manifest.finish(outcome, steps=session.step, error=fault, reason=reason),
            lambda: write_results(session.folder),
            lambda: session.finish(outcome),
            lambda: session.display.finish(
                [*([reason] if reason else []), f"{outcome}: {path}", f"see it: rlvr show {path}"]
            ),
        ]
        _each(closing, quietly=outcome not in ("finished", "stopped"))


def _each(calls: Sequence[Callable[[], object]], *, quietly: bool) -> None:
    """Make every call, whichever fails.

    Args:
        calls: What to do.
        quietly: Swallow failures, because a first one is on its way to the user and a full disk,
            say, makes these fail too. Otherwise the first failure is raised at the end.
    """
    failed: RlvrError | None = None
    for call in calls:
        try:
            call()
        except RlvrError as error:
            failed = failed or error
    if failed is not None and not quietly:
        raise failed
