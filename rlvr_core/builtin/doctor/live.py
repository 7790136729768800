"""Measures a live session: one batch, two real steps, and a perturbation of the weights."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    Draw,
    EngineTraits,
    Group,
    Problem,
    RlvrError,
    SamplingParams,
    traits_of,
)
from rlvr_core.api.services import max_positions, sampling_of
from rlvr_core.builtin.doctor.batch import Batch
from rlvr_core.builtin.doctor.consensus import vote
from rlvr_core.builtin.doctor.endings import MANY_CUT
from rlvr_core.builtin.doctor.subject import Subject

if TYPE_CHECKING:
    import torch

    from rlvr_core.api.services import Session

PROMPTS = 48
"""Number of problems of the sampled batch."""
MORE_ROOM = 4
"""Factor on the token cap for testing whether a higher cap lets completions end."""
PERTURBED = 0.05
"""Standard deviation of the first noise on each weight, as a share of its tensor's."""
ENOUGH_MOVED = 0.05
"""Target KL of the perturbation, in nats per token: far above rounding."""
VOTES = 16
"""Additional completions if the first ones of a group do not agree on an answer."""
ASKED, TASKS = 24, 3
"""Problems of an eval task that are sampled, of so many tasks."""
FIRST = 1_000_000
"""Index of the first draw, beyond those of the steps."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Trainer's log-probs beside the engine's, on the engine's own tokens.

    Attributes:
        mean: Mean absolute difference, in nats.
        slope: Regression slope of the trainer's on the engine's; 1 if they agree.
        k3: KL of the engine's policy from the trainer's, in nats per token.
        tokens: Tokens compared.
    """

    mean: float
    slope: float
    k3: float
    tokens: int


def agreement(trainer_N: torch.Tensor, engine_N: torch.Tensor) -> Agreement:
    """Compare two log-prob vectors of shape (N,) in nats."""
    ours_N, theirs_N = trainer_N.double(), engine_N.double()
    difference_N = ours_N - theirs_N
    centred_N = theirs_N - theirs_N.mean()
    spread = float((centred_N**2).sum())
    slope = float((centred_N * (ours_N - ours_N.mean())).sum()) / spread if spread > 0 else 1.0
    k3 = float((difference_N.exp() - 1 - difference_N).mean())
    return Agreement(float(difference_N.abs().mean()), slope, k3, int(difference_N.numel()))


@dataclass
class Live:
    """The measurements of a session.

    Attributes:
        subject: The run.
        session: The session.
        batch: Completions of the initial policy.
        parity: Agreement of trainer and engine before any update.
        moved: KL of the policy by the first update, in nats per token.
        seconds: Wall seconds of each step.
        phases: Seconds of the last step by phase.
        metrics: Metrics of the last step.
        synced: Agreement of trainer and engine after the weights were perturbed and loaded.
        perturbed: KL of the perturbation on the batch, in nats per token.
        weight: Median over the trained tensors of the root mean square of their weights.
        error: The error that stopped a step.
    """

    subject: Subject
    session: Session
    batch: Batch
    parity: Agreement | None = None
    moved: float | None = None
    seconds: list[float] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    sampling_seconds: float = 0.0
    memory: tuple[int, int] = (0, 0)
    synced: Agreement | None = None
    perturbed: float | None = None
    checkpoint_bytes: int = 0
    trace_bytes: int = 0
    weight: float = 0.0
    error: RlvrError | None = None


def params_of(subject: Subject, **changes: Any) -> SamplingParams:
    """Return the run's sampling parameters, with changes."""
    return replace(sampling_of(subject.config), **changes)


def sampled(
    session: Session, problems: Sequence[Problem], n: int, params: SamplingParams, first: int
) -> list[Group]:
    """Sample and judge completions under the engine's weights."""
    draws = [Draw(problem, n, first + at) for at, problem in enumerate(problems)]
    generator = session.parts.shared
    found = generator.generate(draws, params, version=session.version, step=session.step)
    return [one.group for one in found]


