"""``rlvr selftest CONFIG``: tests training with this model, data and verifier.

Four short runs in a scratch folder: with a learning rate of 0 nothing may change; a resumed run
must equal an uninterrupted one; an update must increase rewarded log-probs; ten problems must be
learnt.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import GroupsScored, Problem, RlvrError, RunError
from rlvr_core.api.services import (
    Host,
    RunFolder,
    RunObserver,
    load_host,
    model_path,
    prepare,
    quiet_libraries,
    resolve_file,
    start,
)
from rlvr_core.builtin.doctor.direction import Direction, measure_direction, trained_tensors
from rlvr_core.builtin.doctor.examination import LENIENT, Drive, nothing, scratch_folder
from rlvr_core.builtin.doctor.live import params_of, sampled
from rlvr_core.builtin.doctor.report import Answer, Report, share
from rlvr_core.builtin.doctor.resumed import compare_runs, cut_back
from rlvr_core.builtin.doctor.subject import Subject

if TYPE_CHECKING:
    from rlvr_core.api import Group
    from rlvr_core.api.services import Prepared, Session

TEN = 10
DRIFT_STEPS = 3
RESUME_STEPS = 4
OVERFIT_STEPS = 40
FIRST = 2_000_000
QUESTIONS = {
    "selftest/lr0": "With a learning rate of 0, does nothing drift?",
    "selftest/direction": "Does an update go where the rewards point?",
    "selftest/overfit": "Can ten problems be learnt?",
    "selftest/resume": "Does a resumed run equal one without a stop?",
}


class Watcher(RunObserver):
    """Keeps the groups of the newest step."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.groups: tuple[Group, ...] = ()

    def groups_scored(self, event: GroupsScored) -> None:
        """Keep the groups."""
        self.groups = event.groups

    def close(self) -> None:
        """Do nothing: there is nothing to restore."""


