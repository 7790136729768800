"""Changes that many faults are made of: of passes, rows, samples, advantages, verdicts, updates."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tests.together.chaos.registry import Patch

ENGINE = "rlvr_core.engines.transformers"
DECODE = "rlvr_core.engines.decode"
COLLECT = "rlvr_core.rollout.collect"
STEP = "rlvr_core.step.step"
FORWARD = "rlvr_core.step.forward"
BATCH = "rlvr_core.step.batch"
OPTIM = "rlvr_core.step.optim"
POLICY = "rlvr_core.algorithm.policy"
BRACKETS = "rlvr_chaos:Brackets"
END = 256
"""The token that ends a sequence."""
FOREVER = 10.0**6
"""Seconds."""


def second() -> bool:
    """Whether this is the second of two training processes."""
    return os.environ.get("RANK") == "1"


def training_pass(patch: Patch, change: Callable[..., tuple[Any, dict[str, Any]]]) -> None:
    """Change batch and options of the pass that is trained through, and of no other."""

    def make(original: Any) -> Any:
        def scores(model: Any, batch: Any, **options: Any) -> Any:
            batch, options = change(batch, options)
            return original(model, batch, **options)

        return scores

    patch.wrap(f"{STEP}:completion_scores", make)


def completions(patch: Patch, change: Callable[[Any], Any]) -> None:
    """Change what any engine gives for a completion: ``change(generation)``."""

    def make(original: Any) -> Any:
        return lambda prompt_ids, generation: original(prompt_ids, change(generation))

    patch.wrap(f"{COLLECT}:_completion", make)


def reported(patch: Patch, change: Callable[[list[float]], Any]) -> None:
    """Change the log-probs that any engine reports."""

    def changed(generation: Any) -> Any:
        logprobs = change(list(generation.logprobs))
        return replace(generation, logprobs=tuple(float(x) for x in logprobs))

    completions(patch, changed)


def requests(patch: Patch, change: Callable[[Any], Any]) -> None:
    """Change each request before any engine sees it."""
    patch.after(f"{COLLECT}:Generator._request", lambda request, *_: change(request))


def sampled_from(patch: Patch, change: Callable[[Any], Any]) -> None:
    """Sample from changed logits, and report log-probs of the true ones."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            logp_BV = logits_BV.clone().float().log_softmax(-1)
            token_B, _ = original(change(logits_BV.clone().float()), rows, uniform_B)
            return token_B, logp_BV.gather(1, token_B[:, None])[:, 0]

        return sample

    patch.wrap(f"{DECODE}:sample", make)


def advantages(patch: Patch, change: Callable[[Any, Any], Any]) -> None:
    """Change the advantages of a step: ``change(advantages (N,), judged step)``."""

    def after(estimate: Any, estimator: Any, step: Any) -> Any:
        row_N = np.asarray(change(estimate.row_N.copy(), step), dtype=np.float64)
        return replace(estimate, row_N=row_N)

    patch.after("rlvr_core.algorithm.estimate:Estimator.of", after)


def groups_of(step: Any) -> Iterator[tuple[Any, Any]]:
    """Places and rewards of the members of each group."""
    for group in np.unique(step.group_N):
        places = np.flatnonzero(step.group_N == group)
        yield places, np.nan_to_num(step.reward_N[places])


def loss_mask(patch: Patch, change: Callable[[tuple[bool, ...], Any], Any]) -> None:
    """Change each row's mask: ``change(mask, token_ids)``."""

    def make(original: Any) -> Any:
        def row(prompt_ids: Any, token_ids: Any, mask: Any, *args: Any, **options: Any) -> Any:
            changed = tuple(bool(x) for x in change(tuple(mask), token_ids))
            return original(prompt_ids, token_ids, changed, *args, **options)

        return row

    patch.wrap("rlvr_core.step.rows:Row", make)


