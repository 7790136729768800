"""Measures a live session: one batch, two real steps, and a perturbation of the weights."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rlvr_core.api import (
    Draw,
    EngineTraits,
    Group,
    Problem,
    RlvrError,
    SamplingParams,
    traits_of,
)
from rlvr_core.rollout.source import sampling_of
from rlvr_doctor.examination.batch import Batch
from rlvr_doctor.examination.subject import Subject

if TYPE_CHECKING:
    import torch

    from rlvr_core.run.session import Session

PROMPTS = 48
"""Maximum problems in the sampled batch."""
CHUNK = 4
"""Problems that are sampled at once; the first ones tell how long the rest takes."""
SECONDS = 120.0
"""Seconds that sampling may take; where it is slow, fewer problems are sampled."""
PERTURBED = 0.05
"""Standard deviation of the first noise on each weight, as a share of its tensor's."""
ENOUGH_MOVED = 0.05
"""Target KL of the perturbation, in nats per token: far above rounding."""
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
    error: RlvrError | None = None


def params_of(subject: Subject) -> SamplingParams:
    """Return the run's sampling parameters."""
    return sampling_of(subject.config)


def sampled(
    session: Session, problems: Sequence[Problem], n: int, params: SamplingParams, first: int
) -> list[Group]:
    """Sample and judge completions under the engine's weights."""
    draws = [Draw(problem, n, first + at) for at, problem in enumerate(problems)]
    generator = session.parts.shared
    generated = generator.generate(draws, params, version=session.version, step=session.step)
    return [result.group for result in generated]


def first_batch(subject: Subject, session: Session, say: Callable[[str], None]) -> Batch:
    """Sample the examined batch, as much of it as ``SECONDS`` allow."""
    n = min(max(subject.config.sampling.n, 8), 16)
    problems, params = subject.spread(PROMPTS), params_of(subject)
    say(
        f"sampling up to {len(problems)} problems x {n} completions of at most "
        f"{params.max_tokens} tokens"
    )
    groups: list[Group] = []
    begun = time.perf_counter()
    while len(groups) < len(problems):
        some = problems[len(groups) : len(groups) + CHUNK]
        groups += sampled(session, some, n, params, FIRST + len(groups))
        each = (time.perf_counter() - begun) / len(groups)
        if len(groups) == len(some):
            problems = problems[: max(CHUNK, int(SECONDS / each))]
        left = len(problems) - len(groups)
        say(f"sampled {len(groups)} of {len(problems)} problems, about {each * left:.0f} s left")
    return Batch(subject, groups)


def measure(subject: Subject, session: Session, say: Callable[[str], None]) -> Live:
    """Measure everything that needs the model; an error of a step is kept, not raised."""
    trainer = session.trainer
    if traits_of(session.engine, EngineTraits).separate:
        session.engine.load_weights(session.version, session.source)
    begun = time.perf_counter()
    batch = first_batch(subject, session, say)
    live = Live(subject, session, batch, sampling_seconds=time.perf_counter() - begun)
    before_N, engine_N = trainer.logprobs(batch.groups)
    if before_N.numel():
        live.parity = agreement(before_N, engine_N)
    say("two steps of training, and a sync of perturbed weights")
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
    return live


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
