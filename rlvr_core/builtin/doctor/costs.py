"""Checks of a live session: parity, weight sync, learning rate, memory, time and disk."""

from __future__ import annotations

from pathlib import Path

from rlvr_core.builtin.doctor.live import Live
from rlvr_core.builtin.doctor.model import GIB, disk
from rlvr_core.builtin.doctor.report import Answer, Check, refused

MEAN = {"float32": 1e-3, "bfloat16": 1e-1, "float16": 2e-2}
"""Maximum mean difference of log-probs by rounding, in nats, as in the guard parity."""
K3 = {"float32": 1e-4, "bfloat16": 2e-3, "float16": 1e-3}
SLOPE = 0.01
TOO_FAR = 0.5
"""KL of one update, in nats per token, above which the step is too large."""
MOST_OF_A_WEIGHT = 0.3
LEAST_OF_A_WEIGHT = 1e-6
"""Bounds for one update and for a whole run of Adam, as shares of a typical weight."""
TOO_NEAR = 1e-12
"""KL of one update below which rounding hides it."""
LITTLE = 1e-3
"""KL in nats per token below which a whole run has hardly changed the policy."""


def _parity(live: Live) -> Answer | None:
    found = live.parity
    if found is None:
        return None
    dtype = live.subject.config.model.dtype
    value = (
        f"mean difference {found.mean:.2g} nats, slope {found.slope:.4f}, k3 {found.k3:.2g} over "
        f"{found.tokens} tokens at temperature {live.subject.config.sampling.temperature:g}"
    )
    if found.mean <= MEAN[dtype] and found.k3 <= K3[dtype] and abs(found.slope - 1) <= SLOPE:
        return Answer("ok", value)
    sampling = live.subject.config.sampling
    cause = (
        "sampling.top_p and top_k cut the distribution: set them to 1 and 0"
        if sampling.top_p < 1 or sampling.top_k > 0
        else "the engine does not sample from the trainer's policy: its temperature, dtype, "
        "tokenizer or weights differ (rlvr docs guards#parity)"
    )
    return Answer("fail", value, cause, weight=170, data={"k3": found.k3, "slope": found.slope})


def _sync(live: Live) -> Answer | None:
    if live.synced is None or live.perturbed is None:
        return None
    found, dtype = live.synced, live.subject.config.model.dtype
    value = (
        f"weights perturbed by {live.perturbed:.2g} nats per token; after the sync engine and "
        f"trainer differ by k3 {found.k3:.2g} over {found.tokens} tokens"
    )
    parity = _parity(live)
    if parity is not None and parity.level == "fail":
        return Answer("note", f"{value}: they disagreed before, so this proves nothing")
    if live.perturbed < 10 * K3[dtype]:
        return Answer("note", f"{value}: the perturbation was too small to prove anything")
    if found.mean <= MEAN[dtype] and found.k3 <= max(K3[dtype], 0.01 * live.perturbed):
        return Answer("ok", value)
    return Answer(
        "fail",
        value,
        "the engine does not take the trainer's weights: try engine: core/transformers, and see "
        "rlvr docs engines#weight-sync",
        weight=170,
    )


def _rate(live: Live) -> Answer | None:
    """Judge the peak learning rate by the KL of the first update."""
    train = live.subject.limits.train
    if live.moved is None:
        return _rate_by_size(live)
    value = f"an update at lr {train.lr:g} moves the policy by {live.moved:.2g} nats per token"
    if live.moved != live.moved or live.moved > TOO_FAR:
        return Answer(
            "fail",
            value,
            f"lower train.lr from {train.lr:g} to {train.lr / 10:.2g} or less",
            weight=135,
            data={"k3": live.moved},
        )
    whole = live.moved * train.steps**2
    if live.moved <= TOO_NEAR or whole < 1e-7:
        return Answer(
            "fail",
            f"{value}: {train.steps} steps change next to nothing",
            f"raise train.lr from {train.lr:g}",
            weight=135,
            data={"k3": live.moved},
        )
    if whole < LITTLE:
        return Answer(
            "warn",
            f"{value}: {train.steps} steps all in one direction make {whole:.1g}",
            f"raise train.lr from {train.lr:g}, or lower the optimizer's eps if it is large",
            weight=100,
            data={"k3": live.moved},
        )
    return Answer("ok", value, data={"k3": live.moved})


