"""Evaluations during a run, checked in each of its processes by the completions of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rlvr_core.builtin.invariants.check import Invariant, Trainer, compute_dtype
from rlvr_core.builtin.invariants.evaluated import Evaluated, moments_at
from rlvr_core.builtin.invariants.moments import chosen
from rlvr_core.builtin.invariants.rounding import band_of, on_gpu
from rlvr_core.builtin.invariants.seeds import seed_of

if TYPE_CHECKING:
    from rlvr_core.api import EngineTraits, EvalFinished, Group, Guard, Json
    from rlvr_core.api.services import RunConfig


class EvaluatedInRun:
    """Looks at the completions of a run's evaluations.

    Args:
        config: The run's configuration.
        trainer: The policy's trainer.
        evaluations: What evaluates the policy; None where nothing does.
        repeats: As for ``Evaluated``.
    """

    def __init__(
        self, config: RunConfig, trainer: Trainer, evaluations: Any, repeats: Any = None
    ) -> None:
        self._config, self._trainer, self._evaluations = config, trainer, evaluations
        self._repeats = repeats

    @cached_property
    def _evaluated(self) -> Evaluated:
        model, dtype = self._trainer.model, compute_dtype(self._trainer)
        section = self._config.guards.parity
        return Evaluated(dtype, band_of(model, dtype), section, self._repeats, on_gpu=on_gpu(model))

    def wrong(self, event: EvalFinished) -> tuple[str, str] | None:
        """Return what is wrong with an evaluation, with a remedy. A collective.

        Every process has the groups of all, and they score them together: so all find the same.
        """
        latest = None if self._evaluations is None else self._evaluations.latest
        if latest is None or latest[0].name != event.task:
            return None
        evaluation, params = latest
        whole = tuple(one.group for one in evaluation.sampled)
        places = {id(group): place for place, group in enumerate(whole)}
        if not (groups := chosen(whole, event.step, warm=True)):
            return None

        def seed(group: Group, sample: int) -> int:
            draw = places[id(group)]
            return seed_of(self._config.run.seed, group.problem.id, group.version, draw, sample)

        moments = moments_at(params, compute_dtype(self._trainer))
        scores_NK = self._trainer.token_scores(groups, moments)
        wrong = self._evaluated.wrong(groups, params, scores_NK, seed, event.step)
        if wrong is None:
            return None
        what, remedy = wrong
        return f"in the evaluation {event.task} after {event.step} steps {what}", remedy

    def state_dict(self) -> dict[str, Json]:
        """Return the evidence so far."""
        return self._evaluated.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore it."""
        self._evaluated.load_state_dict(state)


class Evaluations(Invariant):
    """Invariant ``seeds`` where the engine draws in a way of its own: of evaluations alone.

    Args:
        evaluated: Looks at their completions.
    """

    id, phase = "seeds", "before training"

    def __init__(self, evaluated: EvaluatedInRun) -> None:
        self._evaluated = evaluated

    def evaluated(self, event: EvalFinished) -> None:
        """Check the tokens of an evaluation; raises ``RunError``."""
        if wrong := self._evaluated.wrong(event):
            raise self.fault(event.step - 1, *wrong)

    def state_dict(self) -> dict[str, Json]:
        """Return the evidence so far."""
        return {"evaluations": self._evaluated.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore it."""
        self._evaluated.load_state_dict(state.get("evaluations") or {})


def evaluations_of(
    config: RunConfig,
    trainer: Trainer,
    evaluations: Any,
    traits: EngineTraits,
    repeats: Callable[[], Guard] | None,
    say: Callable[[str], None],
) -> list[Invariant]:
    """Make what checks evaluations alone, and tell the user what of them is not checked."""
    if not config.guards.seeds or not traits.seeded or repeats is None:
        why = "guards.seeds is off" if not config.guards.seeds else "the engine draws by no seeds"
        say(f"note: evaluations: how their completions are sampled is not checked, as {why}")
        return []
    if traits.inverts_stream:
        return [Evaluations(EvaluatedInRun(config, trainer, evaluations))]
    say(
        "note: evaluations: log-probs, temperature and repeats of their completions are checked; "
        "which seeds draw their tokens is not, as the engine draws in a way of its own"
    )
    return [Evaluations(EvaluatedInRun(config, trainer, evaluations, repeats()))]
