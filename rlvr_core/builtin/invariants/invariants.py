"""Runs the invariants of a run: a guard, which also observes the steps of the trainer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rlvr_core.api import EngineTraits, StepObserver, traits_of
from rlvr_core.api.services import RunObserver
from rlvr_core.builtin.invariants.advantages import Advantages
from rlvr_core.builtin.invariants.calibration import Calibration
from rlvr_core.builtin.invariants.check import PRINTED, Invariant, Seen, StepView, Trainer
from rlvr_core.builtin.invariants.completions import Completions
from rlvr_core.builtin.invariants.data_files import DataFiles
from rlvr_core.builtin.invariants.deliveries import is_ours
from rlvr_core.builtin.invariants.draws import Draws
from rlvr_core.builtin.invariants.earlier_policy import EarlierPolicy
from rlvr_core.builtin.invariants.evaluated_in_run import EvaluatedInRun, evaluations_of
from rlvr_core.builtin.invariants.kl import Kl
from rlvr_core.builtin.invariants.loss import LossValues
from rlvr_core.builtin.invariants.model_files import Begun, ModelFiles
from rlvr_core.builtin.invariants.moments import TokenScores
from rlvr_core.builtin.invariants.optimizer import OptimizerUpdates
from rlvr_core.builtin.invariants.parity import Parity
from rlvr_core.builtin.invariants.prompts import Prompts
from rlvr_core.builtin.invariants.reported import Reported
from rlvr_core.builtin.invariants.resume import Resume
from rlvr_core.builtin.invariants.rewards import Rewards
from rlvr_core.builtin.invariants.seeds import Seeds
from rlvr_core.builtin.invariants.streams import Streams
from rlvr_core.builtin.invariants.sync import Sync
from rlvr_core.builtin.invariants.token_gaps import TokenGaps
from rlvr_core.builtin.invariants.tokens import Tokens
from rlvr_core.builtin.invariants.truncation import Truncation
from rlvr_core.builtin.invariants.updates import Updates

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    from rlvr_core.api import (
        Engine,
        EvalFinished,
        Group,
        GroupsScored,
        Guard,
        Json,
        LossBatch,
        LossComputed,
        RunStarted,
        Sampler,
        Source,
        StepFinished,
        WeightSource,
    )
    from rlvr_core.api.services import Prepared, RunConfig


def invariants_of_run(
    prepared: Prepared, trainer: Trainer, engine: Engine, say: Callable[[str], None]
) -> Invariants:
    """The service ``core/invariants``: make those that the configuration leaves on.

    Args:
        prepared: The run.
        trainer: The policy's trainer.
        engine: What generates, without what plays conversations on it.
        say: Tells the user.
    """
    config = prepared.config
    files = ModelFiles(prepared.model_path, config.model)
    custody = custody_of(prepared, files, say)
    if config.guards.resume:
        custody.append(Begun(files, trainer, config.model.lora))
    return invariants_of(
        config,
        trainer,
        engine,
        prepared.sampler,
        prepared.sources,
        custody,
        files,
        prepared.evaluations,
        prepared.resolved.host.service("core/seeds"),
        say,
    )


def custody_of(
    prepared: Prepared, files: ModelFiles, say: Callable[[str], None]
) -> list[Invariant]:
    """Make the invariants of prompts and completions, which know the model's files and the data."""
    config = prepared.config
    checks: list[Invariant] = []
    if config.guards.draws:
        checks.append(DataFiles(files, prepared))
    if config.guards.prompts:
        checks.append(Prompts(files, prepared))
    if config.guards.completions:
        longest = max(config.sampling.max_tokens, prepared.evaluations.max_tokens)
        room = prepared.longest_prompt + longest
        seeds = _seeds_of(config, prepared.sampler)
        evaluations = prepared.evaluations
        checks.append(
            Completions(config, files, prepared.conversations, seeds, room, say, evaluations)
        )
    return checks


