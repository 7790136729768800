"""Checks everything that can fail before a run writes to disk: data, prompts, verifiers, model.

What ``prepare`` returns has been checked; the caller may print it (``--dry-run``) or run it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import (
    ConfigError,
    DataReport,
    LooksBeforeRun,
    Loss,
    ModelAdapter,
    RunData,
    Sampler,
    SamplerTraits,
    Source,
    Tracker,
    traits_of,
)
from rlvr_core.api.components import RunObserver
from rlvr_core.api.rollouts import Conversations
from rlvr_core.config.model import ComponentRef
from rlvr_core.data.load import (
    NamedLoader,
    audit,
    check_problems,
    fingerprints,
    load_sources,
)
from rlvr_core.data.prompts import STORED_CHOICE, Renderer
from rlvr_core.data.uri import cached_at, check_model_path
from rlvr_core.parallel import ranks
from rlvr_core.parallel.model_adapter import chosen_adapter
from rlvr_core.record.rundir import check_writable
from rlvr_core.rollout.source import InTurns, RolloutMode, conversations_of
from rlvr_core.run.evaluations import Evaluations, evaluations_of
from rlvr_core.run.events import Guards, RunEvents, build_guards
from rlvr_core.run.overview import overview
from rlvr_core.step.model import load_tokenizer
from rlvr_core.verify.judge import ErrorRate, Judge
from rlvr_core.verify.reward import RewardPlan

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr_core.api import Problem
    from rlvr_core.config.model import RunConfig
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.config.tree import Loc
    from rlvr_core.step.objective import GivenAnswers, MakeTeacher


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that is ready to start.

    Attributes:
        resolved: The checked configuration.
        model_path: Local folder or hub id of the model.
        tokenizer: Its tokenizer.
        renderer: Renders problems to token ids.
        sources: Training data without over-long prompts.
        longest_prompt: Length in tokens, over training and evaluation.
        prompts: SHA-256 of the token ids of the training prompts, in order.
        evaluations: The run's eval tasks.
        sampler: The sampler, before its first problem.
        mode: How generation and training are scheduled.
        conversations: Plays single-turn and multi-turn problems.
        judge: Verifier pool and reward.
        losses: The terms of the loss by their location.
        demonstrations: Given answers, by the location of the loss that learns from them.
        teachers: Loader of each teacher, by the location of the loss that distils it.
        engine: The engine's ``ComponentRef``, with ``auto`` resolved.
        checkpointing: ``train.gradient_checkpointing``, with ``auto`` resolved on a GPU.
        data_reports: Findings of plugins about the data, for ``run.json``.
        trackers: The trackers, by name.
        lines: Summary lines for the user.
        guards: The guards, not bound to the run yet.
    """

    resolved: Resolved
    model_path: str
    tokenizer: PreTrainedTokenizerBase
    renderer: Renderer
    sources: list[Source]
    longest_prompt: int
    prompts: str
    evaluations: Evaluations
    sampler: Sampler
    mode: RolloutMode
    conversations: Conversations
    judge: Judge
    losses: Mapping[Loc, Loss]
    demonstrations: Mapping[Loc, GivenAnswers]
    teachers: Mapping[Loc, MakeTeacher]
    engine: ComponentRef
    checkpointing: str
    data_reports: list[DataReport]
    trackers: dict[str, Tracker]
    lines: list[str]
    guards: Guards

    @property
    def config(self) -> RunConfig:
        """The run's configuration."""
        return self.resolved.config

    @property
    def problems(self) -> dict[str, Problem]:
        """Training problems by id."""
        return {problem.id: problem for problem in _problems(self.sources)}

    @property
    def fingerprints(self) -> dict[str, object]:
        """Count and hash of each data source, and of the given answers of each loss."""
        answers = {
            ".".join(map(str, (*loc, "answers"))): one.fingerprint
            for loc, one in self.demonstrations.items()
        }
        return {**fingerprints(self.sources), **answers}


@dataclass(frozen=True, slots=True)
class _Parts:
    """Components that are constructed before any data is loaded.

    Attributes:
        losses: The terms of the loss by their location.
        sampler: The sampler, not started yet.
        trackers: The trackers, by name.
        mode: How generation and training are scheduled.
        adapter: Defines which weights of the model are trained.
    """

    losses: Mapping[Loc, Loss]
    sampler: Sampler
    trackers: dict[str, Tracker]
    mode: RolloutMode
    adapter: ModelAdapter


@dataclass(frozen=True, slots=True)
class _Data:
    """A run's data as loaded, before any prompt is rendered.

    Attributes:
        sources: The training data.
        evaluations: The eval tasks.
        answers: The given answers; None if no loss learns from given answers.
        reports: Findings of plugins about the data.
        plan: The verifiers of all problems, and how verdicts become rewards.
        conversations: Plays single-turn and multi-turn problems.
    """

    sources: list[Source]
    evaluations: Evaluations
    answers: Any
    reports: list[DataReport]
    plan: RewardPlan
    conversations: Conversations

    @property
    def held_out(self) -> list[Problem]:
        """The problems of all eval tasks."""
        return [problem for some in self.evaluations.held_out.values() for problem in some]


