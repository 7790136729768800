"""Prepares a run before its model is loaded: its data, and checks of its settings."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import (
    ConfigError,
    DataReport,
    EngineTraits,
    Loss,
    RunData,
    Sampler,
    SamplerTraits,
    Source,
    traits_of,
)
from rlvr_core.api.forward import RowSplit
from rlvr_core.api.rollouts import Conversations
from rlvr_core.config.model import ComponentRef
from rlvr_core.data.load import NamedLoader, audit, check_problems, fingerprints, load_sources
from rlvr_core.eval.in_run import RunEvaluations
from rlvr_core.parallel import ranks
from rlvr_core.parallel.model_adapter import chosen_adapter
from rlvr_core.record.rundir import check_writable
from rlvr_core.rollout.samplers.epochs import all_problems
from rlvr_core.rollout.source import RolloutMode, conversations_of
from rlvr_core.verify.judge import Judge
from rlvr_core.verify.reward import RewardPlan

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr_core.api import Engine, Problem
    from rlvr_core.api.transport import TransportChoice
    from rlvr_core.config.model import RunConfig, TrainSection
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.config.tree import Loc
    from rlvr_core.data.prompts import Renderer
    from rlvr_core.plugins.host import Host
    from rlvr_core.step.objective import AnswerRows, MakeTeacher


@dataclass(slots=True)
class Data:
    """A run's data.

    Attributes:
        config: The run's configuration.
        sources: The training data; without over-long prompts once they are rendered.
        evaluations: The eval tasks.
        answers: The given answers; None if no loss learns from given answers.
        reports: Findings of plugins about the data, for ``run.json``.
        plan: The verifiers of all problems, and how verdicts become rewards.
        conversations: Plays single-turn and multi-turn problems.
        longest_prompt: Length in tokens, over training and evaluation.
        prompts: SHA-256 of the token ids of the training prompts, in order.
        prompt_lines: Facts about the prompts, for the user.
        demonstrations: Given answers as rows, by the location of the loss that learns from them.
    """

    config: RunConfig
    sources: list[Source]
    evaluations: RunEvaluations
    answers: Any
    reports: list[DataReport]
    plan: RewardPlan
    conversations: Conversations
    longest_prompt: int = 0
    prompts: str = ""
    prompt_lines: Sequence[str] = ()
    demonstrations: Mapping[Loc, AnswerRows] = field(default_factory=dict)

    def render(self, renderer: Renderer, tokenizer: PreTrainedTokenizerBase) -> None:
        """Render every prompt, and drop training problems whose prompts are too long.

        Raises:
            DataError: If too many are.
        """
        section = self.config.data
        self.sources, audited = audit(
            self.sources, renderer, section.max_prompt_tokens, section.max_overlong_share
        )
        held_out = itertools.chain(*self.evaluations.held_out.values())
        self.longest_prompt = max([audited.longest, *(len(renderer.render(p)) for p in held_out)])
        self.prompts, self.prompt_lines = audited.sha256, audited.lines
        if self.answers:
            self.demonstrations = self.answers.demonstrations(renderer, tokenizer)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that a run begins with, checked; its model is not loaded yet.

    Attributes:
        resolved: The checked configuration.
        model_path: Local folder or hub id of the model.
        tokenizer: Its tokenizer.
        renderer: Renders problems to token ids.
        data: What it trains on and is evaluated on.
        sampler: The sampler, before its first problem.
        judge: Verifier pool and reward.
        lines: Summary lines for the user.
    """

    resolved: Resolved
    model_path: str
    tokenizer: PreTrainedTokenizerBase
    renderer: Renderer
    data: Data
    sampler: Sampler
    judge: Judge
    lines: list[str]

    @property
    def config(self) -> RunConfig:
        """The run's configuration."""
        return self.resolved.config

    @property
    def sources(self) -> list[Source]:
        """Training data without over-long prompts."""
        return self.data.sources

    @property
    def problems(self) -> dict[str, Problem]:
        """Training problems by id."""
        return {problem.id: problem for problem in all_problems(self.sources)}

    @property
    def evaluations(self) -> RunEvaluations:
        """The run's eval tasks."""
        return self.data.evaluations

    @property
    def longest_prompt(self) -> int:
        """Length of the longest prompt in tokens, over training and evaluation."""
        return self.data.longest_prompt

    @property
    def longest_answer(self) -> int:
        """The largest completion cap in tokens, over training and evaluation."""
        return max(self.config.sampling.max_tokens, self.evaluations.max_tokens)

    @property
    def data_reports(self) -> list[DataReport]:
        """Findings of plugins about the data, for ``run.json``."""
        return self.data.reports

    @property
    def fingerprints(self) -> dict[str, object]:
        """Count and hash of each data source, and of the given answers of each loss."""
        answers = {
            ".".join(map(str, (*loc, "answers"))): rows.fingerprint
            for loc, rows in self.data.demonstrations.items()
        }
        return {**fingerprints(self.sources), **answers}


def check_settings(resolved: Resolved, losses: Iterable[Loss]) -> None:
    """Refuse settings that do not work together, before anything is loaded.

    Raises:
        ConfigError: If there are some.
        MachineError: If no run folder can be created, or a library is missing.
        PluginError: If a plugin is missing.
    """
    config = resolved.config
    estimator = resolved.advantage()
    uses_reference = any(loss.traits.needs_reference for loss in losses) or (
        estimator is not None and resolved.build("advantage", estimator).traits.needs_reference_kl
    )
    check_compiled(config.train)
    row_split(resolved.host, config)
    check_writable(Path(config.run.dir))
    for name in config.model.forward_paths:
        resolved.host.entry("forward_path", name, resolved.where(("model", "forward_paths")))
    _check_reference(resolved, used=uses_reference)
    chosen_adapter(config.model.lora).check_installed()


