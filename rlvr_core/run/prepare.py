"""All that can go wrong before a run leaves a trace on disk: data, prompts, verifiers, model.

What ``prepare`` returns has been checked; the caller may print it (``--dry-run``) or run it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    DataReport,
    Loss,
    RunData,
    Sampler,
    SamplerTraits,
    Source,
    Tracker,
    traits_of,
)
from rlvr_core.api.rollouts import Conversations
from rlvr_core.config.model import ComponentRef
from rlvr_core.data.load import (
    NamedLoader,
    audit,
    check_problems,
    fingerprints,
    load_sources,
)
from rlvr_core.data.prompts import Renderer
from rlvr_core.data.uri import cached_at
from rlvr_core.parallel.model_adapter import chosen_adapter
from rlvr_core.rollout.source import InTurns, RolloutMode, conversations_of
from rlvr_core.run.checks import (
    check_comparing,
    check_forward_paths,
    check_processes,
    check_reference,
    check_rewards,
    check_writable,
)
from rlvr_core.run.evaluations import Evaluations, evaluations_of
from rlvr_core.run.overview import overview
from rlvr_core.step.model import check_model_path, load_tokenizer
from rlvr_core.verify.error_rate import ErrorRate
from rlvr_core.verify.judge import Judge
from rlvr_core.verify.reward import RewardPlan

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr_core.api import Problem
    from rlvr_core.config.model import RunConfig
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.config.tree import Loc
    from rlvr_core.step.objective import GivenAnswers


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that is ready to start.

    Attributes:
        resolved: The checked configuration.
        model_path: Local folder or hub id of the model.
        tokenizer: Its tokenizer.
        renderer: The one way from problem to token ids.
        sources: Training data without over-long prompts.
        longest_prompt: In tokens, over training and evaluation.
        evaluations: Its eval tasks.
        sampler: Stands before the first problem.
        mode: How generation and training share the time.
        conversations: How problems are generated: in one turn, or in several.
        judge: Verifier pool and reward.
        losses: The terms of the loss by their place.
        demonstrations: Given answers, by the place of the loss that learns from them.
        teachers: What loads a teacher, by the place of the loss that distils it.
        engine: The engine's reference, never ``auto``.
        data_reports: What plugins found in the data, for ``run.json``.
        trackers: What shows the run's metrics elsewhere, by name.
        lines: What to tell the user about all this.
    """

    resolved: Resolved
    model_path: str
    tokenizer: PreTrainedTokenizerBase
    renderer: Renderer
    sources: list[Source]
    longest_prompt: int
    evaluations: Evaluations
    sampler: Sampler
    mode: RolloutMode
    conversations: Conversations
    judge: Judge
    losses: Mapping[Loc, Loss]
    demonstrations: Mapping[Loc, GivenAnswers]
    teachers: Mapping[Loc, Any]
    engine: ComponentRef
    data_reports: list[DataReport]
    trackers: dict[str, Tracker]
    lines: list[str]

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
        """Count and hash of each data source, and of the answers of each loss."""
        answers = {
            ".".join(map(str, (*loc, "answers"))): one.fingerprint
            for loc, one in self.demonstrations.items()
        }
        return {**fingerprints(self.sources), **answers}


@dataclass(frozen=True, slots=True)
class _Data:
    """A run's data as loaded, before any prompt is rendered.

    Attributes:
        sources: The training data.
        evaluations: The eval tasks.
        losses: The terms of the loss.
        answers: The service ``core/given-answers``; None if no loss learns from given answers.
        reports: What plugins found in the data.
    """

    sources: list[Source]
    evaluations: Evaluations
    losses: Mapping[Loc, Loss]
    answers: Any
    reports: list[DataReport]

    @property
    def held_out(self) -> list[Problem]:
        """The problems of all eval tasks."""
        return [problem for some in self.evaluations.held_out.values() for problem in some]