def rows_of_groups(patch: Patch, change: Callable[[list[Any]], list[Any]]) -> None:
    """Change which rows of each group are trained on."""
    patch.after(
        f"{STEP}:rows_of",
        lambda made, *_: replace(made, by_group=[change(rows) for rows in made.by_group]),
    )


def verdicts(patch: Patch, change: Callable[[list[Any]], list[Any]]) -> None:
    """Change the verdicts on the completions of a group, before they become rewards."""

    def make(original: Any) -> Any:
        def submit(judge: Any, problem: Any, answers: Any) -> Any:
            out: Future[Any] = Future()

            def done(future: Any) -> None:
                try:
                    out.set_result(change(future.result()))
                except BaseException as error:
                    out.set_exception(error)

            original(judge, problem, answers).add_done_callback(done)
            return out

        return submit

    patch.wrap("rlvr_core.verify.judge:Judge.submit", make)


def before_update(patch: Patch, change: Callable[[Any, int], None]) -> None:
    """Do something before each update: ``change(optimizer, number)``."""

    def make(original: Any) -> Any:
        @torch.no_grad()
        def step(optimizer: Any, number: int) -> Any:
            change(optimizer, number)
            return original(optimizer, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


def after_update(patch: Patch, change: Callable[[str, Any, Any], None]) -> None:
    """Change each tensor after each update: ``change(name, it, it before)``."""

    def make(original: Any) -> Any:
        @torch.no_grad()
        def step(optimizer: Any, number: int) -> Any:
            before = [tensor.detach().clone() for tensor in optimizer.parameters]
            update = original(optimizer, number)
            for name, new, old in zip(optimizer.names, optimizer.parameters, before, strict=True):
                change(name, new, old)
            return update

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


def frozen(patch: Patch, which: Callable[[str], bool]) -> None:
    """Let the updates of some tensors be lost: they are put back after each."""
    after_update(patch, lambda name, new, old: new.copy_(old) if which(name) else None)


def at_call(patch: Patch, place: str, call: int, act: Callable[[], None] | None = None) -> None:
    """Let the n-th call of a function never come back."""
    calls = [0]

    def make(original: Any) -> Any:
        def hanging(*args: Any, **options: Any) -> Any:
            calls[0] += 1
            if calls[0] == call:
                act() if act else time.sleep(FOREVER)
            return original(*args, **options)

        return hanging

    patch.wrap(place, make)


Change = Callable[[int, str, Any, Any], Any]
"""(number of the sync, name, old tensor, new tensor) -> the tensor that the engine has after."""


def loaded(patch: Patch, change: Change) -> None:
    """Change what an engine loads, in the trainer's process or in a child of its own.

    The engine in process gets weights of its own, copied at each sync.
    """
    import rlvr_core.engines.transformers as module
    from rlvr_core.engines.child.shared_weights import ReceivedSource

    start, load = module.TransformersEngine.start, module.TransformersEngine.load_weights
    syncs = [0]

    @torch.no_grad()
    def copied(model: Any, tensors: Any) -> None:
        patch.hit()
        syncs[0] += 1
        held = dict(model.named_parameters())
        for name, tensor in tensors:
            held[name].copy_(change(syncs[0], name, held[name].clone(), tensor.detach()))

    def started(self: Any, context: Any) -> None:
        start(self, context)
        if not self.__dict__.get("_in_child") and context.model is not None:
            self._model = copy.deepcopy(context.model).requires_grad_(False)
            self._trainer = context.model

    def load_weights(self: Any, version: int, source: Any) -> None:
        if getattr(self, "_trainer", None) is None or source.module is not self._trainer:
            load(self, version, source)
            return
        copied(self._model, source.module.named_parameters())
        self._version = version

    def refresh(self: Any) -> None:
        copied(self.module, self.tensors())

    module.TransformersEngine.start = started  # type: ignore[method-assign]
    module.TransformersEngine.load_weights = load_weights  # type: ignore[method-assign]
    ReceivedSource.refresh = refresh  # type: ignore[method-assign]
