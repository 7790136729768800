"""Runs whose numbers can be worked out by hand, written by the recorder as a run writes them."""

from dataclasses import dataclass

from rlvr_core.api import Completion, EvalReport, Group, Judged, Problem, Verdict
from rlvr_core.record.ledger import Ledger
from rlvr_core.record.manifest import Manifest
from rlvr_core.record.recorder import Recorder
from rlvr_core.record.rundir import RunFolder


@dataclass
class Sampled:
    prompt_text: str
    group: Group


def group(problem_id, passed, *, text="four", dataset="sums", **tags):
    members = tuple(
        Judged(
            Completion((1,), (2,), (-0.1,), (True,), text, "stop"),
            {"exact": Verdict(float(right), passed=right, detail=text)},
            float(right),
            right,
        )
        for right in passed
    )
    return Group(Problem(problem_id, "2+2=", "exact", {}, dataset, tags=tags), members, 0)


def evaluate(recorder, step, task, right, of=10, prompt="2+2="):
    """An evaluation of problems with one answer each, of which the first ``right`` pass."""
    sampled = [Sampled(prompt, group(f"p{i}", [i < right])) for i in range(of)]
    recorder.evaluation(step, step, task, 1.0, EvalReport({"accuracy": right / of}, of), sampled)


def make_run(root, name="demo", *, steps=8, text="four", dataset="sums", last=9, lr=0.1, now=0):
    """A run of two groups a step: an easy one that passes, and a hard one that does so later on.

    A step draws 4 completions, trains on 3 and loses one to an error; it takes 2 s of training and
    1 s of rollout. 3 of 10 held-out problems pass before it and ``last`` after it.
    """
    folder = RunFolder.create(
        root,
        name,
        config_text="",
        resolved={"run": {"name": name}, "train": {"steps": steps, "lr": lr}},
        now=1_800_000_000 + now,
    )
    manifest = Manifest.start(folder, name=name, command=["rlvr", "run"], plugins={})
    ledger = Ledger()
    with Recorder(folder) as recorder:
        evaluate(recorder, 0, "sums/heldout", 3)
        for step in range(steps):
            for draw, right in enumerate((True, step >= steps // 2)):
                one = group(
                    f"p{step}-{draw}",
                    [right] * 2,
                    text=text,
                    dataset=dataset,
                    level="hard" if draw else "easy",
                )
                fates = ["trained", "trained" if draw else "error"]
                recorder.rollout(step, step, one, text, fates, [1.0, -1.0], 2 * step + draw)
            ledger.draw(4)
            ledger.settle("trained", 3)
            ledger.settle("error", 1)
            metrics = {"reward/mean": step / 10, "lr": lr, **ledger.step_line()}
            recorder.metrics(step, step, metrics)
            recorder.timing(step, step, {"train": 2.0, "train.forward": 0.5, "rollout": 1.0})
        evaluate(recorder, steps, "sums/heldout", last)
    manifest.finish("finished", steps=steps)
    return folder
