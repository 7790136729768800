"""Invariant ``resume``: what a run goes on with is what it had when the checkpoint was written.

The fingerprints are those of the live objects, taken before anything is written; the files are read
back before the checkpoint is sealed, and the live objects of a resumed run before its first step.
So are the records in the run's folder, of a new run too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api.services import adapter_of, weight_checksums
from rlvr_core.builtin.invariants.check import PRINTED, Invariant, StepView, Trainer, compute_dtype
from rlvr_core.builtin.invariants.run_folder import contradicted, missing_steps, not_kept
from rlvr_core.builtin.invariants.saved import other_adapter
from rlvr_core.builtin.invariants.snapshot import (
    TENSORS,
    Snapshots,
    differing,
    random_state,
    rounded_to,
)

if TYPE_CHECKING:
    from rlvr_core.api import Json, RunError, RunStarted

WORDS: Mapping[str, tuple[str, str]] = {
    "weights": (
        "the weights are not those",
        "look at what loads trainer/master.safetensors or, in float32, model.safetensors, and at "
        "what changes weights after that",
    ),
    "frozen": (
        "weights that are not trained are not those",
        "model.path holds another model than it did: put back the one that the run began with",
    ),
    "reference": (
        "the reference model is not the one",
        "one that stays is loaded from model.path, which may have changed; one that moves comes "
        "from trainer/reference.safetensors",
    ),
    "moments": (
        "the optimizer's moments are not those",
        "look at what loads trainer/optimizer.safetensors, and at its names",
    ),
    "scaler": ("the loss scale is not the one", "look at what loads trainer/state.json"),
    "entropy": (
        "the state of the entropy bonus is not the one",
        "look at what loads trainer/state.json",
    ),
    "sampler": (
        "the sampler would draw other problems than it would have: its state is not the one",
        "a sampler's load_state_dict must restore what its state_dict gave: position, order and "
        "number of draws",
    ),
    "evaluations": (
        "the best evaluation, or how long there was no better one, is not that",
        "look at what loads trainer/state.json: keep_best and early stopping go by it",
    ),
    "random": (
        "the state of torch's random numbers is not the one",
        "look at what draws random numbers while a checkpoint is loaded",
    ),
}
"""What is wrong with a part, and where to look."""


class Resume(Invariant):
    """A resumed run has what it had.

    Args:
        trainer: The policy's trainer.
        sampler: Chooses the problems; None where there is none.
        evaluations: What evaluates the policy; None where nothing does.
        rules: What the configuration says of evaluations: which is best, and when to stop.
        say: Tells the user.
    """

    id, phase = "resume", "at each checkpoint and after each resumption"

    def __init__(
        self,
        trainer: Trainer,
        sampler: Any,
        evaluations: Any = None,
        rules: Json = None,
        *,
        say: Callable[[str], None] = PRINTED,
    ) -> None:
        self._say = say
        self._trainer = trainer
        self._snapshots = Snapshots(trainer, sampler, evaluations, rules)
        self._written: int | None = None
        self._step = self._version = 0
        self._taken: dict[str, Any] = {}
        self._moved: dict[str, int] = {}
        self._saved: dict[str, Any] | None = None
        self._random = 0
        self._resumed = False

    # -- while it trains -------------------------------------------------------------------------

    def begin(self, view: StepView) -> None:
        """Compare the policy version of the first step after a resumption."""
        if self._resumed and view.version != self._version:
            raise self._differs(
                view.step,
                f"the policy version is {view.version}, and was {self._version}",
                "look at what loads trainer/state.json: seeds would be those of other steps",
            )
        self._resumed, self._version = False, view.version

    def updated(self, view: StepView, grad_norm: float, *, applied: bool) -> None:
        """Count the policy's versions."""
        self._version += applied

    def end(self, view: StepView) -> Mapping[str, float]:
        """Note the step as done."""
        self._step = view.step + 1
        return {}

    # -- when a checkpoint is written ------------------------------------------------------------

    def state_dict(self) -> dict[str, Json]:
        """Return the fingerprints of everything as it is now."""
        counts = {"step": self._step, "version": self._version}
        self._taken = {**counts, "random": random_state(), **self._snapshots.take()}
        self._moved = self._snapshots.moved_reference() if "weights" in self._taken else {}
        return dict(self._taken)

    def checkpoint_written(self, folder: Path) -> None:
        """Read the files back; raises ``RunError`` where they hold other tensors.

        The run is already at a later step: fingerprints are those of ``state_dict``.
        """
        self._check_written_before(folder)
        if what := other_adapter(folder, self._trainer.model):
            raise self.fault(
                self._taken["step"] - 1,
                f"the checkpoint as written holds another adapter than the run had: {what} "
                "(band: none)",
                "it is thrown away, older ones stay: look at what writes the adapter's config",
            )
        if "weights" not in self._taken:
            return
        from safetensors.torch import load_file

        model, trainer = self._trainer.model, folder / "trainer"
        weights = adapter_of(model).load(folder, model)
        self._compare_file("the trained weights", self._taken["weights"], weights)
        if (trainer / "master.safetensors").is_file():
            rounded = weight_checksums(rounded_to(compute_dtype(self._trainer), weights.items()))
            self._compare_file("model", rounded, load_file(folder / "model.safetensors"))
        files = {
            "the optimizer's moments": (self._taken["moments"], trainer / "optimizer.safetensors"),
            "the reference": (self._moved, trainer / "reference.safetensors"),
        }
        for name, (live, path) in files.items():
            self._compare_file(name, live, load_file(path) if path.is_file() else {})

    def _check_written_before(self, folder: Path) -> None:
        """Check that the checkpoint before this one is there; raises ``RunError``."""
        step, before = self._taken["step"], self._written
        if before is not None and (what := not_kept(folder.parent, before)):
            raise self.fault(
                step - 1,
                f"before the checkpoint of step {step}, {what} (band: none)",
                "look at what deletes old checkpoints and writes latest, and at who else deletes "
                "in this folder: a resumption would lose steps",
            )
        if f"step{step:06d}" in folder.name:  # as those of a run are named
            self._written = step

    def _compare_file(
        self, what: str, live: Mapping[str, int], file: Mapping[str, torch.Tensor]
    ) -> None:
        wrong = differing(live, weight_checksums(file.items()))
        if wrong:
            raise self.fault(
                self._taken["step"] - 1,
                f"the checkpoint as written holds other values of {what} than the run had, in "
                f"{len(wrong)} of {len(live)} tensors: {wrong[0]} (band: none)",
                "it is thrown away, older ones stay: look at what collects and writes tensors, "
                "and at the disk",
            )

    # -- after a resumption ----------------------------------------------------------------------

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Keep the fingerprints until everything is loaded."""
        self._saved, self._random = dict(state), random_state()
        self._step, self._version = state["step"], state["version"]

    def run_started(self, event: RunStarted) -> None:
        """Compare everything that was loaded, and the run's folder; raises ``RunError``."""
        if self._trainer.ranks.main:
            self._compare_folder(event)
        if not event.resumed or event.step == 0:
            return
        if self._saved is None:
            if self._trainer.ranks.main:
                self._say(
                    "warning: guard resume: the checkpoint has no fingerprints, as it was written "
                    "by an older version or with guards.resume: false. What was loaded is not "
                    "compared"
                )
            return
        saved, self._saved = self._saved, None
        if event.step != saved["step"]:
            raise self._differs(
                event.step,
                f"it goes on with step {event.step + 1}, after {saved['step']} steps",
                "look at what loads trainer/state.json",
            )
        found = {**self._snapshots.take(), "random": self._random}
        if saved.get("rules") != found.get("rules"):
            saved.pop("evaluations", None)  # what was best by another figure says nothing
        for part, (what, remedy) in WORDS.items():
            if part in saved and part in found and saved[part] != found[part]:
                raise self._differs(
                    event.step,
                    what + self._detail(part, saved[part], found[part]),
                    self._rounded() if part == "weights" else "",
                    remedy,
                )
        self._resumed = True

    def _compare_folder(self, event: RunStarted) -> None:
        """Compare the records and checkpoints that the run's folder has; raises ``RunError``."""
        if what := contradicted(event):
            raise self.fault(
                event.step,
                f"the run's folder is not that of a run at this step: {what} (band: none)",
                "look at what finds the newest checkpoint, at what cuts the records where it was "
                "written, and at what notes a resumption in run.json and resolved.yaml; nothing "
                "was changed by this step yet",
            )
        if gone := missing_steps(event):
            self._say(
                f"warning: guard resume: metrics.jsonl has no line of {len(gone)} of the "
                f"{event.step} steps before this one, such as step {gone[0] + 1}: what is read of "
                "the run lacks them"
            )

    def _differs(self, step: int, what: str, *remedy: str) -> RunError:
        return self.fault(
            step, f"going on from the checkpoint, {what} (band: none)", *filter(None, remedy)
        )

    def _detail(self, part: str, saved: Any, found: Any) -> str:
        if part not in TENSORS:
            return " of the checkpoint"
        wrong = differing(saved, found)
        lost = sum(name not in found for name in wrong)
        missing = f", {lost} of them missing" if lost else ""
        return f" of the checkpoint, in {len(wrong)} of {len(saved)} tensors{missing}: {wrong[0]}"

    def _rounded(self) -> str:
        """Name the export if every trained weight is one of a coarser precision."""
        dtype = compute_dtype(self._trainer)
        exact = self._snapshots.weights()
        model = self._trainer.model
        trained = adapter_of(model).trained_tensors(model).items()
        again = weight_checksums(
            (name, one.to(dtype).to(one.dtype) if one.is_floating_point() else one)
            for name, one in trained
        )
        if dtype == torch.float32 or exact != again:
            return ""
        return (
            f"every weight is rounded to {str(dtype).removeprefix('torch.')}: they come from the "
            "export model.safetensors, not from the float32 master"
        )
