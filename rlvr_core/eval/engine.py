"""Chooses and starts the engine of an evaluation, for a local or a remote model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from rlvr_core.api import (
    REMOTE,
    ConfigError,
    Engine,
    EngineContext,
    EngineTraits,
    ExternalTask,
    Json,
    Message,
    Problem,
    Prompt,
    traits_of,
)
from rlvr_core.api.rollouts import Suffix
from rlvr_core.config.model import ComponentRef
from rlvr_core.config.resolve import Component, find
from rlvr_core.config.tree import Mark, made
from rlvr_core.data.prompts import Renderer
from rlvr_core.engines.vllm.choice import choose_engine
from rlvr_core.step.model import DTYPES, load_policy

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rlvr_core.config.model import ModelSection, PromptSection
    from rlvr_core.eval.config import EvalConfig
    from rlvr_core.eval.session import Session
    from rlvr_core.plugins.host import Host

AUTO = "auto"
VLLM = "core/vllm"

Say = Callable[[str], None]
Inputs = tuple[Callable[[Problem], Prompt], EngineContext, Suffix]


class RendersText(Protocol):
    """Renders problems to what an engine sends that takes text."""

    def describe(self) -> str:
        """Describe the form of the prompts."""

    def prompt(self, problem: Problem) -> Prompt:
        """Return the prompt as chat messages, and as text for the record."""


class TextEngine(Protocol):
    """An engine whose traits say ``text_only``."""

    def renderer(
        self, section: PromptSection, present: Callable[[Problem], Problem]
    ) -> RendersText:
        """Return what renders problems for it.

        Args:
            section: How problems are rendered.
            present: Returns a problem as its environment presents it.
        """


def is_remote(model: str) -> bool:
    """Whether a model's name denotes a model on another machine."""
    return model.startswith(REMOTE)


def find_component(host: Host, kind: str, ref: ComponentRef, where: str) -> Component:
    """Look up a component outside a run's configuration and validate its options."""
    return find(host, kind, ref.use, ref.with_, made({}, Mark(where)), ())


def choose(config: EvalConfig, host: Host, path: str) -> tuple[Component, str]:
    """Return the engine with all its options, and the reason for choosing it.

    Raises:
        ConfigError: If options are wrong, or the engine does not support this kind of model.
    """
    ref, why = config.engine, "as asked"
    if ref.use == AUTO:
        ref, why = _auto(ref, path)
    component = find_component(host, "engine", ref, "engine")
    _check_fits(component, path)
    return component, why


def engine_record(engine: Component, path: str, section: ModelSection) -> dict[str, Json]:
    """Return the description of the engine that every result folder records."""
    options = engine.config.model_dump(mode="json", by_alias=True, round_trip=True)
    record: dict[str, Json] = {"use": engine.entry.name, "with": options}
    if not is_remote(path):
        record |= {"dtype": section.dtype, "attention": section.attention}
    return record


def inputs(session: Session, engine: Engine, say: Say) -> Inputs:
    """Return what generation starts from: prompt renderer, engine context, tokens between turns.

    Raises:
        ConfigError: If a prompt cannot be rendered.
        MachineError: If the model cannot be loaded.
    """
    if is_remote(session.model_path):
        return _remote(session, engine, say)
    return _local(session, say)


def _local(session: Session, say: Say) -> Inputs:
    config, tokenizer = session.config, session.tokenizer()
    renderer = Renderer(tokenizer, config.prompt, session.conversations.present)
    longest = 0
    for task in session.tasks:
        if task.prompts is not None:
            longest = max(longest, task.prompts.longest + task.sampling.max_tokens)
        elif isinstance(task.task, ExternalTask):
            room = task.task.longest(task.problems, tokenizer, session.max_length())
            longest = max(longest, room)
    if not all(isinstance(task.task, ExternalTask) for task in session.tasks):
        say(f"prompts: {renderer.describe()}")
    say(f"loading {session.model_path}")
    model = _model(session.model_path, config.model, weights=session.engine.entry.name != VLLM)
    context = EngineContext(
        model_path=session.model_path,
        model=model,
        tokenizer=tokenizer,
        dtype=DTYPES[config.model.dtype],
        max_model_len=longest,
        seed=config.seed,
        trust_remote_code=config.model.trust_remote_code,
    )
    return renderer.prompt, context, renderer.suffix_ids


def _remote(session: Session, engine: Engine, say: Say) -> Inputs:
    config = session.config
    renderer = cast("TextEngine", engine).renderer(config.prompt, session.conversations.present)
    say(f"prompts: {renderer.describe()}")
    for task in session.tasks:
        for problem in task.problems:
            renderer.prompt(problem)  # finds faults before the first request
    context = EngineContext(
        model_path=session.model_path,
        model=None,
        tokenizer=cast("PreTrainedTokenizerBase", None),  # a text_only engine uses none
        dtype=DTYPES[config.model.dtype],
        max_model_len=0,
        seed=config.seed,
    )

    def no_tokens(problem: Problem, reply: Sequence[int], messages: Sequence[Message]) -> Any:
        raise AssertionError("an engine that takes text has no tokens between turns")

    return renderer.prompt, context, no_tokens


def _model(path: str, section: ModelSection, *, weights: bool) -> PreTrainedModel:
    """Load the model; without weights only its architecture, if the engine loads them itself."""
    import torch
    from accelerate import PartialState

    if weights:
        return load_policy(path, section, torch.device(PartialState().device))
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    auto: Any = AutoModelForCausalLM
    generation: Any = GenerationConfig
    trust = section.trust_remote_code
    config = AutoConfig.from_pretrained(path, revision=section.revision, trust_remote_code=trust)
    with torch.device("meta"):
        shape: PreTrainedModel = auto.from_config(config, trust_remote_code=trust)
    with contextlib.suppress(OSError):  # a model need not have a generation config
        shape.generation_config = generation.from_pretrained(path, revision=section.revision)
    return shape


def _auto(ref: ComponentRef, path: str) -> tuple[ComponentRef, str]:
    if is_remote(path):
        engine = ref.model_copy(update={"use": "checks/openai"})
        return engine, f"the model's name begins with {REMOTE}"
    if ref.with_:
        raise ConfigError(
            "'auto' chooses the engine, and has no options of its own",
            where="engine.with",
            remedy="name the engine whose options these are: engine.use",
        )
    name, why = choose_engine(path)
    return ComponentRef(use=name), why


def _check_fits(component: Component, path: str) -> None:
    text_only = traits_of(component.cls, EngineTraits).text_only
    if text_only and not is_remote(path):
        raise ConfigError(
            f"engine '{component.entry.name}' asks a model on another machine, and '{path}' is "
            f"one on this",
            where="engine",
            remedy=f"name the model as its server does: {REMOTE}NAME",
        )
    if is_remote(path) and not text_only:
        raise ConfigError(
            f"engine '{component.entry.name}' cannot ask '{path}', which is on another machine",
            where="engine",
            remedy="leave the engine out, or set it to openai",
        )