def invariants_of(
    config: RunConfig,
    trainer: Trainer,
    engine: Engine,
    sampler: Sampler | None = None,
    sources: Sequence[Source] = (),
    custody: Sequence[Invariant] = (),
    files: ModelFiles | None = None,
    evaluations: Any = None,
    repeats: Callable[[], Guard] | None = None,
    say: Callable[[str], None] = PRINTED,
) -> Invariants:
    """Make the invariants that the configuration leaves on; ``custody`` are those of the data."""
    guards, sampling = config.guards, config.sampling
    scores = TokenScores(trainer, top_k=sampling.top_k, top_p=sampling.top_p)
    # an earlier one explains a later one
    rules = [config.eval.model_dump(mode="json"), config.checkpoint.model_dump(mode="json")]
    checks: list[Invariant] = []
    if guards.resume:
        checks.append(Resume(trainer, sampler, evaluations, rules, say=say))
    checks += custody
    if config.train.max_staleness > 0:
        checks.append(_earlier_policy(config, trainer, engine, sampler, evaluations))
    if guards.parity is not False:
        checks.append(Parity(config, trainer, scores))
        if guards.parity.record:
            checks.append(TokenGaps(main=trainer.ranks.main))
    if guards.rewards:
        checks.append(Rewards(config))
    if guards.draws and sampler is not None:
        checks.append(Draws(config, sampler, sources, main=trainer.ranks.main, say=say))
    if guards.tokens:
        checks.append(Tokens(config, sampler))
    if guards.advantages:
        checks.append(Advantages(config, sources))
    if guards.kl:
        checks.append(Kl(config))
    if guards.loss:
        checks.append(LossValues(config))
    traits = traits_of(engine, EngineTraits)
    seeds = _seeds_of(config, sampler)
    inverts = guards.seeds and traits.seeded and traits.inverts_stream
    if inverts and seeds is not None:
        checks.append(
            Streams(config, trainer, seeds, scores, EvaluatedInRun(config, trainer, evaluations))
        )
    elif evaluations is not None and config.eval.tasks:
        checks += evaluations_of(config, trainer, evaluations, traits, repeats, say)
    if guards.calibration and traits.seeded:
        checks.append(Calibration(scores, _truncation(config, trainer)))
    else:
        scores.classes = None  # nobody counts them
    if guards.updates:
        checks.append(Updates(config))
    if guards.optimizer:
        checks.append(OptimizerUpdates(config))
    if guards.sync:
        checks.append(Sync(config, engine, trainer))
    if guards.reported:
        checks.append(Reported(config, files, sampler, evaluations, main=trainer.ranks.main))
    return Invariants(trainer, checks, scores)


def _earlier_policy(
    config: RunConfig, trainer: Trainer, engine: Engine, sampler: Sampler | None, evaluations: Any
) -> EarlierPolicy:
    """Make what looks at completions of an engine that samples beside training."""
    guards, sampling = config.guards, config.sampling
    scores = TokenScores(trainer, top_k=sampling.top_k, top_p=sampling.top_p)
    checks: list[Invariant] = []
    if guards.parity is not False:
        checks.append(Parity(config, trainer, scores, earlier=True))
    traits, seeds = traits_of(engine, EngineTraits), _seeds_of(config, sampler)
    if guards.seeds and traits.seeded and traits.inverts_stream and seeds is not None:
        evaluated = EvaluatedInRun(config, trainer, evaluations)
        checks.append(Streams(config, trainer, seeds, scores, evaluated))
    if guards.calibration and traits.seeded:
        checks.append(Calibration(scores, _truncation(config, trainer)))
    return EarlierPolicy(trainer, scores, checks)


def _truncation(config: RunConfig, trainer: Trainer) -> Truncation | None:
    sampling = config.sampling
    if sampling.top_k <= 0 and sampling.top_p >= 1:
        return None
    return Truncation(
        sampling.top_k,
        sampling.top_p,
        sampling.temperature,
        parity=config.guards.parity,
        compute=trainer.precision.compute,
    )


def _seeds_of(config: RunConfig, sampler: Sampler | None) -> Seeds | None:
    """Return what follows a sampler's draws; None for one that counts them in its own way."""
    ours = sampler is not None and is_ours(sampler, "draw")
    return Seeds(config, sampler) if ours else None