@dataclass
class SelfTest:
    """The tests of one configuration.

    Attributes:
        path: The YAML file.
        overrides: ``KEY=VALUE`` options on top.
        host: The loaded plugins.
        steps: Maximum steps of the overfitting run.
        say: Called with progress messages.
    """

    path: Path
    overrides: Sequence[str]
    host: Host
    steps: int = OVERFIT_STEPS
    say: Callable[[str], None] = nothing
    report: Report = field(default_factory=Report)
    chosen: list[str] = field(default_factory=list)

    def run(self) -> Report:
        """Run all tests; each adds a finding, and an error of a test is its finding."""
        for id_, test in (
            ("selftest/lr0", self.drift),
            ("selftest/direction", self.learning),
            ("selftest/resume", self.resume),
        ):
            self.say(QUESTIONS[id_])
            try:
                test()
            except RlvrError as error:
                self.report.refusal(id_, QUESTIONS[id_], error)
        return self.report

    def add(self, id_: str, answer: Answer) -> None:
        """Add the finding of a test."""
        self.report.add(id_, QUESTIONS[id_], answer)

    def session(
        self,
        options: Sequence[str],
        drive: Drive,
        *,
        folder: str,
        change: Callable[[Prepared], Prepared] | None = None,
        watcher: Watcher | None = None,
        lr: float | None = None,
        resumed: RunFolder | None = None,
    ) -> RunFolder:
        """Run the configuration with changes, in a scratch folder."""
        options = [*self.overrides, *LENIENT, f"run.dir={folder}", *options]
        resolved = resolve_file(self.path, options, self.host)
        if lr is not None:  # a configured rate of 0 would be refused
            train = resolved.config.train.model_copy(update={"lr": lr})
            resolved = replace(resolved, config=resolved.config.model_copy(update={"train": train}))
        locate = partial(model_path, resolved.config.model.path, self.host)
        with prepare(resolved, locate) as prepared:
            prepared = change(prepared) if change else prepared
            watcher = watcher or Watcher(self.say)
            run_folder = start(prepared, watcher, folder=resumed, command=["selftest"], drive=drive)
        # managed machines may put run folders elsewhere
        if not run_folder.path.is_relative_to(folder):
            shutil.rmtree(run_folder.path, ignore_errors=True)
        return run_folder

    # -- the tests ---------------------------------------------------------------------------------

    def drift(self) -> None:
        """Test that with a learning rate of 0 no weight and no log-prob changes."""

        def change(prepared: Prepared) -> Prepared:
            self._subject = Subject(prepared, prepared.config)
            return prepared

        def drive(session: Session, _: Any) -> None:
            import torch

            groups = self._choose(session)
            before = {name: t.detach().clone() for name, t in trained_tensors(session)}
            old_N, _engine = session.trainer.logprobs(groups)
            with session.rollouts.running(session.step, session.version):
                for _ in range(DRIFT_STEPS):
                    session.one_step()
                    session.rollouts.resume()
                session.rollouts.pause()
            new_N, _engine = session.trainer.logprobs(groups)
            changed = [n for n, t in trained_tensors(session) if not torch.equal(before[n], t)]
            drift = float((new_N - old_N).abs().max()) if old_N.numel() else 0.0
            again = sampled(
                session, [g.problem for g in groups[:4]], 2, params_of(self._subject), FIRST
            )
            ours_N, theirs_N = session.trainer.logprobs(again)
            apart = float((ours_N - theirs_N).abs().mean()) if ours_N.numel() else 0.0
            value = (
                f"{session.version} updates in {session.step} steps: {len(changed)} of "
                f"{len(before)} tensors changed; log-probs moved by {drift:.2g} nats, engine and "
                f"trainer {apart:.2g} apart"
            )
            level = "fail" if changed or drift > 1e-3 else "ok" if session.version else "note"
            self.add(
                "selftest/lr0",
                Answer(
                    level,  # type: ignore[arg-type]
                    value,
                    "weight decay, a buffer or a hook changes weights: see which tensors, such as "
                    + ", ".join(changed[:3])
                    if level == "fail"
                    else "",
                ),
            )

        with scratch_folder() as folder:
            steps = [f"train.steps={DRIFT_STEPS + 1}"]
            self.session(steps, drive, folder=folder, change=change, lr=0.0)

    def _choose(self, session: Session) -> list[Group]:
        """Sample, and choose problems with a pass rate between 0 and 1."""
        problems = self._subject.spread(48)
        groups = sampled(session, problems, 8, params_of(self._subject), FIRST + 1000)

        def spread(group: Group) -> float:
            rewards = [m.reward for m in group.members if m.reward is not None]
            return max(rewards) - min(rewards) if rewards else 0.0

        by_use = sorted(groups, key=spread, reverse=True)
        self.chosen = [group.problem.id for group in by_use if spread(group) > 0][:TEN]
        return groups

    def learning(self) -> None:
        """Test the direction of the first update, and that ten problems are learnt."""
        if not self.chosen:
            nothing_to_learn = Answer(
                "fail",
                "no sampled group had rewards that differ: there is nothing to learn from",
                "rlvr doctor CONFIG says why",
            )
            self.add("selftest/direction", nothing_to_learn)
            self.add("selftest/overfit", nothing_to_learn)
            return
        watcher = Watcher(self.say)

        def drive(session: Session, _: Any) -> None:
            rates: list[tuple[int, int]] = []
            direction: Direction | None = None
            with session.rollouts.running(session.step, session.version):
                for _ in range(self.steps):
                    if direction is None:
                        direction = measure_direction(session, lambda: watcher.groups)
                    else:
                        session.one_step()
                    outcomes = [bool(m.passed) for g in watcher.groups for m in g.members]
                    rates.append((sum(outcomes), len(outcomes)))
                    session.rollouts.resume()
                    if sum(k for k, _ in rates[-3:]) > 0.98 * sum(n for _, n in rates[-3:]):
                        break
                session.rollouts.pause()
            if direction is not None:
                self.add("selftest/direction", direction.answer())
            self.add("selftest/overfit", learnt(rates, session.config.train.lr))

        options = (
            f"train.steps={self.steps + 1}",
            f"train.prompts_per_step={len(self.chosen)}",
            "train.mini_batches=1",
            "train.num_iterations=1",
            "train.max_staleness=0",
            "train.in_flight=drain",
            "sampling.n=8",
            "sampler={use: core/shuffle, with: {refill: 0}}",
        )
        with scratch_folder() as folder:
            self.session(options, drive, folder=folder, change=self._only_chosen, watcher=watcher)

    def _only_chosen(self, prepared: Prepared) -> Prepared:
        chosen = set(self.chosen)

        def chosen_only(problems: Sequence[Problem]) -> tuple[Problem, ...]:
            return tuple(one for one in problems if one.id in chosen)

        sources = [
            replace(one, problems=chosen_only(one.problems), order=None, count=None, weight=None)
            for one in prepared.sources
            if chosen_only(one.problems)
        ]
        config = prepared.config
        sampler = prepared.resolved.make(("sampler",))
        sampler.start(
            sources,
            n=config.sampling.n,
            prompts_per_step=config.train.prompts_per_step,
            seed=config.run.seed,
        )
        return replace(prepared, sources=sources, sampler=sampler)

    def resume(self) -> None:
        """Test that a run stopped in the middle and resumed ends like an uninterrupted one."""
        options = (
            f"train.steps={RESUME_STEPS}",
            f"checkpoint.every={RESUME_STEPS // 2}",
            "checkpoint.keep=4",
        )
        with scratch_folder() as folder:
            whole = self.session(options, take_all_steps, folder=folder)
            copy = Path(folder) / "stopped"
            shutil.copytree(whole.path, copy, symlinks=True)
            cut_back(copy, RESUME_STEPS // 2)
            stopped = RunFolder.open(copy)
            self.session(options, take_all_steps, folder=folder, resumed=stopped)
            self.add("selftest/resume", compare_runs(whole, stopped, RESUME_STEPS))


def take_all_steps(session: Session, config: Any) -> None:
    """Take all steps like a run."""
    session.run(config)


def learnt(rates: Sequence[tuple[int, int]], lr: float) -> Answer:
    """Judge whether the pass rate rose from the first to the last three steps."""
    (first, n_first), (last, n_last) = (
        tuple(map(sum, zip(*some, strict=True))) for some in (rates[:3], rates[-3:])
    )
    value = (
        f"{share(first, n_first)} passed in the first steps, {share(last, n_last)} in the last of "
        f"{len(rates)}"
    )
    pooled = (first + last) / max(n_first + n_last, 1)
    error = (pooled * (1 - pooled) * (1 / max(n_first, 1) + 1 / max(n_last, 1))) ** 0.5
    z = (last / max(n_last, 1) - first / max(n_first, 1)) / error if error else 0.0
    data = {"rates": [list(one) for one in rates], "z": z}
    if z > 3 or last == n_last > 0:
        return Answer("ok", value, data=data)
    if z < -3:
        return Answer(
            "fail",
            f"{value}: it unlearns",
            "the sign of reward or advantage, or a learning rate that is far too high",
            data=data,
        )
    return Answer(
        "warn",
        f"{value}: no clear rise at lr {lr:g}",
        f"raise train.lr from {lr:g}, or take more steps (--steps)",
        data=data,
    )


def selftest(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    steps: int = OVERFIT_STEPS,
    say: Callable[[str], None] = nothing,
) -> Report:
    """Test a configuration; nothing is left in its run folder.

    Args:
        path: The YAML file.
        overrides: ``KEY=VALUE`` options on top.
        steps: Most steps of the overfitting run.
        say: Called with what is being done.

    Raises:
        ConfigError: If the configuration is refused; ``rlvr doctor`` names everything.
    """
    quiet_libraries()
    host = load_host()
    resolve_file(path, overrides, host)
    if steps < 4:
        raise RunError("overfitting takes at least four steps", where="--steps")
    return SelfTest(path, overrides, host, steps, say).run()
