"""``rlvr selftest CONFIG``: tests training with this model, data and verifier.

Short runs in a scratch folder: with a learning rate of 0 nothing may change; an update must raise
the log-probs of rewarded completions; ten problems must be learnt; a resumed run must equal an
uninterrupted one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from rlvr_core.api import Finding, GroupsScored, Json, Problem, RlvrError
from rlvr_core.api.components import RunObserver
from rlvr_core.run.build import Look, build, go_on
from rlvr_core.run.session import Session
from rlvr_core.toolkit import (
    LATEST,
    Host,
    RunFolder,
    load_host,
    model_path,
    quiet_libraries,
    resolve_file,
)
from rlvr_doctor.examination.examination import LENIENT, nothing, scratch_folder
from rlvr_doctor.examination.live import params_of, sampled
from rlvr_doctor.examination.report import Report, refused, share
from rlvr_doctor.examination.subject import Subject

if TYPE_CHECKING:
    import torch

    from rlvr_core.api import Group
    from rlvr_core.run.inputs import Inputs

TEN = 10
DRIFT_STEPS = 3
RESUME_STEPS = 4
OVERFIT_STEPS = 40
MOST_ROWS = 64
"""Maximum completions to judge an update by."""
SMALL = 1e-3
"""Maximum difference of weights by rounding, relative to their change after the stop."""
FIRST = 2_000_000
"""Index of the first draw, beyond those of the steps."""


class Watcher(RunObserver):
    """Keeps the groups of the newest step."""

    def __init__(self) -> None:
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
        report: The findings.
        chosen: Problems whose completions had different rewards.
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
        for id_, question, test in (
            ("selftest/lr0", "with a learning rate of 0, does nothing drift?", self.drift),
            ("selftest/overfit", "can ten problems be learnt?", self.learning),
            ("selftest/resume", "does a resumed run equal one without a stop?", self.resume),
        ):
            self.say(question)
            try:
                test()
            except RlvrError as error:
                self.report.findings += refused(id_, error)
        return self.report

    def session(
        self,
        options: Sequence[str],
        drive: Callable[[Session, Mapping[str, Json]], None],
        *,
        folder: str,
        look: Look = go_on,
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
        with build(
            resolved,
            locate,
            watcher or Watcher(),
            folder=resumed,
            command=["selftest"],
            look=look,
        ) as session:
            assert session is not None, "the run was not to be stopped"
            drive(session, resolved.dump())
        run_folder = session.folder
        # managed machines may put run folders elsewhere
        if not run_folder.path.is_relative_to(folder):
            shutil.rmtree(run_folder.path, ignore_errors=True)
        return run_folder

    def drift(self) -> None:
        """Test that with a learning rate of 0 no weight changes."""

        def look(inputs: Inputs) -> Inputs:
            self._subject = Subject(inputs, inputs.config)
            return inputs

        def drive(session: Session, _: object) -> None:
            import torch

            self._choose(session)
            before = _weights(session)
            with session.rollouts.running(session.step, session.version):
                for _ in range(DRIFT_STEPS):
                    session.one_step()
                    session.rollouts.resume()
                session.rollouts.pause()
            changed = [n for n, t in _trained(session) if not torch.equal(before[n], t)]
            text = (
                f"{session.version} updates in {session.step} steps: {len(changed)} of "
                f"{len(before)} tensors changed"
            )
            remedy = f"weight decay, a buffer or a hook changes weights: {', '.join(changed[:3])}"
            self.report.findings.append(
                Finding("selftest/lr0", "fail", text, remedy)
                if changed
                else Finding("selftest/lr0", "ok" if session.version else "note", text)
            )

        with scratch_folder() as folder:
            steps = [f"train.steps={DRIFT_STEPS + 1}"]
            self.session(steps, drive, folder=folder, look=look, lr=0.0)

    def _choose(self, session: Session) -> None:
        """Sample, and choose problems with a pass rate between 0 and 1."""
        problems = self._subject.spread(48)
        groups = sampled(session, problems, 8, params_of(self._subject), FIRST)

        def spread(group: Group) -> float:
            rewards = [m.reward for m in group.members if m.reward is not None]
            return max(rewards) - min(rewards) if rewards else 0.0

        by_use = sorted(groups, key=spread, reverse=True)
        self.chosen = [group.problem.id for group in by_use if spread(group) > 0][:TEN]

    def learning(self) -> None:
        """Test the direction of the first update, and that ten problems are learnt."""
        if not self.chosen:
            what = "no sampled group had rewards that differ: there is nothing to learn from"
            finding = Finding("selftest/overfit", "fail", what, "rlvr doctor CONFIG says why")
            self.report.findings.append(finding)
            return
        watcher = Watcher()

        def drive(session: Session, _: object) -> None:
            rates: list[tuple[int, int]] = []
            direction: Finding | None = None
            with session.rollouts.running(session.step, session.version):
                for _ in range(self.steps):
                    if direction is None:
                        direction = measure_direction(session, watcher)
                    else:
                        session.one_step()
                    outcomes = [bool(m.passed) for g in watcher.groups for m in g.members]
                    rates.append((sum(outcomes), len(outcomes)))
                    session.rollouts.resume()
                    if sum(k for k, _ in rates[-3:]) > 0.98 * sum(n for _, n in rates[-3:]):
                        break
                session.rollouts.pause()
            if direction is not None:
                self.report.findings.append(direction)
            self.report.findings.append(learnt(rates, session.config.train.lr))

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
            self.session(options, drive, folder=folder, look=self._only_chosen, watcher=watcher)

    def _only_chosen(self, inputs: Inputs) -> Inputs:
        chosen = set(self.chosen)

        def chosen_only(problems: Sequence[Problem]) -> tuple[Problem, ...]:
            return tuple(problem for problem in problems if problem.id in chosen)

        sources = [
            replace(
                source, problems=chosen_only(source.problems), order=None, count=None, weight=None
            )
            for source in inputs.sources
            if chosen_only(source.problems)
        ]
        config = inputs.config
        sampler = inputs.resolved.make(("sampler",))
        sampler.start(
            sources,
            n=config.sampling.n,
            prompts_per_step=config.train.prompts_per_step,
            seed=config.run.seed,
        )
        return replace(inputs, sampler=sampler)

    def resume(self) -> None:
        """Test that a run stopped in the middle and resumed ends like an uninterrupted one."""
        options = (
            f"train.steps={RESUME_STEPS}",
            f"checkpoint.every={RESUME_STEPS // 2}",
            "checkpoint.keep=4",
        )

        with scratch_folder() as folder:
            whole = self.session(options, Session.run, folder=folder)
            copy = Path(folder) / "stopped"
            shutil.copytree(whole.path, copy, symlinks=True)
            shutil.rmtree(copy / "checkpoints" / f"step{RESUME_STEPS:06d}")
            (copy / "checkpoints" / LATEST).unlink(missing_ok=True)
            stopped = RunFolder.open(copy)
            self.session(options, Session.run, folder=folder, resumed=stopped)
            self.report.findings.append(compare_runs(whole, stopped))


def _trained(session: Session) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield name and tensor of everything that is trained."""
    for name, tensor in session.trainer.model.named_parameters():
        if tensor.requires_grad:
            yield name, tensor


