"""All that can go wrong before a run leaves a trace on disk: data, prompts, verifiers, model.

What ``prepare`` returns has been checked; the caller may print it (``--dry-run``) or run it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_core.api import DataReport, RunData, Sampler, SamplerTraits, Source, Tracker, traits_of
from rlvr_core.api.judging import replacements
from rlvr_core.api.launching import refuse_external
from rlvr_core.api.rollouts import Conversations
from rlvr_core.config.model import ComponentRef, SourceRef
from rlvr_core.data.load import (
    NamedLoader,
    audit,
    check_problems,
    counted,
    fingerprints,
    is_heldout,
    load_sources,
    problems_given,
)
from rlvr_core.data.prompts import Renderer
from rlvr_core.data.uri import cached_at
from rlvr_core.engines.auto import choose_engine, parameter_count
from rlvr_core.parallel import ranks
from rlvr_core.parallel.model_adapter import chosen_adapter
from rlvr_core.rollout.single_turn import conversations_of
from rlvr_core.rollout.source import RolloutMode
from rlvr_core.run.checks import (
    check_forward_paths,
    check_metrics,
    check_processes,
    check_reference,
    check_rewards,
    check_teachers,
    check_writable,
)
from rlvr_core.run.evaluation import NamedTask
from rlvr_core.run.generating import rollout_mode
from rlvr_core.step.demonstrations import (
    Demonstrations,
    answered,
    answers_name,
    load_answers,
)
from rlvr_core.step.model import check_model_path, load_tokenizer
from rlvr_core.verify import gold
from rlvr_core.verify.error_rate import ErrorRate
from rlvr_core.verify.judge import Judge
from rlvr_core.verify.reward import RewardPlan
from rlvr_core.workers.pool import VerifierPool

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr_core.api import Problem
    from rlvr_core.config.model import LoraSection, LossRef, RunConfig
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.config.tree import Loc
    from rlvr_core.host.host import Host


Answers = list[tuple["Problem", str]]
"""Problems, each with the answer to imitate."""

_STRATEGIES = {
    "ddp": "the whole model in each (ddp)",
    "fsdp": "a part of the model in each (fsdp), without the fast path of tiny models on a CPU",
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that is ready to start.

    Attributes:
        resolved: The checked configuration.
        host: The plugins.
        model_path: Local folder or hub id of the model.
        tokenizer: Its tokenizer.
        renderer: The one way from problem to token ids.
        sources: Training data without over-long prompts.
        longest_prompt: In tokens, over training and evaluation.
        tasks: Eval tasks.
        sampler: Stands before the first problem.
        mode: How generation and training share the time.
        conversations: How problems are generated: in one turn, or in several.
        judge: Verifier pool and reward.
        demonstrations: Given answers, by the place of the loss that learns from them.
        engine: The engine's reference, never ``auto``.
        data_reports: What plugins found in the data, for ``run.json``.
        trackers: What shows the run's metrics elsewhere, by name.
        lines: What to tell the user about all this.
    """

    resolved: Resolved
    host: Host
    model_path: str
    tokenizer: PreTrainedTokenizerBase
    renderer: Renderer
    sources: list[Source]
    longest_prompt: int
    tasks: list[NamedTask]
    sampler: Sampler
    mode: RolloutMode
    conversations: Conversations
    judge: Judge
    demonstrations: Mapping[Loc, Demonstrations]
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
        return {problem.id: problem for source in self.sources for problem in source.problems}

    @property
    def fingerprints(self) -> dict[str, object]:
        """Count and hash of each data source, and of the answers of each loss."""
        answers = {
            answers_name(loc): counted(answered(one.answers))
            for loc, one in self.demonstrations.items()
        }
        return {**fingerprints(self.sources), **answers}