@contextlib.contextmanager
def prepare(
    resolved: Resolved, locate_model: Callable[[], str], *displays: RunObserver
) -> Iterator[Prepared]:
    """Load and check everything except the model's weights.

    Args:
        resolved: The checked configuration.
        locate_model: Returns the local folder or hub id of the model. Called after the data has
            been checked, because it may have to create or fetch the model.
        displays: Told what is being waited for.

    Yields:
        The prepared run; its worker processes are stopped at the end of the block.

    Raises:
        ConfigError: If data, prompts or tasks do not fit the rest.
        MachineError: If the model's folder or its tokenizer is missing.
        RunError: If a gold answer is judged wrongly.
    """
    config, host = resolved.config, resolved.host
    guards = build_guards(resolved)
    with cached_at(config.data.cache_uri), contextlib.ExitStack() as stack:
        for guard in guards.guards.values():
            if isinstance(guard, contextlib.AbstractContextManager):
                stack.enter_context(guard)
        progress = RunEvents(*displays, guards.phases())
        progress.phase("plugins, data sets and their checks")
        host.configure(resolved.plugins)
        parts = _make_parts(resolved)
        data = _load_data(resolved, parts.losses)
        progress.phase("the model's files and its tokenizer")
        model_path = locate_model()
        check_model_path(model_path)
        tokenizer = load_tokenizer(model_path, config.model)
        renderer = Renderer(tokenizer, config.data.prompt, data.conversations.present)
        tokenizer.init_kwargs[STORED_CHOICE] = renderer.text_as_chat  # saved with each checkpoint
        progress.phase("prompts, teachers and the sampler")
        sources, audited = audit(
            data.sources, renderer, config.data.max_prompt_tokens, config.data.max_overlong_share
        )
        longest = max([audited.longest, *(len(renderer.render(p)) for p in data.held_out)])
        demonstrations = data.answers.demonstrations(renderer, tokenizer) if data.answers else {}
        teachers: Mapping[Loc, MakeTeacher] = {}
        if any(loss.traits.teacher is not None for loss in parts.losses.values()):
            teachers = host.provide(
                "make_teachers",
                Mapping,
                "a loss that distils a teacher",
                "algos",
                {
                    "resolved": resolved,
                    "losses": parts.losses,
                    "tokenizer": tokenizer,
                    "renderer": renderer,
                    "problems": _problems(sources),
                },
            )

        sampler = _started_sampler(config, parts, sources, demonstrations, data.plan)
        progress.phase("workers of the verifiers, and their verdicts on gold answers")
        judge = Judge(
            stack.enter_context(data.plan.pool(config.verify)),
            data.plan,
            ErrorRate(config.verify.max_error_rate),
        )
        engine, reason = _choose_engine(resolved, model_path)
        checkpointing = config.train.gradient_checkpointing
        if checkpointing == "auto" and torch.cuda.is_available():
            choice = host.choose_checkpointing(resolved, model_path)
            checkpointing = "all" if choice is None else str(choice.record["choice"])
            data.reports.extend([] if choice is None else [choice])
        lines = overview(
            config,
            traits_of(sampler, SamplerTraits),
            model_path,
            sources,
            renderer,
            f"{engine.use} ({reason})",
            [*parts.adapter.lines(config.model.lora), *parts.mode.lines()],
        )
        lines += data.answers.lines if data.answers else []
        lines += [*data.conversations.lines(), *audited.lines]
        lines += [f"warning: {text}" for text in resolved.warnings]
        lines += [line for report in data.reports for line in report.lines]
        data.evaluations.check(judge)
        prepared = Prepared(
            resolved=resolved,
            model_path=model_path,
            tokenizer=tokenizer,
            renderer=renderer,
            sources=sources,
            longest_prompt=longest,
            prompts=audited.sha256,
            evaluations=data.evaluations,
            sampler=sampler,
            mode=parts.mode,
            conversations=data.conversations,
            judge=judge,
            losses=parts.losses,
            demonstrations=demonstrations,
            teachers=teachers,
            engine=engine,
            checkpointing=checkpointing,
            data_reports=data.reports,
            trackers=parts.trackers,
            lines=lines,
            guards=guards,
        )
        for guard in guards.guards.values():
            if isinstance(guard, LooksBeforeRun):
                lines += guard.preflight(prepared)
        yield prepared


def _make_parts(resolved: Resolved) -> _Parts:
    """Construct the components that need no data, and refuse settings that do not work together."""
    config, mode = resolved.config, rollout_mode(resolved)
    losses = {loc: resolved.make(loc) for loc in config.losses}
    estimator = resolved.advantage()
    uses_reference = any(loss.traits.needs_reference for loss in losses.values()) or (
        estimator is not None and resolved.build("advantage", estimator).traits.needs_reference_kl
    )
    parts = _Parts(
        losses=losses,
        sampler=resolved.make(("sampler",)),
        trackers={ref.use: resolved.make(("track", i)) for i, ref in enumerate(config.track)},
        mode=mode,
        adapter=chosen_adapter(config.model.lora),
    )
    _check_config(resolved, uses_reference=uses_reference)
    parts.adapter.check_installed()
    return parts


