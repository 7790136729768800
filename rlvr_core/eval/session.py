"""The parts of an evaluation in the order they are needed: tasks, verifiers, tokenizer, engine.

They are those of a training run: the same renderer, generator, engines and verifier pool, so that a
prompt cannot differ between training and evaluation.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    ConfigError,
    DataReport,
    EvalTask,
    EvalTaskTraits,
    ExternalTask,
    Json,
    Problem,
    RunData,
    SamplingParams,
    traits_of,
)
from rlvr_core.api.rollouts import Conversations
from rlvr_core.config.model import ComponentRef, RewardRef
from rlvr_core.config.resolve import Component
from rlvr_core.data.load import NamedLoader, check_problems, load_sources, problems_given
from rlvr_core.data.prompts import Renderer
from rlvr_core.data.uri import check_model_path
from rlvr_core.eval.dataset_task import DatasetTask, refuse_external
from rlvr_core.eval.engine import choose, engine_record, find_component, inputs, is_remote
from rlvr_core.eval.model_ref import path_in_run, runnable
from rlvr_core.eval.spec import Spec, make_spec, verifier_options
from rlvr_core.record.manifest import versions
from rlvr_core.record.provenance.code import code_hash, digest_of
from rlvr_core.record.provenance.model import model_identity
from rlvr_core.rollout.collect import Generator
from rlvr_core.rollout.source import conversations_of
from rlvr_core.step.model import load_tokenizer, max_positions
from rlvr_core.verify.judge import ErrorRate, Judge
from rlvr_core.verify.reward import RewardPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedTokenizerBase

    from rlvr_core.eval.config import EvalConfig
    from rlvr_core.plugins.host import Host


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of a task as the model receives them.

    Attributes:
        chats: How many are rendered with the chat template.
        text: SHA-256 of their texts, in order.
        tokens: SHA-256 of their token ids, in order.
        longest: Tokens of the longest.
    """

    chats: int
    text: str
    tokens: str
    longest: int

    @classmethod
    def rendered(cls, renderer: Renderer, problems: Sequence[Problem]) -> Prompts:
        """Render the prompts.

        Raises:
            DataError: If one cannot be rendered.
        """
        ids = [renderer.render(problem) for problem in problems]
        return cls(
            sum(renderer.as_chat(renderer.present(problem)) for problem in problems),
            digest_of(renderer.text(problem).encode() for problem in problems),
            digest_of(repr(tokens).encode() for tokens in ids),
            max(map(len, ids)),
        )


@dataclass(frozen=True, slots=True)
class Ready:
    """A task whose problems are loaded and checked.

    Attributes:
        name: Full name, with the task's label if it has one, and ``#2`` and so on for repeated
            tasks.
        task: The task.
        problems: Its problems, in order.
        n: Number of completions per problem.
        sampling: Sampling parameters.
        spec: The frozen specification of all of this.
        prompts: The prompts as rendered; None if they are not rendered here.
    """

    name: str
    task: EvalTask
    problems: tuple[Problem, ...]
    n: int
    sampling: SamplingParams
    spec: Spec
    prompts: Prompts | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """Everything about an evaluation that is known before the model is loaded.

    Attributes:
        config: The evaluation's configuration.
        model_path: Local folder or Hub id of the model.
        tokenizer: Returns the model's tokenizer, which is loaded once; raises ``MachineError`` if
            it cannot be.
        tasks: The tasks to evaluate.
        plan: The reward plan: verifiers and weights.
        conversations: Plays single-turn and multi-turn problems.
        engine: The engine with all its options, ``auto`` resolved.
        why: The reason for choosing this engine.
        beside: Model, engine and versions, which every result folder records beside the spec.
        checks: What plugins record of the data: contamination by task name.
        lines: What they say of it.
    """

    config: EvalConfig
    model_path: str
    tokenizer: Callable[[], PreTrainedTokenizerBase]
    tasks: tuple[Ready, ...]
    plan: RewardPlan
    conversations: Conversations
    engine: Component
    why: str
    beside: Mapping[str, Json]
    checks: Mapping[str, Mapping[str, Json]]
    lines: tuple[str, ...]

    def beside_task(self, task: Ready) -> dict[str, Json]:
        """Return what a task's result folder records in addition to the specification."""
        return {
            **self.beside,
            **({} if task.prompts is None else {"prompt_tokens": task.prompts.tokens}),
            **{name: records.get(task.name) for name, records in self.checks.items()},
            "max_truncated": self.config.max_truncated,
        }

    def max_length(self) -> int:
        """Return the model's context length in tokens, from its configuration."""
        return max_positions(self.model_path, self.config.model)

    @contextlib.contextmanager
    def generator(
        self,
        say: Callable[[str], None],
        waiting: Callable[[str], None] | None = None,
    ) -> Iterator[Generator]:
        """Load the model, and start engine and verifiers; they are closed at the end of the block.

        Args:
            say: Called with progress messages.
            waiting: Called with what is being waited for; ``say`` if omitted.

        Raises:
            ConfigError: If a prompt cannot be rendered.
            MachineError: If model or engine cannot be loaded.
        """
        config = self.config
        bare = self.engine.cls(self.engine.config)
        prompt, context, suffix = inputs(self, bare, say)
        engine = self.conversations.play(bare, suffix, background=False)
        with contextlib.ExitStack() as stack:
            pool = stack.enter_context(self.plan.pool(config.verify))
            stack.callback(engine.close)
            engine.start(context)
            yield Generator(
                engine=engine,
                judge=Judge(pool, self.plan, ErrorRate(config.verify.max_error_rate)),
                prompt=prompt,
                seed=config.seed,
                deadline=config.deadline,
                say_waiting=waiting or say,
            )


