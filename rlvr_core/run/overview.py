"""The summary a run prints before it starts (T15, T37)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlvr_core.api import Source
from rlvr_core.api.judging import replacements
from rlvr_core.config.model import LossRef, RunConfig
from rlvr_core.data.prompts import Renderer
from rlvr_core.parallel import ranks

if TYPE_CHECKING:
    from rlvr_core.api import SamplerTraits

_STRATEGIES = {
    "ddp": "the whole model in each (ddp)",
    "fsdp": "a part of the model in each (fsdp), without the fast path of tiny models on a CPU",
}


def overview(
    config: RunConfig,
    sampler: SamplerTraits,
    model_path: str,
    sources: Sequence[Source],
    renderer: Renderer,
    engine: str,
    more: Sequence[str],
) -> list[str]:
    """Describe model, engine, data, prompts, loss and the size of a step.

    Args:
        config: The run's configuration.
        sampler: Traits of its sampler.
        model_path: Local folder or hub id of the model.
        sources: The training data.
        renderer: Renders the prompts.
        engine: The engine's name, and why it was chosen.
        more: Lines added by the rollout mode and the adapter.
    """
    total = sum(len(source.problems) for source in sources)
    first = sources[0].problems[0]
    loss = " + ".join(_term(ref) for ref in config.losses.values())
    lines = [
        f"model: {model_path}, {config.model.dtype}",
        f"engine: {engine}",
        f"data: {total} problems from {', '.join(source.name for source in sources)}",
        f"prompts: {renderer.describe()}",
        f"first prompt: {first.id}, {len(renderer.render(first))} tokens: "
        f"{_shortened(renderer.text(first))}",
        f"loss: {loss}, {config.train.steps} steps, lr {config.train.lr:g}",
        *more,
    ]
    if ranks.count() > 1:
        lines.append(
            f"processes: {ranks.count()}, {_STRATEGIES[config.train.parallel]}; each has "
            f"{config.verify.workers} verifier workers"
        )
    lines += _step_lines(config, sampler, total)
    train = config.train
    if train.updates_per_step > 1:
        lines.append(
            f"updates: {train.updates_per_step} a step, {train.mini_batches} mini-batches x "
            f"{train.num_iterations} iterations"
        )
    return lines


def _step_lines(config: RunConfig, sampler: SamplerTraits, total: int) -> list[str]:
    """Describe the size of a step, and warn if there are too few problems for it."""
    per_step, section = config.train.prompts_per_step, config.sampling
    lines = []
    if per_step > total > 0:
        lines.append(f"warning: a step of {per_step} prompts repeats some of {total} problems")
    most = sampler.max_completions or section.n
    size = (
        f"step: {per_step} prompts x {'up to ' * bool(sampler.max_completions)}{most} = "
        f"{per_step * most} completions of at most {section.max_tokens} tokens = "
        f"{per_step * most * section.max_tokens} tokens"
    )
    if extra := replacements(sampler.refill, per_step):
        size += f", and up to {extra} prompts more in the place of dropped groups"
    return [*lines, size]


def _term(ref: LossRef) -> str:
    return ref.use if ref.weight == 1 else f"{ref.weight:g} {ref.use}"


def _shortened(text: str, limit: int = 120) -> str:
    shown = repr(text)
    return shown if len(shown) <= limit else f"{shown[: limit // 2]} ... {shown[-limit // 2 :]}"