def check_compiled(train: TrainSection) -> None:
    """Refuse to compile layers that are sharded.

    Raises:
        ConfigError: If it is configured.
    """
    if ranks.count() > 1 and train.parallel == "fsdp" and train.compile:
        raise ConfigError(
            "a model is not compiled under train.parallel: fsdp",
            where="train.compile",
            remedy="set train.compile: false, or train.parallel: ddp",
        )


def row_split(host: Host, config: RunConfig) -> RowSplit | None:
    """Return what splits rows over processes; None where each process computes whole rows.

    Raises:
        ConfigError: If other settings rule it out.
        PluginError: If the plugin that does it is missing.
    """
    if config.train.context_parallel == 1:
        return None
    arguments = {"config": config}
    return host.provide("split_rows", RowSplit, "train.context_parallel", "cluster", arguments)


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


def load_data(resolved: Resolved, losses: Mapping[Loc, Loss]) -> Data:
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
    evaluations = RunEvaluations(resolved)
    answers = None
    if any(loss.traits.answers is not None for loss in losses.values()):
        from rlvr_core.demonstrations import GivenAnswers

        answers = GivenAnswers(resolved, losses)
    # answers that are imitated are training data too
    imitated = answers.problems() if answers else {}
    reports = host.check_data(
        RunData(
            model=config.model.path,
            trained={"the training data": all_problems(sources), **imitated},
            held_out=evaluations.held_out,
            max_contaminated=config.eval.max_contaminated,
            where=resolved.where(("eval", "tasks")),
        )
    )
    held_out = itertools.chain(*evaluations.held_out.values())
    problems = [*all_problems(sources), *held_out]
    plan = RewardPlan.build(config.rewards, {p.verifier for p in problems}, host)
    conversations = conversations_of(config.environment, problems, host)
    check_problems(problems, plan.check, conversations.check)
    return Data(config, sources, evaluations, answers, reports, plan, conversations)


def load_teachers(
    resolved: Resolved,
    losses: Mapping[Loc, Loss],
    sources: Sequence[Source],
    tokenizer: PreTrainedTokenizerBase,
    renderer: Renderer,
) -> Mapping[Loc, MakeTeacher]:
    """Return the loader of each teacher, by the location of the loss that distils it."""
    if all(loss.traits.teacher is None for loss in losses.values()):
        return {}
    return resolved.host.provide(
        "make_teachers",
        Mapping,
        "a loss that distils a teacher",
        "algos",
        {
            "resolved": resolved,
            "losses": losses,
            "tokenizer": tokenizer,
            "renderer": renderer,
            "problems": all_problems(sources),
        },
    )


def start_sampler(sampler: Sampler, config: RunConfig, mode: RolloutMode, data: Data) -> None:
    """Start the sampler on the training data.

    Raises:
        ConfigError: If it does not work with the other components.
    """
    mode.check(
        learns=any(loc not in data.demonstrations for loc in config.losses),
        max_reads=traits_of(sampler, SamplerTraits).max_reads,
    )
    sampler.start(
        data.sources,
        n=config.sampling.n,
        prompts_per_step=config.train.prompts_per_step,
        seed=config.run.seed,
    )
    # its traits are complete only after it has started
    if data.plan.comparing and traits_of(sampler, SamplerTraits).max_completions:
        raise ConfigError(
            f"{', '.join(data.plan.comparing)} compares the completions of a group, and adaptive "
            "sampling draws a group in parts, each judged by itself",
            where="sampler",
            remedy="take the option adaptive out",
        )


def rollout_mode(resolved: Resolved) -> RolloutMode:
    """Choose how generation and training are scheduled.

    With ``max_staleness`` above 0, groups are sampled ahead of training; otherwise generation and
    training alternate.
    """
    if resolved.config.train.max_staleness == 0:
        return RolloutMode()
    from rlvr_core.rollout.ahead.ahead import Ahead

    return Ahead(resolved)


def choose_engine(resolved: Resolved, model_path: str) -> tuple[ComponentRef, str]:
    """Return the engine, with ``auto`` resolved, and why it was chosen."""
    if resolved.config.engine.use != "auto":
        return resolved.config.engine, "as configured"
    from rlvr_core.engines.vllm.choice import choose_engine

    name, why = choose_engine(model_path)
    return ComponentRef(use=name), why


def choose_checkpointing(resolved: Resolved, model_path: str, reports: list[DataReport]) -> str:
    """Return ``train.gradient_checkpointing``, with ``auto`` resolved and reported on a GPU."""
    checkpointing = resolved.config.train.gradient_checkpointing
    if checkpointing != "auto" or not torch.cuda.is_available():
        return checkpointing
    choice = resolved.host.choose_checkpointing(resolved, model_path)
    if choice is None:
        return "all"
    reports.append(choice)
    return str(choice.record["choice"])


def choose_transport(resolved: Resolved, engine: Engine, name: str) -> TransportChoice | None:
    """Return the configured weight transport; None if the engine chooses.

    Raises:
        ConfigError: If this engine does not run in another process that weights could be sent to.
    """
    component = resolved.components.get(("engine", "transport"))
    if component is None:
        return None
    if not traits_of(engine, EngineTraits).takes_transport:
        raise ConfigError(
            f"engine {name} takes the trainer's weights in this process: there is no transport",
            where=resolved.where(("engine", "transport")),
            remedy="leave it out; vllm-server has one, and any engine that generates while "
            "training runs (train.max_staleness above 0)",
        )
    from rlvr_core.engines.transport import ChosenTransport

    entry, options = component.entry, component.config.model_dump(mode="json", by_alias=True)
    return ChosenTransport(entry.name, entry.target, entry.plugin, options)