def prepare(
    config: EvalConfig,
    host: Host,
    locate_model: Callable[[], str],
    *,
    n: int | None = None,
    sampling: Mapping[str, Any] | None = None,
    max_tokens: int | None = None,
) -> Session:
    """Load and check the tasks, then locate the model.

    Args:
        config: The evaluation's configuration.
        host: The loaded plugins.
        locate_model: Returns the model's folder or Hub id; called after the tasks have been
            checked, because it may have to create the model.
        n: Number of completions per problem; overrides each task's own.
        sampling: Sampling parameters that override each task's own.
        max_tokens: Cap of the run whose checkpoint this is, for tasks that state none.

    Raises:
        ConfigError: If names, options or problems are wrong, or too many were trained on.
        PluginError: If a plugin is missing or broken.
        MachineError: If data or model cannot be reached.
    """
    components = [find_component(host, "eval_task", ref, "--task") for ref in config.tasks]
    tasks: list[EvalTask] = [component.cls(component.config) for component in components]
    names = [component.entry.name for component in components]
    for name, task in zip(names, tasks, strict=True):
        if isinstance(task, DatasetTask) and max_tokens is not None:
            task.take_cap(max_tokens)
        if n is not None or sampling:
            refuse_external(name, task, "rlvr passk", "use rlvr eval")
    loaded = [_problems(name, task, config.limit) for name, task in zip(names, tasks, strict=True)]
    all_problems = [
        problem
        for task, problems in zip(tasks, loaded, strict=True)
        if not isinstance(task, ExternalTask)
        for problem in problems
    ]
    plan = _plan(config, all_problems, _graders(tasks), host)
    conversations = conversations_of(config.environment, all_problems, host)
    check_problems(all_problems, plan.check, conversations.check)
    judged_by, apart = verifier_options(plan, host)
    ready: list[Ready] = []
    for component, task, problems in zip(components, tasks, loaded, strict=True):
        external = task if isinstance(task, ExternalTask) else None
        name = f"{component.entry.name}:{external.label}" if external else component.entry.name
        judges = [] if external else _judges(plan, problems)
        drawn = replace(task.sampling, **(sampling or {}))
        spec = make_spec(
            name=name,
            options=component.config,
            task=task,
            problems=problems,
            n=n or task.n,
            sampling=drawn,
            config=config,
            verifiers={key: judged_by[key] for key in judges},
            code={key: code_hash(key.partition("#")[0], plan.specs[key].target) for key in judges},
            environment=None if external else conversations.record(problems),
        )
        copies = sum(earlier.name.partition("#")[0] == name for earlier in ready)
        name = f"{name}#{copies + 1}" if copies else name
        ready.append(Ready(name, task, problems, n or task.n, drawn, spec))
    located = path = locate_model()

    @functools.cache
    def tokenizer() -> PreTrainedTokenizerBase:
        return load_tokenizer(path, config.model)

    if is_remote(path):
        for each in ready:
            refuse_external(each.name, each.task, "a model on another machine", "use one on this")
    else:
        path = runnable(located, config.model)
        check_model_path(path)
        ready = _rendered(ready, config, tokenizer, conversations)
    reports = _check_data(config, host, located, ready)
    engine, why = choose(config, host, path)
    return Session(
        config=config,
        model_path=path,
        tokenizer=tokenizer,
        tasks=tuple(ready),
        plan=plan,
        conversations=conversations,
        engine=engine,
        why=why,
        beside={
            "model": model_identity(located, config.model.revision)
            | {"path": path_in_run(located)},
            "engine": engine_record(engine, path, config.model),
            **({"verifiers": apart} if apart else {}),
            "versions": versions(host.plugin_versions()),
        },
        checks={report.name: report.record for report in reports},
        lines=tuple(line for report in reports for line in report.lines),
    )