def first_batch(subject: Subject, session: Session) -> Batch:
    """Sample the examined batch; sample truncated problems again with a higher token cap."""
    n = min(max(subject.config.sampling.n, 8), 16)
    problems = subject.spread(PROMPTS)
    groups = sampled(session, problems, n, params_of(subject), FIRST)
    batch = Batch(subject, groups, session.parts.generator)
    batch.references = {one.problem.id: one for one in subject.references_of(problems)}
    if sum(vote(batch, group) is not None for group in groups) < len(groups) / 2:
        params = params_of(subject)
        single = [one for one in problems if one.environment is None]
        batch.more = sampled(session, single, VOTES, params, FIRST + 30_000)
    cut = [
        group.problem
        for group in groups
        if any(one.completion.finish_reason == "length" for one in group.members)
        and group.problem.environment is None
        and (group.problem.max_tokens or math.inf) > subject.config.sampling.max_tokens
    ][:12]
    members = batch.members
    share = sum(one.completion.finish_reason == "length" for one in members) / len(members)
    room = max_positions(subject.prepared.model_path, subject.config.model)
    cap = min(
        MORE_ROOM * subject.config.sampling.max_tokens, room - subject.prepared.longest_prompt
    )
    if cut and share > MANY_CUT and cap > subject.config.sampling.max_tokens:
        params = params_of(subject, max_tokens=cap)
        longer = sampled(session, cut, 2, params, FIRST + 10_000)
        batch.longer = [one.completion for group in longer for one in group.members]
    for at, (task, some) in enumerate(list(subject.held_out.items())[:TASKS]):
        plain = [one for one in some if one.environment is None]
        asked = plain[:: max(1, len(plain) // ASKED)][:ASKED]
        if asked:
            first = FIRST + 40_000 + 1_000 * at
            params = params_of(subject, max_tokens=subject.cap_of(task))
            batch.asked[task] = sampled(session, asked, 4, params, first)
    return batch


def measure(subject: Subject, session: Session) -> Live:
    """Measure everything that needs the model; an error of a step is kept, not raised."""
    trainer = session.trainer
    if traits_of(session.engine, EngineTraits).separate:
        session.engine.load_weights(session.version, session.source)
    begun = time.perf_counter()
    batch = first_batch(subject, session)
    live = Live(subject, session, batch, sampling_seconds=time.perf_counter() - begun)
    before_N, engine_N = trainer.logprobs(batch.groups)
    if before_N.numel():
        live.parity = agreement(before_N, engine_N)
    live.weight = _weight(session)
    try:
        with session.rollouts.running(session.step, session.version):
            for _ in range(2):
                begun = time.perf_counter()
                updates = session.version
                session.one_step()
                session.rollouts.resume()
                live.seconds.append(time.perf_counter() - begun)
                if live.moved is None and session.version > updates and before_N.numel():
                    after_N, _ = trainer.logprobs(batch.groups)
                    live.moved = agreement(after_N, before_N).k3
            session.rollouts.pause()
            live.phases = dict(session.seconds)
            live.memory = _memory()
            _perturb(live)
    except RlvrError as error:
        live.error = error
    live.checkpoint_bytes = _checkpoint_bytes(session)
    live.trace_bytes = sum(
        path.stat().st_size for path in session.folder.path.rglob("*") if path.is_file()
    )
    return live


def _weight(session: Session) -> float:
    """Return the median root mean square of the trained tensors that are not 0."""
    sizes = [
        float(tensor.detach().float().square().mean().sqrt())
        for tensor in session.trainer.model.parameters()
        if tensor.requires_grad
    ]
    return median([size for size in sizes if size > 0] or [0.0])


def _perturb(live: Live) -> None:
    """Move every trained weight, load the weights, and compare trainer and engine."""
    session, batch = live.session, live.batch
    before_N, _ = session.trainer.logprobs(batch.groups)
    noise = PERTURBED
    while (live.perturbed or 0.0) < ENOUGH_MOVED and noise < 1:
        _add_noise(session, noise)
        after_N, _ = session.trainer.logprobs(batch.groups)
        live.perturbed = agreement(after_N, before_N).k3
        noise *= 4
    session.version += 1
    session.engine.load_weights(session.version, session.source)
    problems = [group.problem for group in batch.groups[:8]]
    groups = sampled(session, problems, 4, params_of(live.subject), FIRST + 20_000)
    ours_N, theirs_N = session.trainer.logprobs(groups)
    if ours_N.numel():
        live.synced = agreement(ours_N, theirs_N)


def _add_noise(session: Session, scale: float) -> None:
    """Add normal noise to every trained weight; its size is a share of its tensor's spread."""
    import torch

    random = torch.Generator().manual_seed(session.config.run.seed)
    with torch.no_grad():
        for tensor in session.trainer.model.parameters():
            if tensor.requires_grad:
                noise = torch.randn(tensor.shape, generator=random).to(tensor.device, tensor.dtype)
                spread = float(tensor.float().std()) if tensor.numel() > 1 else 0.0
                tensor.add_(noise * scale * (spread or 0.02))


def _memory() -> tuple[int, int]:
    """Return peak bytes of this process and of its GPU."""
    import torch

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    gpu = int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else 0
    return peak, gpu


def _checkpoint_bytes(session: Session) -> int:
    """Return the size of the tensors that a checkpoint holds."""
    trainer = session.trainer
    trained = [p for p in trainer.model.parameters() if p.requires_grad]
    adapted = len(trained) < len(list(trainer.model.parameters()))
    rounded = trainer.precision.compute.itemsize if not adapted else 4
    size = sum(p.numel() * (rounded if rounded == 4 else rounded + 4) for p in trained)
    moments = trainer.optimizer.state_tensors()
    return size + sum(tensor.numel() * tensor.element_size() for tensor in moments.values())