@contextlib.contextmanager
def prepare(resolved: Resolved, host: Host, locate_model: Callable[[], str]) -> Iterator[Prepared]:
    """Load and check everything but the model's weights.

    Args:
        resolved: The checked configuration.
        host: The plugins.
        locate_model: Gives the local folder or hub id of the model. Called once the data are known
            to be good, since it may have to make or fetch the model first.

    Yields:
        The prepared run; its worker processes end with the block.

    Raises:
        ConfigError: If data, prompts or tasks do not fit.
        MachineError: If the model's folder or its tokenizer is missing.
        RunError: If a gold answer is judged wrongly.
    """
    with cached_at(resolved.config.data.cache_uri):
        yield from _prepare(resolved, host, locate_model)


def _prepare(resolved: Resolved, host: Host, locate_model: Callable[[], str]) -> Iterator[Prepared]:
    config = resolved.config
    host.configure(resolved.plugins)
    check_processes(config)
    check_rewards(config)
    check_writable(Path(config.run.dir))
    trackers = {ref.use: resolved.build("tracker", ref) for ref in config.track}
    chosen_adapter(config.model.lora).check_installed()
    check_reference(resolved)
    check_forward_paths(resolved)
    sources = load_sources(_loaders(resolved))
    tasks = _tasks(resolved)
    problems = [problem for source in sources for problem in source.problems]
    of_tasks = _held_out(tasks, resolved)
    answers = _answers(resolved)
    reports = host.check_data(_run_data(problems, answers, of_tasks, resolved))
    held_out = [problem for some in of_tasks.values() for problem in some]

    plan = RewardPlan.build(config.rewards, {p.verifier for p in problems + held_out}, host)
    check_problems(problems + held_out, plan.check)
    conversations = conversations_of(config.environment, problems + held_out, host)
    check_problems(problems + held_out, conversations.check)

    model_path = locate_model()
    check_model_path(model_path)
    engine, why = _choose_engine(config, model_path)

    tokenizer = load_tokenizer(model_path, config.model)
    renderer = Renderer(tokenizer, config.data.prompt, conversations.present)
    sources, report = audit(
        sources, renderer, config.data.max_prompt_tokens, config.data.max_overlong_share
    )
    demonstrations, answer_lines = _demonstrations(resolved, answers, renderer, tokenizer)
    kept = [problem for source in sources for problem in source.problems]
    check_teachers(resolved, tokenizer, renderer, kept)
    longest = max(report.longest, max((len(renderer.render(p)) for p in held_out), default=0))
    sampler: Sampler = resolved.build("sampler", config.sampler)
    mode = rollout_mode(resolved)
    learns = any(loc not in demonstrations for loc in config.losses)
    mode.check(learns=learns, max_reads=traits_of(sampler, SamplerTraits).max_reads)
    sampler.start(
        sources,
        n=config.sampling.n,
        prompts_per_step=config.train.prompts_per_step,
        seed=config.run.seed,
    )
    with VerifierPool(
        plan.specs,
        workers=config.verify.workers,
        timeout=config.verify.timeout,
        memory_mb=config.verify.memory_mb,
    ) as pool:
        judge = Judge(pool, plan, ErrorRate(config.verify.max_error_rate))
        traits = traits_of(sampler, SamplerTraits)
        lines = _lines(config, traits, model_path, sources, renderer, engine, why, mode.lines())
        lines += answer_lines
        lines += conversations.lines()
        lines += [*report.lines, *(f"warning: {text}" for text in resolved.warnings)]
        lines += [line for one in reports for line in one.lines]
        if config.guards.preflight and os.environ.get("RANK", "0") == "0":
            lines += _gold(problems + held_out, plan, judge, config)
        check_metrics(resolved, tasks, judge)
        yield Prepared(
            resolved=resolved,
            host=host,
            model_path=model_path,
            tokenizer=tokenizer,
            renderer=renderer,
            sources=sources,
            longest_prompt=longest,
            tasks=tasks,
            sampler=sampler,
            mode=mode,
            conversations=conversations,
            judge=judge,
            demonstrations=demonstrations,
            engine=engine,
            data_reports=reports,
            trackers=trackers,
            lines=lines,
        )


