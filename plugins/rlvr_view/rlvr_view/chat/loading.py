"""Loads a model to talk with, with the prompts and sampling of its run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr_core.api import REMOTE, ConfigError, EngineContext, SamplingParams
from rlvr_core.data.prompts import Renderer
from rlvr_core.eval.model_ref import find_model, runnable
from rlvr_core.rollout.source import sampling_of
from rlvr_core.step.model import DTYPES, load_policy, load_tokenizer, max_positions
from rlvr_core.toolkit import (
    ComponentRef,
    ModelSection,
    PromptSection,
    build,
    check_model_path,
    load_config,
    load_host,
    model_path,
)

if TYPE_CHECKING:
    from rlvr_core.api import Engine

ENGINE = "core/transformers"


@dataclass(frozen=True, slots=True)
class Talker:
    """A model that is ready to answer.

    Attributes:
        label: Name of the model.
        model: The model.
        tokenizer: The model's tokenizer.
        renderer: Makes prompts as its run did.
        engine: Samples from it as its run did.
        params: How; ``max_tokens`` is the cap on one answer.
        positions: Tokens that it can attend to.
    """

    label: str
    model: Any
    tokenizer: Any
    renderer: Renderer
    engine: Engine
    params: SamplingParams
    positions: int

    def describe(self) -> list[str]:
        """Describe the model, in lines."""
        params = self.params
        return [
            f"{self.label} on {self.model.device}, {self.positions} tokens of context",
            self.renderer.describe(),
            f"temperature {params.temperature:g}, top_p {params.top_p:g}, top_k {params.top_k}, "
            f"at most {params.max_tokens} tokens an answer",
        ]


def load(name: str, step: int | None, system: str | None, runs_dir: str) -> Talker:
    """Load a model, with prompts and sampling of its run if it is a run's.

    Args:
        name: A run, a model's folder, a hub id or ``tiny:TASK``.
        step: The step of a run's checkpoint; None for the newest.
        system: The system message; None for the run's own.
        runs_dir: Folder of run folders.

    Raises:
        RlvrError: If there is no such model, or it cannot be loaded.
    """
    import torch

    from rlvr_core.parallel.fsdp.loading import stored_dtype

    if name.startswith(REMOTE):
        raise ConfigError(
            f"'{name}' is a model on another machine",
            where="MODEL",
            remedy="rlvr chat loads a model on this one: name a run, a folder or a hub id",
        )
    model_ref, host = find_model(name, step=step, runs_dir=runs_dir), load_host()
    config = None if model_ref.run is None else load_config(model_ref.run.resolved).config
    given = model_path(model_ref.path, host)
    section = ModelSection(path=given) if config is None else config.model
    path = runnable(given, section)
    check_model_path(path, "MODEL")
    tokenizer = load_tokenizer(path, section, "MODEL")
    prompt = PromptSection() if config is None else config.data.prompt
    if system is not None:
        prompt = prompt.model_copy(update={"system": system})
    positions = max_positions(path, section)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = stored_dtype(path, section) if config is None else DTYPES[config.model.dtype]
    # without faster paths every token goes through the model's own forward, where it is seen
    plain = section.model_copy(update={"forward_paths": ()})
    model = load_policy(path, plain, device, dtype).requires_grad_(False)
    engine = build(host, "engine", ComponentRef(use=ENGINE))
    engine.start(EngineContext(path, model, tokenizer, dtype, positions, 0))
    params = _of_model(model, positions) if config is None else sampling_of(config)
    renderer = Renderer(tokenizer, prompt)
    return Talker(model_ref.label, model, tokenizer, renderer, engine, params, positions)


def _of_model(model: Any, positions: int) -> SamplingParams:
    """Return the sampling that a model's own generation config asks for."""
    generation = model.generation_config
    if generation is None or generation.do_sample is False:
        return SamplingParams(max_tokens=positions)
    return SamplingParams(
        float(1.0 if generation.temperature is None else generation.temperature),
        float(1.0 if generation.top_p is None else generation.top_p),
        int(generation.top_k or 0),
        positions,
    )