def _check_config(resolved: Resolved, *, uses_reference: bool) -> None:
    """Refuse what cannot work, before anything is loaded.

    Args:
        resolved: The configuration.
        uses_reference: Whether a loss or the advantage estimator needs the reference model.

    Raises:
        ConfigError: If settings do not work together.
        MachineError: If no run folder can be created.
        PluginError: If a plugin is missing.
    """
    if ranks.count() > 1 or resolved.config.train.context_parallel > 1:
        from rlvr_core.parallel.fsdp.checks import check_processes

        check_processes(resolved.config)
    check_writable(Path(resolved.config.run.dir))
    for name in resolved.config.model.forward_paths:
        resolved.host.entry("forward_path", name, resolved.where(("model", "forward_paths")))
    _check_reference(resolved, used=uses_reference)


def _check_reference(resolved: Resolved, *, used: bool) -> None:
    """Refuse options of a reference model that is unused, or that is not a model of its own."""
    section = resolved.config.train.reference
    if (section.sync_every or section.offload) and not used:
        does = "move" if section.sync_every else "be offloaded"
        raise ConfigError(
            f"no loss has a KL term, so there is no reference that could {does}",
            where=resolved.where(("train", "reference")),
            remedy="set a loss's beta above 0, or leave train.reference out",
        )
    if section.offload:
        from rlvr_core.parallel.offload import check_offload

        check_offload(resolved)


def _load_data(resolved: Resolved, losses: Mapping[Loc, Loss]) -> _Data:
    """Load training and held-out data, and have verifiers and plugins check it."""
    config, host = resolved.config, resolved.host
    sources = load_sources(
        [
            NamedLoader(
                name=ref.use,
                loader=resolved.make(("data", "sources", index)),
                weight=ref.weight,
                where=resolved.where(("data", "sources", index)),
                order=ref.order,
                count=ref.count,
                split=ref.split,
            )
            for index, ref in enumerate(config.data.sources)
        ]
    )
    evaluations = evaluations_of(resolved)
    answers = None
    if any(loss.traits.answers is not None for loss in losses.values()):
        from rlvr_core.demonstrations import GivenAnswers

        answers = GivenAnswers(resolved, losses)
    # answers that are imitated are training data too
    imitated = answers.problems() if answers else {}
    reports = host.check_data(
        RunData(
            model=config.model.path,
            trained={"the training data": _problems(sources), **imitated},
            held_out=evaluations.held_out,
            max_contaminated=config.eval.max_contaminated,
            where=resolved.where(("eval", "tasks")),
        )
    )
    held_out = itertools.chain(*evaluations.held_out.values())
    problems = [*_problems(sources), *held_out]
    plan = RewardPlan.build(config.rewards, {p.verifier for p in problems}, host)
    conversations = conversations_of(config.environment, problems, host)
    check_problems(problems, plan.check, conversations.check)
    return _Data(sources, evaluations, answers, reports, plan, conversations)


def _started_sampler(
    config: RunConfig,
    parts: _Parts,
    sources: Sequence[Source],
    demonstrations: Mapping[Loc, GivenAnswers],
    plan: RewardPlan,
) -> Sampler:
    """Start the sampler, and return it.

    Raises:
        ConfigError: If it does not work with the other components.
    """
    parts.mode.check(
        learns=any(loc not in demonstrations for loc in config.losses),
        max_reads=traits_of(parts.sampler, SamplerTraits).max_reads,
    )
    parts.sampler.start(
        sources,
        n=config.sampling.n,
        prompts_per_step=config.train.prompts_per_step,
        seed=config.run.seed,
    )
    # its traits are complete only after it has started
    if plan.comparing and traits_of(parts.sampler, SamplerTraits).max_completions:
        raise ConfigError(
            f"{', '.join(plan.comparing)} compares the completions of a group, and adaptive "
            "sampling draws a group in parts, each judged by itself",
            where="sampler",
            remedy="take the option adaptive out",
        )
    return parts.sampler


def _problems(sources: Sequence[Source]) -> list[Problem]:
    return [problem for source in sources for problem in source.problems]


def rollout_mode(resolved: Resolved) -> RolloutMode:
    """Choose how generation and training are scheduled.

    With ``max_staleness`` above 0, groups are sampled ahead of training; otherwise generation and
    training alternate.
    """
    if resolved.config.train.max_staleness == 0:
        return InTurns()
    from rlvr_core.rollout.ahead.ahead import Ahead

    mode: RolloutMode = Ahead(resolved)
    return mode


def _choose_engine(resolved: Resolved, model_path: str) -> tuple[ComponentRef, str]:

    if resolved.config.engine.use != "auto":
        return resolved.config.engine, "as configured"
    from rlvr_core.engines.vllm.choice import choose_engine

    name, why = choose_engine(model_path)
    return ComponentRef(use=name), why