def _rate_by_size(live: Live) -> Answer:
    """Judge the learning rate without an update: Adam moves every weight by about the rate."""
    train = live.subject.limits.train
    value = (
        f"no update was applied, as no group had rewards that differ; lr {train.lr:g}, weights of "
        f"size {live.weight:.2g}"
    )
    if "adamw" not in live.subject.config.train.optimizer.use or not live.weight:
        return Answer("note", value)
    ratio = train.lr / live.weight
    if ratio > MOST_OF_A_WEIGHT:
        remedy = f"lower train.lr to {live.weight / 1000:.1g} or less"
        return Answer("fail", f"{value}: an update replaces them", remedy, weight=135)
    if ratio * train.steps < LEAST_OF_A_WEIGHT:
        remedy = f"raise train.lr from {train.lr:g}"
        return Answer("fail", f"{value}: the run leaves them as they are", remedy, weight=135)
    return Answer("note", value)


def _time(live: Live) -> Answer | list[Answer] | None:
    if live.error is not None:
        return refused(live.error)
    if not live.seconds:
        return None
    limits = live.subject.limits
    step = sum(live.seconds) / len(live.seconds)
    completions = max(1, len(live.batch.members))
    tasks = sum(len(some) for some in live.subject.held_out.values())
    every = limits.eval.every
    times = (2 + (limits.train.steps // every if every else 0)) if tasks else 0
    evaluating = times * tasks * live.sampling_seconds / completions
    hours = (limits.train.steps * step + evaluating) / 3600
    phases = ", ".join(f"{name} {seconds:.2g} s" for name, seconds in live.phases.items())
    shown = f"{hours:.2g} hours" if hours >= 0.1 else f"{60 * hours:.2g} minutes"
    value = f"{step:.3g} s a step ({phases}); the whole run about {shown}"
    return Answer("ok", value, data={"step_seconds": step, "hours": hours})


def _memory(live: Live) -> Answer | None:
    host, gpu = live.memory
    if not host:
        return None
    import torch

    value = f"this process {host / GIB:.3g} GiB"
    low = False
    if gpu:
        whole = int(torch.cuda.get_device_properties(0).total_memory)
        value += f", GPU {gpu / GIB:.3g} of {whole / GIB:.3g} GiB"
        low = gpu > 0.92 * whole
    free = _free_memory()
    if free is not None:
        value += f"; {free / GIB:.3g} GiB of the machine are free"
        low = low or free < 0.05 * host
    if low:
        return Answer(
            "warn",
            value,
            "lower train.tokens_per_micro_batch, or set train.gradient_checkpointing: all",
        )
    return Answer("ok", value, data={"host": host, "gpu": gpu})


def _free_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable")), None)
    return None if found is None else int(found) * 1024


def _latency(live: Live) -> list[Answer]:
    config, answers = live.subject.limits, []
    step = sum(live.seconds) / len(live.seconds) if live.seconds else 0.0
    each = config.train.prompts_per_step * config.sampling.n
    for name, stats in live.subject.prepared.judge.pool.stats().items():
        load = each * stats.p50 / config.verify.workers
        value = (
            f"{name}: median {1000 * stats.p50:.3g} ms, p99 {1000 * stats.p99:.3g} ms, "
            f"{stats.timeouts} timeouts in {stats.calls}; {load:.2g} s a step on "
            f"{config.verify.workers} workers"
        )
        slow = step > 0 and load > 0.5 * step and load > 1
        near = stats.p99 > 0.5 * config.verify.timeout or stats.timeouts > 0
        remedy = "raise verify.workers" if slow else "raise verify.timeout, or mend the verifier"
        answers.append(
            Answer("warn" if slow or near else "ok", value, remedy if slow or near else "")
        )
    return answers


def _disk(live: Live) -> Answer:
    steps = live.subject.limits.train.steps
    traces = live.trace_bytes * steps // max(len(live.seconds), 1)
    return disk(live.subject, live.checkpoint_bytes, traces)


LIVE: tuple[Check[Live], ...] = (
    Check("weights/parity", "Do trainer and engine agree on sampled tokens?", _parity),
    Check("weights/sync", "Do new weights reach the engine?", _sync),
    Check("weights/lr", "Does an update move the policy a little?", _rate),
    Check("cost/verifiers", "Are verdicts quick enough?", _latency),
    Check("cost/memory", "Does a step fit in memory?", _memory),
    Check("cost/time", "How long will the run take?", _time),
    Check("disk/files", "Do checkpoints and traces fit on the disk?", _disk),
)
