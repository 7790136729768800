"""Builds a run from its configuration, in the order in which things are needed.

First comes what can fail without the model's weights: data, prompts, verifiers. The run's folder is
created last, so that a run that cannot start leaves nothing behind.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rlvr_core.api import EngineContext, EngineTraits, Reporter, ReportsMetrics, traits_of
from rlvr_core.data.prompts import STORED_CHOICE, Renderer
from rlvr_core.data.uri import cached_at, check_model_path
from rlvr_core.parallel.ranks import Ranks
from rlvr_core.record.checkpoints import CheckpointStore
from rlvr_core.record.ledger import Ledger
from rlvr_core.rollout.collect import Generator
from rlvr_core.rollout.source import SourceParts, sampling_of
from rlvr_core.run.ending import Stop, recorded_outcome
from rlvr_core.run.events import RunEvents, bound_guards, build_guards
from rlvr_core.run.inputs import (
    Inputs,
    check_settings,
    choose_checkpointing,
    choose_engine,
    choose_transport,
    load_data,
    load_teachers,
    rollout_mode,
    start_sampler,
)
from rlvr_core.run.learner import build_trainer, trainer_device
from rlvr_core.run.overview import overview
from rlvr_core.run.recording import recording
from rlvr_core.run.session import Session
from rlvr_core.step.model import load_tokenizer
from rlvr_core.verify.judge import ErrorRate, Judge

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rlvr_core.api import Engine, WeightSource
    from rlvr_core.api.components import RunObserver
    from rlvr_core.api.transport import TransportChoice
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.record.rundir import RunFolder
    from rlvr_core.step.step import PolicyTrainer

Look = Callable[[Inputs], Inputs | None]
"""Looks at a run before its model is loaded; returns what to go on with, or None to stop."""


def go_on(inputs: Inputs) -> Inputs:
    """Go on with the run as it is."""
    return inputs


@contextlib.contextmanager
def build(
    resolved: Resolved,
    locate_model: Callable[[], str],
    display: RunObserver,
    *,
    folder: RunFolder | None = None,
    command: Sequence[str] = (),
    ranks: Ranks | None = None,
    stop: Stop | None = None,
    look: Look = go_on,
) -> Iterator[Session | None]:
    """Build a run; ``session.run`` takes its steps, and its end is recorded after the block.

    Args:
        resolved: The checked configuration.
        locate_model: Returns the local folder or hub id of the model. Called after the data has
            been checked, because it may have to create or fetch the model.
        display: The display of its progress; closed at the end of a run that was started.
        folder: The folder of a run to resume; None for a new run.
        command: The command line, for the record.
        ranks: The processes of the run; only this one if omitted.
        stop: The stop request, set by signals.
        look: Called with everything that has been checked, before the model is loaded.

    Yields:
        The run before its first step, or where its newest checkpoint left it; None if ``look``
        stopped it.

    Raises:
        ConfigError: If data, prompts or tasks do not fit the rest.
        MachineError: If model or engine cannot be loaded.
        RunError: If a gold answer is judged wrongly, or the run failed; its folder records this.
    """
    config, host = resolved.config, resolved.host
    ranks, stop = ranks or Ranks(), stop or Stop()
    guards = build_guards(resolved)
    events = RunEvents(display, guards.phases())
    with cached_at(config.data.cache_uri), contextlib.ExitStack() as stack:
        guards.enter(stack)

        events.phase("plugins, data sets and their checks")
        host.configure(resolved.plugins)
        mode = rollout_mode(resolved)
        losses = {loc: resolved.make(loc) for loc in config.losses}
        sampler = resolved.make(("sampler",))
        trackers = {ref.use: resolved.make(("track", i)) for i, ref in enumerate(config.track)}
        check_settings(resolved, losses.values())
        data = load_data(resolved, losses)

        events.phase("the model's files and its tokenizer")
        model_path = locate_model()
        check_model_path(model_path)
        tokenizer = load_tokenizer(model_path, config.model)
        renderer = Renderer(tokenizer, config.data.prompt, data.conversations.present)
        tokenizer.init_kwargs[STORED_CHOICE] = renderer.text_as_chat  # saved with each checkpoint

        events.phase("prompts, teachers and the sampler")
        data.render(renderer, tokenizer)
        teachers = load_teachers(resolved, losses, data.sources, tokenizer, renderer)
        start_sampler(sampler, config, mode, data)

        events.phase("workers of the verifiers, and their verdicts on gold answers")
        pool = stack.enter_context(data.plan.pool(config.verify))
        judge = Judge(pool, data.plan, ErrorRate(config.verify.max_error_rate))
        engine_ref, reason = choose_engine(resolved, model_path)
        checkpointing = choose_checkpointing(resolved, model_path, data.reports)
        engine_line = f"engine: {engine_ref.use} ({reason})"
        lines = overview(resolved, model_path, engine_line, renderer, data, sampler, mode)
        data.evaluations.check(judge)
        inputs = Inputs(resolved, model_path, tokenizer, renderer, data, sampler, judge, lines)
        lines += guards.preflight(inputs)
        looked = look(inputs)
        if looked is None:
            yield None
            return
        inputs = looked

        stack.callback(display.close)  # restore the terminal whatever happens
        events.plan(lines)
        events.phase("loading the model")
        bare = mode.engine(resolved.build("engine", engine_ref), engine_ref.use, trainer_device())
        engine = data.conversations.play(bare, renderer.suffix_ids, background=mode.background)
        trainer, source = build_trainer(inputs, losses, teachers, checkpointing, engine, ranks)

        events.phase("starting the engine")
        stack.callback(engine.close)
        transport = choose_transport(resolved, bare, engine_ref.use)
        engine.start(engine_context(inputs, engine, trainer, source, transport))
        guards = bound_guards(guards, inputs, trainer, bare, ranks, events)

        fresh = folder is None
        reporting = (bare, mode)
        folder, recorder, manifest = stack.enter_context(
            recording(inputs, folder, command, ranks, events, guards, trackers, reporting)
        )
        parts = source_parts(inputs, engine, ranks, events.phase)
        shown = trackers.values() if ranks.main else ()
        reporters = [*guards.guards.values(), *shown, trainer.optimizer.builder]
        session = Session(
            config=config,
            folder=folder,
            recorder=recorder,
            ledger=Ledger(),
            checkpoints=CheckpointStore(folder.checkpoints, config.checkpoint.keep),
            events=events,
            parts=parts,
            rollouts=mode.source(parts),
            source=source,
            trainer=trainer,
            tokenizer=tokenizer,
            evaluations=data.evaluations,
            guards=guards,
            reports=bare if isinstance(bare, ReportsMetrics) else None,
            reporters=[part for part in reporters if isinstance(part, Reporter)],
            stop=stop,
            identity=manifest and manifest.fields.get("identity"),
        )
        resumption = None
        if not fresh:
            from rlvr_core.run.resumption.resumption import Resumption

            resumption = Resumption(session, manifest, resolved, inputs.problems.values())
        with recorded_outcome(session, manifest), stop.heeded(), ranks.explained():
            if resumption is not None:
                resumption.go_on(command)
            yield session


def engine_context(
    inputs: Inputs,
    engine: Engine,
    trainer: PolicyTrainer,
    source: WeightSource,
    transport: TransportChoice | None,
) -> EngineContext:
    """Return an engine's settings at its start."""
    config = inputs.config
    model: PreTrainedModel | None = None
    if not traits_of(engine, EngineTraits).separate:
        # an engine with its own weights needs only the configuration of a sharded model
        model = trainer.model if source.sharded else source.module
    return EngineContext(
        model_path=inputs.model_path,
        model=model,
        tokenizer=inputs.tokenizer,
        dtype=trainer.precision.compute,
        max_model_len=inputs.longest_prompt + inputs.longest_answer,
        seed=config.run.seed,
        trust_remote_code=config.model.trust_remote_code,
        adapter_rank=None if config.model.lora is None else config.model.lora.rank,
        transport=transport,
    )


def source_parts(
    inputs: Inputs, engine: Engine, ranks: Ranks, waiting: Callable[[str], None]
) -> SourceParts:
    """Return what a rollout source is built from; ``waiting`` is called with what it waits for."""
    config = inputs.config
    generator = Generator(
        engine=engine,
        judge=inputs.judge,
        prompt=inputs.renderer.prompt,
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
        sampler=inputs.sampler,
        problems=inputs.problems,
        params=sampling_of(config),
        check=inputs.judge.errors.check,
        ranks=ranks,
    )