def _check_data(
    config: EvalConfig, host: Host, model: str, tasks: Sequence[Ready]
) -> list[DataReport]:
    """Have plugins look at the problems; refuse ``trained_on`` where none looks for these."""
    reports = host.check_data(
        RunData(
            model=model,
            trained={},
            held_out={ready.name: ready.problems for ready in tasks},
            max_contaminated=config.max_contaminated,
            where="",
            trained_on=tuple(config.trained_on),
            remedy="--allow-contamination",
        )
    )
    if config.trained_on and not any(report.name == "contamination" for report in reports):
        raise ConfigError(
            "nothing here looks for problems that were trained on",
            where="--trained-on",
            remedy="it comes with rlvr-lab, which is not installed: pip install rlvr-lab",
        )
    return reports


def _rendered(
    tasks: list[Ready],
    config: EvalConfig,
    tokenizer: Callable[[], PreTrainedTokenizerBase],
    conversations: Conversations,
) -> list[Ready]:
    """Add the prompts as rendered for this model to the specifications."""
    if all(isinstance(ready.task, ExternalTask) for ready in tasks):
        return tasks
    renderer = Renderer(tokenizer(), config.prompt, conversations.present)
    rendered: list[Ready] = []
    for ready in tasks:
        if not isinstance(ready.task, ExternalTask):
            prompts = Prompts.rendered(renderer, ready.problems)
            rows = {"chats": prompts.chats, "sha256": prompts.text}
            spec = Spec({**ready.spec.content, "prompts": rows})
            ready = replace(ready, spec=spec, prompts=prompts)
        rendered.append(ready)
    return rendered


def _problems(name: str, task: EvalTask, limit: int | None) -> tuple[Problem, ...]:
    """Return a task's problems, checked as those of a data source are."""
    where = f"task {name}"

    class Loader:
        def load(self) -> Iterable[Problem]:
            return problems_given(task.problems(), name, "problems()", where)[:limit]

    (source,) = load_sources([NamedLoader(name, Loader(), None, where)])
    return source.problems


def _graders(tasks: Sequence[EvalTask]) -> tuple[str, ...]:
    """Return the additional verifiers that every one of the tasks uses."""
    grader_lists = [traits_of(task, EvalTaskTraits).graders for task in tasks]
    return tuple(name for name in grader_lists[0] if all(name in names for names in grader_lists))


def _plan(
    config: EvalConfig, problems: Sequence[Problem], task_graders: Sequence[str], host: Host
) -> RewardPlan:
    """Build the plan: configured rewards or each problem's own verifier, and the graders."""
    rewards, configured = list(config.rewards), {ref.use for ref in config.graders}
    graders = [
        *config.graders,
        *(ComponentRef(use=name) for name in task_graders if name not in configured),
    ]
    rewards += [
        RewardRef.model_validate({"use": ref.use, "with": ref.with_, "weight": 0.0})
        for ref in graders
    ]
    return RewardPlan.build(rewards, {problem.verifier for problem in problems}, host)


def _judges(plan: RewardPlan, problems: Sequence[Problem]) -> list[str]:
    """Return the verifiers that judge these problems: their own, and those that judge all."""
    own = {plan.own[problem.verifier] for problem in problems if problem.verifier in plan.own}
    return sorted(own | (plan.specs.keys() - set(plan.own.values())))