class Invariants(RunObserver, StepObserver):
    """Passes each step to the invariants, and their errors to the run.

    Args:
        trainer: The policy's trainer.
        checks: The invariants, each before those that its faults also set off.
        scores: Scores of groups that the invariants share.

    Attributes:
        reports: Metrics of all invariants.
    """

    reports = tuple(
        metric
        for one in (
            *(Prompts, Completions, Parity, Rewards, Draws, Tokens, Advantages, Kl, LossValues),
            *(Streams, Calibration, Updates, OptimizerUpdates, Sync),
        )
        for metric in one.reports
    )

    def __init__(self, trainer: Trainer, checks: Sequence[Invariant], scores: TokenScores) -> None:
        self._trainer, self._checks = trainer, {one.id: one for one in checks}
        self._scores = scores
        self._view = StepView(trainer, (), 0, 0)

    # -- as a guard ------------------------------------------------------------------------------

    def run_started(self, event: RunStarted) -> None:
        """See ``Invariant.run_started``."""
        for one in self._checks.values():
            one.run_started(event)

    def on_groups(self, event: GroupsScored) -> None:
        """See ``Invariant.on_groups``."""
        for one in self._checks.values():
            one.on_groups(event)
        self._scores.forget()

    def on_step(self, event: StepFinished) -> None:
        """See ``Invariant.finished``."""
        for one in self._checks.values():
            one.finished(event)

    def eval_finished(self, event: EvalFinished) -> None:
        """See ``Invariant.evaluated``."""
        for one in self._checks.values():
            one.evaluated(event)

    def state_dict(self) -> dict[str, Json]:
        """Return the state of each invariant by id."""
        return {name: one.state_dict() for name, one in self._checks.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of each invariant that has one."""
        for name, one in self._checks.items():
            if name in state:
                one.load_state_dict(state[name])

    # -- as an observer of the trainer's steps ---------------------------------------------------

    def step_begins(self, groups: Sequence[Group], step: int, version: int) -> None:
        """See ``StepObserver``."""
        self._view = StepView(self._trainer, groups, step, version)
        for one in self._checks.values():
            one.begin(self._view)

    def loss_computed(self, event: LossComputed) -> None:
        """Keep a micro-batch's numbers, and the gradient that its backward pass brings."""
        if event.given:
            for one in self._checks.values():
                one.given(self._view, event)
            return
        for one in self._checks.values():
            one.computed(self._view, event)
        losses = [(loss, _plain(batch), output) for loss, batch, output in event.losses]
        seen = Seen(event.micro_batch, event.normalizer, losses)
        first = event.losses[0][1]
        _listen(first.logp_BT, partial(setattr, seen, "gradient_BT"))
        _listen(first.entropy_BT, partial(setattr, seen, "entropy_gradient_BT"))
        for place, (_, batch, _) in enumerate(event.losses):
            keep = partial(seen.student_gradients.__setitem__, place)
            _listen(batch.student_logp_BTK, keep)
        self._view.seen.append(seen)

    def update_begins(self) -> None:
        """Judge an update before it changes anything."""
        view = self._view
        places = {place for one in view.seen for place in one.micro_batch.group_B.tolist()}
        view.first_pass = not places & view.places
        view.places |= places
        mine = {name: one.share(view) for name, one in self._checks.items()}
        shares = self._trainer.ranks.gather(mine)
        for name, one in self._checks.items():
            one.judge(view, [share[name] for share in shares])

    def update_ended(self, grad_norm: float, *, applied: bool) -> None:
        """Judge an update by its effect."""
        for one in self._checks.values():
            one.updated(self._view, grad_norm, applied=applied)
        self._view.update += 1
        self._view.seen, self._view.known_rows = [], None

    def weights_loaded(self, version: int, source: WeightSource) -> None:
        """See ``Invariant.weights_loaded``."""
        for one in self._checks.values():
            one.weights_loaded(self._view.step, version, source)

    def checkpoint_written(self, folder: Path) -> None:
        """See ``Invariant.checkpoint_written``."""
        for one in self._checks.values():
            one.checkpoint_written(folder)

    def step_ends(self) -> Mapping[str, float]:
        """Return the metrics of all invariants."""
        found: dict[str, float] = {}
        for one in self._checks.values():
            found |= one.end(self._view)
        told = {name: value for name, value in found.items() if math.isfinite(value)}
        self._view.told = told
        return told


def _plain(batch: LossBatch) -> LossBatch:
    """Return what a loss was given, without graphs."""
    others = ("entropy_BT", "student_logp_BTK")
    known = {name: one for name in others if (one := getattr(batch, name)) is not None}
    return replace(
        batch,
        logp_BT=batch.logp_BT.detach(),
        **{name: one.detach() for name, one in known.items()},
    )


def _listen(tensor: Tensor | None, keep: Callable[[Tensor], None]) -> None:
    """Pass on the gradient that arrives at a tensor in the backward pass, if one can."""
    if tensor is not None and tensor.requires_grad:
        tensor.register_hook(lambda gradient: keep(gradient.detach()))  # type: ignore[no-untyped-call]
