"""Numbers that components report under names of their own, in runs."""

import json

PARTS = """
import numpy as np
from rlvr_core.api import AdvantageOutput, AdvantageTraits, Metric, NoConfig


class Watch:
    reports = (Metric("watch/longest", "Tokens of the longest completion so far.", "tokens"),)

    def __init__(self, config: NoConfig) -> None:
        self._longest = 0

    def on_groups(self, event):
        found = [len(m.completion.token_ids) for g in event.groups for m in g.members]
        self._longest = max([self._longest, *found])

    def on_step(self, event):
        assert event.metrics["watch/longest"] == self._longest

    def report(self):
        return {"watch/longest": float(self._longest)}


class Plain:
    traits = AdvantageTraits(min_completions=2)
    reports = (Metric("advantage/positive", "Share of completions above 0.", "share"),)

    def __init__(self, config: NoConfig) -> None:
        pass

    def __call__(self, step):
        advantage_N = step.reward_N - np.nanmean(step.reward_N)
        return AdvantageOutput(advantage_N, {"positive": float((advantage_N > 0).mean())})


class Store:
    reports = (Metric("store/lines", "Steps that were stored before this one.", "steps"),)

    def __init__(self, config: NoConfig) -> None:
        self._lines = 0

    def start(self, run, step):
        pass

    def metrics(self, step, values):
        assert values["store/lines"] == self._lines
        self._lines += 1

    def report(self):
        return {"store/lines": float(self._lines)}

    def close(self):
        pass
"""


def test_a_guard_an_estimator_and_a_tracker_report_what_they_declare(lab):
    (lab.folder / "parts.py").write_text(PARTS)
    lab.write(
        guards=["./parts.py:Watch"],
        advantage="./parts.py:Plain",
        track=["./parts.py:Store"],
        train={"steps": 2},
    )
    lab.rlvr("run", "config.yaml", "--display", "none")
    (run,) = (lab.folder / "runs").iterdir()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    longest = 0
    for place, line in enumerate(lines):
        longest = max(longest, line["length/max"])
        assert line["watch/longest"] == longest
        assert 0 < line["advantage/positive"] < 1
        assert line["store/lines"] == place
