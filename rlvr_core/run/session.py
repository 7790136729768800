"""The training loop: steps, weight syncs, records, evaluations, checkpoints, in reading order."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rlvr_core.api import (
    EngineTraits,
    EvalFinished,
    GroupsScored,
    RunError,
    RunFinished,
    RunStarted,
    StepFinished,
    traits_of,
)
from rlvr_core.api.rollouts import Ages, Rollouts
from rlvr_core.parallel.ranks import Ranks
from rlvr_core.record.metrics import reported
from rlvr_core.run.checkpointing import Writing, save, settle
from rlvr_core.run.metrics import details, fates, rollout_metrics
from rlvr_core.step.checkpoint import rehearse

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr_core.api import Engine, Json, Reporter, ReportsMetrics, WeightSource
    from rlvr_core.api.components import Stateful
    from rlvr_core.api.rollouts import RolloutSource
    from rlvr_core.config.model import RunConfig
    from rlvr_core.eval.in_run import RunEvaluations
    from rlvr_core.record.checkpoints import CheckpointStore
    from rlvr_core.record.ledger import Ledger
    from rlvr_core.record.recorder import NullRecorder, Recorder
    from rlvr_core.record.rundir import RunFolder
    from rlvr_core.rollout.source import SourceParts
    from rlvr_core.run.ending import Stop
    from rlvr_core.run.events import Guards, RunEvents
    from rlvr_core.step.step import PolicyTrainer, StepReport
    from rlvr_core.verify.reward import RewardPlan


@dataclass(slots=True)
class Session:
    """The state of a run in progress, and the training loop.

    ``step`` counts passes of the loop, ``version`` counts applied optimizer updates: a step whose
    groups were all dropped, or whose gradient was non-finite, does not change the version; a step
    of several mini-batches or iterations raises it by several.

    In a run of several processes each process has a session, and all take the same steps over the
    same groups; only in the main process does ``events`` have all subscribers.
    """

    config: RunConfig
    folder: RunFolder
    recorder: Recorder | NullRecorder
    ledger: Ledger
    checkpoints: CheckpointStore
    events: RunEvents
    parts: SourceParts
    rollouts: RolloutSource
    source: WeightSource
    trainer: PolicyTrainer
    tokenizer: PreTrainedTokenizerBase
    evaluations: RunEvaluations
    guards: Guards
    reports: ReportsMetrics | None
    reporters: Sequence[Reporter]
    stop: Stop
    identity: Json = None
    step: int = 0
    version: int = 0
    skipped: int = 0
    resumed: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    writing: Writing | None = None

    @property
    def stateful(self) -> Mapping[str, Stateful]:
        """The parts whose state a checkpoint holds, by its name there."""
        return {
            "sampler": self.parts.sampler,
            "rollouts": self.rollouts,
            "errors": self.parts.generator.judge.errors,
            "ledger": self.ledger,
            "guards": self.guards,
        }

    @property
    def stop_reason(self) -> str | None:
        """Why the run stops before its last step; None if it should continue."""
        return None if self.step >= self.config.train.steps else self.evaluations.stop_reason

    @property
    def engine(self) -> Engine:
        """The engine of this process."""
        return self.parts.generator.engine

    @property
    def plan(self) -> RewardPlan:
        """The reward plan, which turns verdicts into rewards."""
        return self.parts.generator.judge.plan

    @property
    def ranks(self) -> Ranks:
        """The processes of the run."""
        return self.trainer.ranks

    def run(self, config: Mapping[str, Json]) -> None:
        """Take all remaining steps, unless evaluations or a signal stop the run early.

        Args:
            config: The whole configuration as plain data, for observers.
        """
        self.events.run_started(RunStarted(self.folder.path, config, self.step, self.resumed))
        # from here on a signal waits for the end of a step, in all processes or in none
        self.ranks.gather(None)  # a barrier
        self.stop.stepping = True
        written = (self.trainer.model, self.tokenizer, self.trainer.precision.compute)
        self.ranks.on_main(lambda: rehearse(*written))
        if self.step == 0:
            if traits_of(self.engine, EngineTraits).separate:
                # a server may hold any weights; after this sync it holds the run's
                self.engine.load_weights(self.version, self.source)
            self._evaluate()
        with self.rollouts.running(self.step, self.version):
            while self.step < self.config.train.steps and self.stop_reason is None:
                self.one_step()
                improved = False
                if self._due(self.config.eval.every):
                    self._pause()
                    improved = self._evaluate()
                interrupted = self._end_of_step()
                due = improved or self.stop_reason or self._due(self.config.checkpoint.every)
                if due or interrupted:
                    self._pause()
                    save(self, best=improved)
                if interrupted:
                    settle(self)
                    raise KeyboardInterrupt
                self.rollouts.resume()
            settle(self)

    def one_step(self) -> None:
        """Take one step: draw, generate, verify, train, sync, record."""
        self.seconds = {}
        sampled_under = self.version
        rollouts, metrics = Rollouts(), dict[str, float]()
        if self.trainer.objective.on_completions:
            with self.phase("rollout"):
                rollouts = self.rollouts.take(self.step, self.version)
            metrics = rollout_metrics(rollouts)
            metrics["groups/replayed"] = len(rollouts.replayed)
        self.rollouts.before_training()
        if self.trainer.objective.on_completions:
            with self.phase("guards"):
                groups = tuple(sampled.group for sampled in rollouts.all)
                self.events.groups_scored(GroupsScored(self.step, self.version, groups))

        with self.phase("train"):
            report = self.trainer.update(rollouts.trained, self.step, self.version)
        ages = self._account(rollouts, report)
        metrics |= report.metrics
        if self.trainer.reference is not None:
            metrics |= self.trainer.reference.metrics(sampled_under)
        metrics |= self._applied(report)
        self.version += report.applied
        metrics |= self.rollouts.after_training(
            rollouts,
            report.thrown_away,
            updated=report.applied > 0,
            skipped=bool(metrics["step_skipped"]),
            version=self.version,
        )
        with self.phase("sync"):
            self.rollouts.sync(
                self.step + 1, self.version, self._load_weights if report.applied else None
            )
        metrics |= self._engine_metrics()
        if self.trainer.objective.on_completions:
            metrics |= self.rollouts.metrics(ages)
        for reporter in self.reporters:
            metrics |= reported(reporter, reporter.report())
        self._record(metrics, report, sampled_under)

    def finish(self, outcome: str, reason: str | None) -> None:
        """Notify the observers of the end of the run, and the user if nothing was learned."""
        if outcome in ("finished", "stopped") and self.version == 0:
            self.events.message(
                "no update was applied, so the model is the one the run began with: no group had "
                "rewards that differ, or every update was skipped"
            )
        self.events.run_finished(RunFinished(self.folder.path, outcome, reason or ""))

    @contextlib.contextmanager
    def phase(self, label: str) -> Iterator[None]:
        """Report the current phase to the observers, and time it."""
        self.events.phase(label)
        begun = time.perf_counter()
        yield
        spent = time.perf_counter() - begun
        self.seconds[label] = self.seconds.get(label, 0.0) + spent

    # -- parts of a step, in the order they are used ---------------------------------------------

    def _end_of_step(self) -> bool:
        """Exchange what all processes have to know; return whether any of them should stop."""
        written = self.writing is not None and self.writing.written.done()
        parts = self.ranks.gather((self.stop.requested, written))
        if parts[0][1]:  # process 0 knows when all is written
            settle(self)
        return any(requested for requested, _ in parts)

    def _load_weights(self) -> None:
        self.engine.load_weights(self.version, self.source)
        self.trainer.observer.weights_loaded(self.version, self.source)

    def _engine_metrics(self) -> dict[str, float]:
        """Return the metrics that the engines of all processes report, summed."""
        if self.reports is None:
            return {}
        total: dict[str, float] = {}
        for rank, (events, numbers) in enumerate(
            self.ranks.gather((self.reports.take_events(), self.reports.metrics()))
        ):
            for line in events:
                self.events.message(f"process {rank}: {line}" if rank else line)
            for name, value in reported(self.reports, numbers).items():
                total[name] = total.get(name, 0.0) + value
        return total

    def _pause(self) -> None:
        """Pause background generation until the end of this pass of the loop."""
        self.rollouts.pause()
        self.ledger.draw(self.rollouts.drawn())

    def _evaluate(self) -> bool:
        """Evaluate the current weights; return whether they are the best so far (``keep_best``)."""
        step, version = self.step, self.version
        for evaluation in self.evaluations.run(self.parts.shared, step, version, self.phase):
            self.parts.check()
            self.recorder.evaluation(
                step,
                version,
                evaluation.name,
                evaluation.temperature,
                evaluation.report,
                evaluation.sampled,
            )
            self.events.eval_finished(EvalFinished(step, evaluation.name, evaluation.report))
        return self.evaluations.improved

    def _due(self, every: int) -> bool:
        return self.step == self.config.train.steps or (every > 0 and self.step % every == 0)

    def _account(self, rollouts: Rollouts, report: StepReport) -> Ages:
        """Settle every drawn completion in the ledger and record its rollout.

        Returns:
            Number of completions by fate and age (updates since they were sampled).
        """
        ages: Ages = Counter()
        self.ledger.draw(self.rollouts.drawn())
        # replayed groups come after the kept ones, and were settled when they were drawn
        kept = iter(report.advantages)
        advantages = {sampled.draw.index: next(kept) for sampled in rollouts.kept}
        flags = zip(rollouts.kept, report.thrown_away, strict=False)
        thrown_away = {sampled.draw.index for sampled, lost in flags if lost}
        for sampled in rollouts.all:
            ends = fates(sampled, mask_truncated=self.config.train.mask_truncated)
            if sampled.drop is None and sampled.draw.index in thrown_away:
                ends = ["error" if fate == "trained" else fate for fate in ends]
            for fate, detail in zip(ends, details(sampled), strict=True):
                ages[fate, self.version - sampled.group.version] += 1
                self.ledger.settle(fate, 1, detail)
            none: list[float | None] = [None] * len(ends)
            self.recorder.rollout(
                self.step,
                self.version,
                sampled.group,
                sampled.prompt_text,
                ends,
                advantages.get(sampled.draw.index, none) if sampled.drop is None else none,
                sampled.draw.index,
            )
        again = report.thrown_away[len(rollouts.kept) :]
        for sampled, lost in zip(rollouts.replayed, again, strict=False):
            ends = fates(sampled, mask_truncated=self.config.train.mask_truncated)
            if not lost:
                ages["reread", self.version - sampled.group.version] += ends.count("trained")
        return ages

    def _applied(self, report: StepReport) -> dict[str, float]:
        """Count consecutive steps without an update; raise if there are too many."""
        if report.applied:
            self.skipped = 0
        elif any(not update.calibrating for update in report.updates):
            self.skipped += 1
        if self.skipped > self.config.train.max_nonfinite_steps:
            raise RunError(
                f"the gradient was not finite in {self.skipped} steps in a row",
                where=f"step {self.step + 1}",
                remedy="lower train.lr or use model.dtype: bfloat16; the last good checkpoint is "
                "kept",
            )
        return {
            "step_skipped": float(bool(report.updates) and not report.applied),
            **self.plan.moving_weights(self.step),
            "lr": self.trainer.optimizer.learning_rate(self.step),
        }

    def _record(self, metrics: dict[str, float], report: StepReport, version: int) -> None:
        self.ledger.draw(self.rollouts.drawn())
        metrics |= self.ledger.step_line()
        self.recorder.metrics(self.step, version, metrics)
        seconds = {**self.seconds, **{f"train.{k}": v for k, v in report.seconds.items()}}
        rate = metrics.get("tokens/completion", 0.0) / max(sum(self.seconds.values()), 1e-9)
        self.recorder.timing(self.step, version, seconds, {"tokens_per_second": rate})
        timing = {**seconds, "tokens_per_second": rate}
        self.events.step_finished(StepFinished(self.step, version, metrics, timing))
        self.step += 1
