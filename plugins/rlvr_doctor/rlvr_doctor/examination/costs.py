"""Checks of a live session: parity, weight sync, learning rate, memory, time and disk."""

from __future__ import annotations

from rlvr_core.api import Finding
from rlvr_doctor.examination.live import Agreement, Live
from rlvr_doctor.examination.model import GIB
from rlvr_doctor.examination.report import Check, refused

MEAN = {"float32": 1e-3, "bfloat16": 1e-1, "float16": 2e-2}
"""Maximum mean difference of log-probs by rounding, in nats, as in the guard parity."""
K3 = {"float32": 1e-4, "bfloat16": 2e-3, "float16": 1e-3}
SLOPE = {"float32": 0.01, "bfloat16": 0.05, "float16": 0.02}
TOO_FAR = 0.5
"""KL of one update, in nats per token, above which the step is too large."""
TOO_NEAR = 1e-12
"""KL of one update below which rounding hides it."""
LITTLE = 1e-3
"""KL in nats per token below which a whole run has hardly changed the policy."""


def _agree(agreement: Agreement, dtype: str, more: float = 0.0) -> bool:
    within = agreement.mean <= MEAN[dtype] and agreement.k3 <= max(K3[dtype], more)
    return within and (more > 0 or abs(agreement.slope - 1) <= SLOPE[dtype])


def _parity(live: Live) -> Finding | None:
    if live.parity is None:
        return None
    sampling = live.subject.config.sampling
    text = (
        f"mean difference {live.parity.mean:.2g} nats, slope {live.parity.slope:.4f}, k3 "
        f"{live.parity.k3:.2g} over {live.parity.tokens} tokens"
    )
    if _agree(live.parity, live.subject.config.model.dtype):
        return Finding("weights/parity", "ok", text)
    cause = (
        "sampling.top_p and top_k cut the distribution: set them to 1 and 0"
        if sampling.top_p < 1 or sampling.top_k > 0
        else "the engine does not sample from the trainer's policy: its temperature, dtype, "
        "tokenizer or weights differ (rlvr docs guards#parity)"
    )
    return Finding("weights/parity", "fail", text, cause)


def _sync(live: Live) -> Finding | None:
    if live.synced is None or live.perturbed is None:
        return None
    dtype = live.subject.config.model.dtype
    text = (
        f"weights perturbed by {live.perturbed:.2g} nats per token; after the sync engine and "
        f"trainer differ by k3 {live.synced.k3:.2g} over {live.synced.tokens} tokens"
    )
    if live.parity is not None and not _agree(live.parity, dtype):
        return Finding("weights/sync", "note", f"{text}: they disagreed before it too")
    if _agree(live.synced, dtype, more=0.01 * live.perturbed):
        return Finding("weights/sync", "ok", text)
    return Finding(
        "weights/sync",
        "fail",
        text,
        "the engine does not take the trainer's weights: try engine: core/transformers, and see "
        "rlvr docs engines#weight-sync",
    )


def _rate(live: Live) -> Finding:
    """Judge the peak learning rate by the KL of the first update."""
    train = live.subject.limits.train
    if live.moved is None:
        what = "no update was applied, as no group had rewards that differ"
        return Finding("weights/lr", "note", what)
    text = f"an update at lr {train.lr:g} moves the policy by {live.moved:.2g} nats per token"
    if live.moved != live.moved or live.moved > TOO_FAR:
        remedy = f"lower train.lr from {train.lr:g} to {train.lr / 10:.2g} or less"
        return Finding("weights/lr", "fail", text, remedy)
    whole = live.moved * train.steps**2
    if live.moved <= TOO_NEAR or whole < LITTLE:
        return Finding(
            "weights/lr",
            "warn",
            f"{text}: {train.steps} steps all in one direction make {whole:.1g}",
            f"raise train.lr from {train.lr:g}, or lower the optimizer's eps if it is large",
        )
    return Finding("weights/lr", "ok", text)


def _time(live: Live) -> Finding | list[Finding] | None:
    if live.error is not None:
        return refused("cost/time", live.error)
    if not live.seconds:
        return None
    limits = live.subject.limits
    step = sum(live.seconds) / len(live.seconds)
    tasks = sum(len(some) for some in live.subject.held_out.values())
    every = limits.eval.every
    times = 2 + (limits.train.steps // every if every else 0)
    evaluating = times * tasks * live.sampling_seconds / max(1, len(live.batch.members))
    hours = (limits.train.steps * step + evaluating) / 3600
    phases = ", ".join(f"{name} {seconds:.2g} s" for name, seconds in live.phases.items())
    shown = f"{hours:.2g} hours" if hours >= 0.1 else f"{60 * hours:.2g} minutes"
    text = f"{step:.3g} s a step ({phases}); the whole run about {shown}"
    return Finding("cost/time", "ok", text)


def _memory(live: Live) -> Finding | None:
    host, gpu = live.memory
    if not host:
        return None
    import torch

    text, low = f"this process {host / GIB:.3g} GiB", False
    if gpu:
        whole = int(torch.cuda.get_device_properties(0).total_memory)
        text += f", GPU {gpu / GIB:.3g} of {whole / GIB:.3g} GiB"
        low = gpu > 0.92 * whole
    if not low:
        return Finding("cost/memory", "ok", text)
    remedy = "lower train.tokens_per_micro_batch, or set train.gradient_checkpointing: all"
    return Finding("cost/memory", "warn", text, remedy)


def _latency(live: Live) -> list[Finding]:
    config, findings = live.subject.limits, []
    for name, stats in live.subject.prepared.judge.pool.stats().items():
        text = (
            f"{name}: median {1000 * stats.p50:.3g} ms, p99 {1000 * stats.p99:.3g} ms, "
            f"{stats.timeouts} timeouts in {stats.calls}"
        )
        if stats.timeouts == 0 and stats.p99 <= 0.5 * config.verify.timeout:
            findings.append(Finding("cost/verifiers", "ok", text))
        else:
            remedy = "raise verify.timeout, or fix the verifier"
            findings.append(Finding("cost/verifiers", "warn", text, remedy))
    return findings


LIVE: tuple[Check[Live], ...] = (
    ("weights/parity", _parity),
    ("weights/sync", _sync),
    ("weights/lr", _rate),
    ("cost/verifiers", _latency),
    ("cost/memory", _memory),
    ("cost/time", _time),
)