def _held_out(tasks: Sequence[NamedTask], resolved: Resolved) -> dict[str, tuple[Problem, ...]]:
    """The problems of each task."""
    where = resolved.where(("eval", "tasks"))
    return {
        named.name: problems_given(named.task.problems(), named.name, "problems()", where)
        for named in tasks
    }


def _run_data(
    problems: Sequence[Problem],
    answers: Mapping[Loc, Answers],
    held_out: Mapping[str, Sequence[Problem]],
    resolved: Resolved,
) -> RunData:
    """The run's data as plugins are shown them; answers that are imitated are training data too."""
    trained: dict[str, list[Problem]] = {"the training data": list(problems)}
    for loc, pairs in answers.items():
        name = f"the answers of {resolved.config.losses[loc].use}"
        trained.setdefault(name, []).extend(problem for problem, _ in pairs)
    return RunData(
        model=resolved.config.model.path,
        trained=trained,
        held_out=held_out,
        max_contaminated=resolved.config.guards.max_contaminated,
        where=resolved.where(("eval", "tasks")),
    )


def _shortened(text: str, limit: int = 120) -> str:
    shown = repr(text)
    return shown if len(shown) <= limit else f"{shown[: limit // 2]} ... {shown[-limit // 2 :]}"


def _loaders(resolved: Resolved) -> list[NamedLoader]:
    return [
        NamedLoader(
            ref.use,
            resolved.build("dataset", ref),
            ref.weight,
            resolved.where(("data", "sources", index)),
            ref.order,
            ref.count,
            ref.split,
        )
        for index, ref in enumerate(resolved.config.data.sources)
    ]


def _answers(resolved: Resolved) -> dict[Loc, Answers]:
    """The answers each loss imitates: of its own ``data``, else of the run's sources."""
    found: dict[Loc, Answers] = {}
    seed = resolved.config.run.seed
    for loc, ref in resolved.config.losses.items():
        wanted = resolved.build("loss", ref).traits.answers
        if wanted is None:
            continue
        places = [((*loc, "data"), ref.data)] if ref.data else _source_refs(resolved.config)
        found[loc] = [
            pair
            for place, one in places
            for pair in load_answers(
                resolved.build("dataset", one), wanted.target, seed, resolved.where(place)
            )
            if not _is_held_out(pair[0], one)
        ]
    return found


def _is_held_out(problem: Problem, ref: ComponentRef) -> bool:
    """Whether the source it comes from holds it out."""
    split = ref.split if isinstance(ref, SourceRef) else None
    return split is not None and is_heldout(problem.id, split)


def _demonstrations(
    resolved: Resolved,
    answers: Mapping[Loc, Answers],
    renderer: Renderer,
    tokenizer: PreTrainedTokenizerBase,
) -> tuple[dict[Loc, Demonstrations], list[str]]:
    """The answers without those to over-long prompts, and what is to be said of them."""
    found: dict[Loc, Demonstrations] = {}
    lines: list[str] = []
    seed, section = resolved.config.run.seed, resolved.config.data
    for loc, pairs in answers.items():
        ref = resolved.config.losses[loc]
        asked = Source(f"the answers of {ref.use}", tuple(problem for problem, _ in pairs))
        (kept,), report = audit(
            [asked], renderer, section.max_prompt_tokens, section.max_overlong_share
        )
        short = {id(problem) for problem in kept.problems}
        own = [pair for pair in pairs if id(pair[0]) in short]
        per_step = resolved.build("loss", ref).traits.answers.rows_per_step
        found[loc] = Demonstrations(own, per_step, seed, renderer, tokenizer)
        lines.append(f"{ref.use}: {len(own)} answers, {per_step} a step")
        lines += [f"{ref.use}: {line}" for line in report.lines]
    return found, lines


def _source_refs(config: RunConfig) -> list[tuple[Loc, ComponentRef]]:
    return [(("data", "sources", i), ref) for i, ref in enumerate(config.data.sources)]


