"""The summary a run prints before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr_core.api import SamplerTraits, traits_of
from rlvr_core.api.judging import replacements
from rlvr_core.config.model import LossRef, RunConfig
from rlvr_core.parallel import ranks
from rlvr_core.parallel.model_adapter import chosen_adapter

if TYPE_CHECKING:
    from rlvr_core.api import Sampler
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.data.prompts import Renderer
    from rlvr_core.rollout.source import RolloutMode
    from rlvr_core.run.inputs import Data

_STRATEGIES = {
    "ddp": "the whole model in each (ddp)",
    "fsdp": "a part of the model in each (fsdp), without the fast path of tiny models on a CPU",
}


def overview(
    resolved: Resolved,
    model_path: str,
    engine: str,
    renderer: Renderer,
    data: Data,
    sampler: Sampler,
    mode: RolloutMode,
) -> list[str]:
    """Describe model, engine, data, prompts, loss, the size of a step, and what was noticed.

    Args:
        resolved: The run's configuration.
        model_path: Local folder or hub id of the model.
        engine: Line about the engine and why it was chosen.
        renderer: Renders the prompts.
        data: The run's data.
        sampler: Its sampler.
        mode: How generation and training are scheduled.
    """
    config, train = resolved.config, resolved.config.train
    total = sum(len(source.problems) for source in data.sources)
    first = data.sources[0].problems[0]
    loss = " + ".join(_term(ref) for ref in config.losses.values())
    lines = [
        f"model: {model_path}, {config.model.dtype}",
        engine,
        f"data: {total} problems from {', '.join(source.name for source in data.sources)}",
        f"prompts: {renderer.describe()}",
        f"first prompt: {first.id}, {len(renderer.render(first))} tokens: "
        f"{_shortened(renderer.text(first))}",
        f"loss: {loss}, {train.steps} steps, lr {train.lr:g}",
        *chosen_adapter(config.model.lora).lines(config.model.lora),
        *mode.lines(),
    ]
    if ranks.count() > 1:
        lines.append(
            f"processes: {ranks.count()}, {_STRATEGIES[train.parallel]}; each has "
            f"{config.verify.workers} verifier workers"
        )
    lines += _step_lines(config, traits_of(sampler, SamplerTraits), total)
    if train.updates_per_step > 1:
        lines.append(
            f"updates: {train.updates_per_step} a step, {train.mini_batches} mini-batches x "
            f"{train.num_iterations} iterations"
        )
    lines += [*(data.answers.lines if data.answers else ()), *data.conversations.lines()]
    lines += [*data.prompt_lines, *(f"warning: {text}" for text in resolved.warnings)]
    return lines + [line for report in data.reports for line in report.lines]


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