def _weights(session: Session) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in _trained(session)}


def _put(session: Session, weights: dict[str, torch.Tensor]) -> None:
    import torch

    with torch.no_grad():
        for name, tensor in _trained(session):
            tensor.copy_(weights[name])


def measure_direction(session: Session, watcher: Watcher) -> Finding | None:
    """Take one step, and look whether rewarded completions became likelier; None without update.

    The measure is the sum over completions of (reward - mean of the group) times the change of
    their tokens' log-probs.
    """
    before, version = _weights(session), session.version
    session.one_step()
    if session.version == version:
        return None
    after = _weights(session)
    rows: list[tuple[Group, float]] = []
    for group in watcher.groups:
        rewards = [m.reward for m in group.members if m.reward is not None]
        for member in group.members:
            if member.reward is not None and max(rewards) > min(rewards):
                rows.append((replace(group, members=(member,)), member.reward - fmean(rewards)))

    def objective() -> float:
        return sum(
            weight * float(session.trainer.logprobs([group])[0].double().sum())
            for group, weight in rows[:MOST_ROWS]
        )

    new = objective()
    _put(session, before)
    old = objective()
    _put(session, after)
    moved = any(not after[name].equal(before[name]) for name in before)
    text = f"reward-weighted log-probs of {len(rows[:MOST_ROWS])} completions: {new - old:+.3g}"
    if not moved:
        return Finding(
            "selftest/direction",
            "fail",
            "the update moved no trained weight",
            f"raise train.lr from {session.config.train.lr:g}: such an update is lost when it is "
            "added; or the optimizer holds other tensors than the model",
        )
    if new > old:
        return Finding("selftest/direction", "ok", text)
    return Finding(
        "selftest/direction",
        "fail",
        f"{text}: against the rewards",
        "the sign of rewards, advantages or the loss is reversed, or another term outweighs them",
    )


