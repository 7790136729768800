"""Nineteenth set: like mutants that no guard had stopped, of figures, bonuses and resumptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaos.registry import TRANSFORMERS, Patch, fault

POLICY = "rlvr_core.algorithm.policy"
ENTROPY = "rlvr_core.algorithm.entropy:EntropyController"
RESUMPTION = "rlvr_core.builtin.resumption.resumption:Resumption"
REPORTED = ("metric", "reported", "report", "record")


def nineteenth(
    cls: str, *more_words: str, **options: Any
) -> Callable[[Callable[[Patch], None]], None]:
    """Declare a fault of the nineteenth set, like ``fault``."""
    return fault(cls, *more_words, set=19, **options)


def _nothing(original: Any) -> Any:
    return lambda *given, **more: None


# -- resume --------------------------------------------------------------------------------------


@nineteenth("resume", shape="resumed", resume=True)
def resume_from_the_oldest_checkpoint(patch: Patch) -> None:
    """Checkpoints are looked through in the order of their names, and the first whole one taken."""

    def make(original: Any) -> Any:
        return lambda store, say: min(store.complete(), default=None)

    patch.wrap("rlvr_core.record.checkpoints:CheckpointStore.newest", make)


@nineteenth("resume", *REPORTED, shape="resumed", resume=True)
def resumption_without_a_note_in_the_record(patch: Patch) -> None:
    """The record of the run says nothing of a second part, nor of who started it and where."""
    patch.wrap(f"{RESUMPTION}._record", _nothing)


@nineteenth("resume", *REPORTED, "config", shape="resumed", resume=True)
def lengthened_run_keeps_its_old_config(patch: Patch) -> None:
    """More steps are asked for at a resumption, and the recorded configuration has the old ones."""
    patch.wrap("rlvr_core.record.rundir:RunFolder.configure", _nothing)


# -- advantages ----------------------------------------------------------------------------------


@nineteenth("advantages", "estimator", backends=TRANSFORMERS)
def loss_on_rewards_is_taken_for_one_without(patch: Patch) -> None:
    """The loss no longer names an estimator: its rows have no advantages, and the KL alone acts."""
    patch.set(f"{POLICY}:PolicyLoss.advantage", None)


@nineteenth("advantages", "estimator", backends=TRANSFORMERS)
def default_estimator_is_that_of_another_loss(patch: Patch) -> None:
    """GRPO takes the estimator of Dr. GRPO, which divides by no deviation, unless one is named."""
    patch.set(f"{POLICY}:PolicyLoss.advantage", "center")


# -- loss ----------------------------------------------------------------------------------------


@nineteenth("loss", "entropy", "bonus", shape="entropy steered")
def bonus_of_entropy_before_any_is_known(patch: Patch) -> None:
    """The first update has the whole bonus, though nothing says that the entropy is low."""

    def bonus(controller: Any) -> float:
        low = controller.entropy is None or controller.entropy <= controller.control.target
        return float(controller.coefficient) if low else 0.0

    patch.set(f"{ENTROPY}.bonus", property(bonus))


@nineteenth("loss", *REPORTED, "clip", shape="two iterations")
def share_that_is_clipped_above_is_not_counted(patch: Patch) -> None:
    """What was clipped above is missing on the step's line, and looks like a loss without one."""

    def make(original: Any) -> Any:
        def mean(tally: Any, name: str, *given: Any) -> None:
            if name != "clip_fraction/high":
                original(tally, name, *given)

        return mean

    patch.wrap("rlvr_core.algorithm.reduce:Tally.mean", make)


# -- data ----------------------------------------------------------------------------------------


@nineteenth("data", *REPORTED, "groups/", shape="cold")
def dropped_groups_are_reported_under_one_reason(patch: Patch) -> None:
    """Whether dropped groups were too easy or too hard is no longer told apart in the records."""
    patch.wrap("rlvr_core.run.metrics:_why", lambda original: lambda drop: drop.fate)
