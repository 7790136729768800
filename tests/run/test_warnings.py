"""What a run warned about is in its records, and shown by all that reads them."""

import json

import pytest

from rlvr_core.run.recording import MOST, Warned

ODD = """
from rlvr_core.api import NoConfig


class Odd:
    Config = NoConfig

    def __init__(self, config): ...

    def preflight(self, prepared):
        return ["warning: preflight data/odd: 10 prompts are odd; mend them"]

    def bind(self, context):
        self.say = context.say

    def on_groups(self, event):
        if event.step == 0:
            self.say("warning: guard odd: groups are odd; mend them")

    def on_step(self, event): ...
"""


@pytest.mark.essential
def test_what_a_run_warns_about_is_recorded_once_and_shown(lab):
    (lab.folder / "odd.py").write_text(ODD)
    lab.write(train={"steps": 2, "lr": 1e-3}, guards=["./odd.py:Odd"])
    lab.rlvr("run", "config.yaml", "--display", "none")
    run = lab.runs()[-1]
    done = lab.rlvr("run", "--resume", "last", "--set", "train.steps=4", "--display", "none")
    assert done.returncode == 0
    manifest = json.loads((run / "run.json").read_text())
    before, during = [one for one in manifest["warnings"] if "odd" in one["id"]]
    assert (before["id"], before["step"]) == ("preflight data/odd", None)
    assert (during["id"], during["step"]) == ("guard odd", 0)
    assert "mend them" in before["text"]
    shown = json.loads(lab.rlvr("show", "last", "--json").stdout)
    notes = [note for note in shown["notes"] if "odd" in note]
    assert notes == [
        f"{before['id']}: {before['text']}",
        f"guard odd (step 1): {during['text']}",
    ]
    assert lab.rlvr("show", "last").stdout.count("10 prompts are odd") == 1
    assert (run / "RESULTS.md").read_text().count("10 prompts are odd") == 1


class Manifest:
    def __init__(self, **fields):
        self.fields, self.written = fields, 0

    def update(self, **fields):
        self.fields |= fields
        self.written += 1


def test_a_warning_that_counts_does_not_fill_the_record():
    manifest = Manifest()
    warned = Warned(manifest)
    for step in range(2 * MOST):
        warned.message(f"warning: {step} groups were left out")
    assert len(manifest.fields["warnings"]) == MOST