def learnt(rates: Sequence[tuple[int, int]], lr: float) -> Finding:
    """Judge whether the pass rate rose from the first to the last three steps."""
    (first, n_first), (last, n_last) = (
        tuple(map(sum, zip(*some, strict=True))) for some in (rates[:3], rates[-3:])
    )
    text = (
        f"{share(first, n_first)} passed in the first steps, {share(last, n_last)} in the last of "
        f"{len(rates)}"
    )
    pooled = (first + last) / max(n_first + n_last, 1)
    error = (pooled * (1 - pooled) * (1 / max(n_first, 1) + 1 / max(n_last, 1))) ** 0.5
    z = (last / max(n_last, 1) - first / max(n_first, 1)) / error if error else 0.0
    if z > 3 or last == n_last > 0:
        return Finding("selftest/overfit", "ok", text)
    if z < -3:
        remedy = "the sign of reward or advantage, or a learning rate that is far too high"
        return Finding("selftest/overfit", "fail", f"{text}: it unlearns", remedy)
    remedy = f"raise train.lr from {lr:g}, or take more steps (--steps)"
    return Finding("selftest/overfit", "warn", f"{text}: no clear rise at lr {lr:g}", remedy)


def compare_runs(whole: RunFolder, resumed: RunFolder) -> Finding:
    """Compare weights, optimizer state and metrics of both runs at the last step."""
    name = f"step{RESUME_STEPS:06d}"
    ours, theirs = (_tensors(run.checkpoints / name) for run in (whole, resumed))
    middle = _tensors(whole.checkpoints / f"step{RESUME_STEPS // 2:06d}")

    def distance(tensors: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> float:
        pairs = ((tensors[key].double(), others[key].double()) for key in tensors)
        return sum(float((first - second).abs().sum()) for first, second in pairs)

    apart, moved = distance(ours, theirs), distance(ours, middle)
    if not apart:
        text = f"{len(ours)} tensors are identical after {RESUME_STEPS} steps"
        return Finding("selftest/resume", "ok", text)
    part = apart / moved if moved else float(bool(apart))
    text = f"weights differ by {part:.2g} of what the steps after the stop changed"
    if part <= SMALL:
        return Finding("selftest/resume", "note", text)
    return Finding(
        "selftest/resume",
        "warn",
        text,
        "the engine, the device or a verifier is not deterministic, or a component keeps state "
        "without state_dict; engine: core/transformers on a CPU is exact",
    )


def _tensors(checkpoint: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return {
        f"{path.relative_to(checkpoint)}:{key}": tensor
        for path in sorted(checkpoint.rglob("*.safetensors"))
        for key, tensor in load_file(path).items()
    }


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
    return SelfTest(path, overrides, host, steps, say).run()
