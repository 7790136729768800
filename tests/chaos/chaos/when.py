"""Faults that strike at some step, in the engine alone, or in an engine on a copy of the model."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

from chaos.registry import Patch

ENGINE = "rlvr_core.engines.transformers"
DECODE = "rlvr_core.engines.decode"


class Clock:
    """What a run is at.

    Attributes:
        step: Steps done, in the trainer's process.
        version: Policy version that the engine of this process samples under.
    """

    step = 0
    version = 0


@cache
def clock() -> Clock:
    """The one clock of a process, which its run's loop and its engine set."""
    import rlvr_core.engines.transformers as engines
    import rlvr_core.run.session as sessions

    now = Clock()
    one_step = sessions.Session.one_step
    load = engines.TransformersEngine.load_weights

    def step(session: Any) -> None:
        now.step = session.step
        one_step(session)

    def loaded(engine: Any, version: int, source: Any) -> None:
        now.version = version
        load(engine, version, source)

    sessions.Session.one_step = step  # type: ignore[method-assign]
    engines.TransformersEngine.load_weights = loaded  # type: ignore[method-assign]
    return now


def engine_has(patch: Patch, change: Callable[[Any, int, dict[str, Any]], None]) -> None:
    """Let the engine sample from a copy of what it is given, changed in place.

    Args:
        patch: The fault's.
        change: Called with the copy, how many syncs there were before it, and a dictionary that
            lasts from one sync to the next.
    """
    kept: dict[str, Any] = {"syncs": 0}

    def make(original: Any) -> Any:
        def load(engine: Any, version: int, source: Any) -> None:
            original(engine, version, source)
            model = copy.deepcopy(engine._model)
            change(model, kept["syncs"], kept)
            kept["syncs"] += 1
            engine._model = model

        return load

    patch.wrap(f"{ENGINE}:TransformersEngine.load_weights", make)


def drawn_from(patch: Patch, change: Callable[..., Any]) -> None:
    """Draw tokens from other logits than those whose log-probs are reported.

    Args:
        patch: The fault's.
        change: From scaled logits (B, V) to those that are drawn from.
    """

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            from dataclasses import replace

            honest_BV = logits_BV.float().clone()
            if rows.temperature_B1 is not None:
                honest_BV = honest_BV / rows.temperature_B1
            plain = replace(rows, temperature_B1=None)
            token_B, _ = original(change(honest_BV.clone()), plain, uniform_B)
            logp_BV = honest_BV.log_softmax(-1)
            return token_B, logp_BV.gather(-1, token_B[:, None])[:, 0]

        return sample

    patch.wrap(f"{DECODE}:sample", make)


def while_sampling(patch: Patch) -> list[bool]:
    """Sample by the model's own forward; whether it is just computing for the engine.

    Args:
        patch: The fault's.

    Returns:
        A list of one truth value, which changes.
    """
    within = [False]

    def make(original: Any) -> Any:
        def called(*args: Any) -> Any:
            within[0] = True
            try:
                return original(*args)
            finally:
                within[0] = False

        return called

    patch.wrap(f"{ENGINE}:TransformersEngine._fast", lambda original: lambda engine: None)
    patch.wrap(f"{DECODE}:HuggingFaceDecoder.prefill", make)
    patch.wrap(f"{DECODE}:HuggingFaceDecoder.step", make)
    return within