@contextlib.contextmanager
def prepare(resolved: Resolved, locate_model: Callable[[], str]) -> Iterator[Prepared]:
    """Load and check everything but the model's weights.

    Args:
        resolved: The checked configuration.
        locate_model: Gives the local folder or hub id of the model. Called once the data are known
            to be good, since it may have to make or fetch the model first.

    Yields:
        The prepared run; its worker processes end with the block.

    Raises:
        ConfigError: If data, prompts or tasks do not fit.
        MachineError: If the model's folder or its tokenizer is missing.
        RunError: If a gold answer is judged wrongly.
    """
    config, host = resolved.config, resolved.host
    host.configure(resolved.plugins)
    check_processes(config)
    check_rewards(config)
    check_writable(Path(config.run.dir))
    trackers = {ref.use: resolved.build("tracker", ref) for ref in config.track}
    adapter = chosen_adapter(config.model.lora)
    adapter.check_installed()
    check_reference(resolved)
    check_forward_paths(resolved)
    with cached_at(config.data.cache_uri), contextlib.ExitStack() as stack:
        data = _load_data(resolved)
        held_out = data.held_out
        problems = [*_problems(data.sources), *held_out]
        plan = RewardPlan.build(config.rewards, {p.verifier for p in problems}, host)
        check_problems(problems, plan.check)
        conversations = conversations_of(config.environment, problems, host)
        check_problems(problems, conversations.check)

        model_path = locate_model()
        check_model_path(model_path)
        engine, reason = _choose_engine(resolved, model_path)
        tokenizer = load_tokenizer(model_path, config.model)
        renderer = Renderer(tokenizer, config.data.prompt, conversations.present)
        sources, audited = audit(
            data.sources, renderer, config.data.max_prompt_tokens, config.data.max_overlong_share
        )
        demonstrations = data.answers.demonstrations(renderer, tokenizer) if data.answers else {}
        teachers: Mapping[Loc, Any] = {}
        if any(loss.traits.teacher is not None for loss in data.losses.values()):
            teachers = host.service("core/teachers")(
                resolved, data.losses, tokenizer, renderer, _problems(sources)
            )

        longest = max([audited.longest, *(len(renderer.render(problem)) for problem in held_out)])

        sampler: Sampler = resolved.build("sampler", config.sampler)
        mode = rollout_mode(resolved)
        mode.check(
            learns=any(loc not in demonstrations for loc in config.losses),
            max_reads=traits_of(sampler, SamplerTraits).max_reads,
        )
        sampler.start(
            sources,
            n=config.sampling.n,
            prompts_per_step=config.train.prompts_per_step,
            seed=config.run.seed,
        )
        sampler_traits = traits_of(sampler, SamplerTraits)  # complete once it has started
        check_comparing(plan, sampler_traits)
        judge = Judge(
            stack.enter_context(plan.pool(config.verify)),
            plan,
            ErrorRate(config.verify.max_error_rate),
        )
        lines = overview(
            config,
            sampler_traits,
            model_path,
            sources,
            renderer,
            f"{engine.use} ({reason})",
            [*adapter.lines(config.model.lora), *mode.lines()],
        )
        lines += data.answers.lines if data.answers else []
        lines += [*conversations.lines(), *audited.lines]
        lines += [f"warning: {text}" for text in resolved.warnings]
        lines += [line for report in data.reports for line in report.lines]
        if config.guards.preflight and os.environ.get("RANK", "0") == "0":
            lines += host.service("core/gold")(problems, judge, resolved)
        data.evaluations.check(judge)
        yield Prepared(
            resolved=resolved,
            model_path=model_path,
            tokenizer=tokenizer,
            renderer=renderer,
            sources=sources,
            longest_prompt=longest,
            evaluations=data.evaluations,
            sampler=sampler,
            mode=mode,
            conversations=conversations,
            judge=judge,
            losses=data.losses,
            demonstrations=demonstrations,
            teachers=teachers,
            engine=engine,
            data_reports=data.reports,
            trackers=trackers,
            lines=lines,
        )


def _load_data(resolved: Resolved) -> _Data:
    """Load what is trained on and what is held out, and let plugins compare the two."""
    config, host = resolved.config, resolved.host
    sources = load_sources(
        [
            NamedLoader(
                name=ref.use,
                loader=resolved.build("dataset", ref),
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
    losses = {loc: resolved.build("loss", ref) for loc, ref in config.losses.items()}
    answers = None
    if any(loss.traits.answers is not None for loss in losses.values()):
        answers = host.service("core/given-answers")(resolved, losses)
    # answers that are imitated are training data too
    imitated = answers.problems() if answers else {}
    reports = host.check_data(
        RunData(
            model=config.model.path,
            trained={"the training data": _problems(sources), **imitated},
            held_out=evaluations.held_out,
            max_contaminated=config.guards.max_contaminated,
            where=resolved.where(("eval", "tasks")),
        )
    )
    return _Data(sources, evaluations, losses, answers, reports)


def _problems(sources: Sequence[Source]) -> list[Problem]:
    return [problem for source in sources for problem in source.problems]


def rollout_mode(resolved: Resolved) -> RolloutMode:
    """Choose how generation and training share the run's time.

    Groups that may be a few updates old are sampled ahead; else both take turns.
    """
    if resolved.config.train.max_staleness == 0:
        return InTurns()
    mode: RolloutMode = resolved.host.service("core/ahead")(resolved)
    return mode


def _choose_engine(resolved: Resolved, model_path: str) -> tuple[ComponentRef, str]:
    if resolved.config.engine.use != "auto":
        return resolved.config.engine, "as configured"
    name, why = resolved.host.service("core/choose-engine")(model_path)
    return ComponentRef(use=name), why