def _tasks(resolved: Resolved) -> list[NamedTask]:
    """The eval tasks; one that is used again, with other options, gets ``#2``."""
    named: list[NamedTask] = []
    for ref in resolved.config.eval.tasks:
        copies = sum(one.name.partition("#")[0] == ref.use for one in named)
        name = ref.use if copies == 0 else f"{ref.use}#{copies + 1}"
        task = resolved.build("eval_task", ref)
        refuse_external(ref.use, task, "rlvr run", "evaluate the run's checkpoints with rlvr watch")
        named.append(NamedTask(name, task))
    return named


def _choose_engine(config: RunConfig, model_path: str) -> tuple[ComponentRef, str]:
    if config.engine.use != "auto":
        return config.engine, "as configured"
    name, why = choose_engine(model_path, n_parameters=parameter_count(model_path))
    return ComponentRef(use=name), why


def _lora_line(section: LoraSection) -> str:
    targets = section.target_modules
    named = targets if isinstance(targets, str) else ", ".join(targets)
    return (
        f"lora: rank {section.rank}, alpha {section.alpha}, dropout {section.dropout:g}, on {named}"
    )


def _gold(
    problems: Sequence[Problem], plan: RewardPlan, judge: Judge, config: RunConfig
) -> list[str]:
    report = gold.check(
        problems,
        plan.main_name,
        plan.verifiers,
        judge.submit,
        seed=config.run.seed,
        # a worker may have to start, and then take its full time for each of the two answers
        timeout=60.0 + 2 * gold.SAMPLE * config.verify.timeout,
    )
    lines = [f"gold: {n} answers of {pair} judged right" for pair, n in report.checked.items()]
    return lines + [f"gold: {pair} offers no gold answers to check" for pair in report.unknown]


def _term(ref: LossRef) -> str:
    return ref.use if ref.weight == 1 else f"{ref.weight:g} {ref.use}"


def _lines(
    config: RunConfig,
    sampler: SamplerTraits,
    model_path: str,
    sources: Sequence[Source],
    renderer: Renderer,
    engine: ComponentRef,
    why: str,
    mode_lines: Sequence[str],
) -> list[str]:
    """What a run is about to do, in numbers (T15, T37)."""
    n, section = config.sampling.n, config.sampling
    total = sum(len(source.problems) for source in sources)
    first = sources[0].problems[0]
    per_step = config.train.prompts_per_step
    loss = " + ".join(_term(ref) for ref in config.losses.values())
    lines = [
        f"model: {model_path}, {config.model.dtype}",
        f"engine: {engine.use} ({why})",
        f"data: {total} problems from {', '.join(source.name for source in sources)}",
        f"prompts: {renderer.describe()}",
        f"first prompt: {first.id}, {len(renderer.render(first))} tokens: "
        f"{_shortened(renderer.text(first))}",
        f"loss: {loss}, {config.train.steps} steps, lr {config.train.lr:g}",
    ]
    if config.model.lora is not None:
        lines.append(_lora_line(config.model.lora))
    lines += mode_lines
    if ranks.count() > 1:
        lines.append(
            f"processes: {ranks.count()}, {_STRATEGIES[config.train.parallel]}; each has "
            f"{config.verify.workers} verifier workers"
        )
    if per_step > total > 0:
        lines.append(f"warning: a step of {per_step} prompts repeats some of {total} problems")
    most = sampler.max_completions or n
    lines.append(
        f"step: {per_step} prompts x {'up to ' * bool(sampler.max_completions)}{most} = "
        f"{per_step * most} completions of at most {section.max_tokens} tokens = "
        f"{per_step * most * section.max_tokens} tokens"
    )
    if more := replacements(sampler.refill, per_step):
        lines[-1] += f", and up to {more} prompts more in the place of dropped groups"
    train = config.train
    if train.updates_per_step > 1:
        lines.append(
            f"updates: {train.updates_per_step} a step, {train.mini_batches} mini-batches x "
            f"{train.num_iterations} iterations"
        )
    return lines
