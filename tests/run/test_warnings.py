"""What a run warned about is in its records, and shown by all that reads them."""

import json
from types import SimpleNamespace

import pytest

from rlvr_core.api import RunView
from rlvr_core.builtin.provenance.warned import MOST, Warned


@pytest.mark.essential
def test_what_a_run_warns_about_is_recorded_once_and_shown(lab):
    lines = (lab.folder / "data.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows[:20]:  # 10 prompts, each with two references
        row["question"], row["answer"] = f"Say {int(row['id'][1:]) % 10}.", f"x{row['id']}"
    (lab.folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lab.write(train={"steps": 2, "lr": 1e-3})
    lab.rlvr("run", "config.yaml", "--display", "none")
    run = lab.runs()[-1]
    done = lab.rlvr("run", "--resume", "last", "--set", "train.steps=4", "--display", "none")
    assert done.returncode == 0
    manifest = json.loads((run / "run.json").read_text())
    (found,) = [one for one in manifest["warnings"] if "10 prompts have several" in one["text"]]
    assert found["step"] is None  # before the first step
    assert found["id"].startswith("preflight data/")
    assert "correct the references" in found["text"]
    shown = json.loads(lab.rlvr("show", "last", "--json").stdout)
    (note,) = [note for note in shown["notes"] if "10 prompts have several" in note]
    assert note == f"{found['id']}: {found['text']}"
    assert lab.rlvr("show", "last").stdout.count("10 prompts have several") == 1
    assert (run / "RESULTS.md").read_text().count("10 prompts have several") == 1


def test_a_guards_note_of_a_step_has_the_step(lab):
    # completions are cut off at 4 tokens: the sheet of the first completions says so
    run = lab.run(sampling={"n": 16, "max_tokens": 4})
    (one,) = [
        one
        for one in json.loads((run / "run.json").read_text())["warnings"]
        if one["id"] == "first completions" and "are cut off" in one["text"]
    ]
    assert one["step"] == 0
    (note,) = [note for note in RunView(run).notes if "are cut off" in note]
    assert note == f"first completions (step 1): {one['text']}"


class Manifest:
    def __init__(self, **fields):
        self.fields, self.written = fields, 0

    def update(self, **fields):
        self.fields |= fields
        self.written += 1


def test_messages_that_are_no_warnings_are_not_recorded_and_others_once_in_order():
    manifest = Manifest()
    warned = Warned(manifest)
    warned.message("going on from checkpoints/step000002")
    assert manifest.written == 0
    warned.run_started(SimpleNamespace(step=3, resumed=True))
    for text in (
        "warning: guard canaries: 3 of 4: odd; see rlvr docs guards#canaries",
        "warning: tracker 'wandb' failed: OSError: gone",
        "warning: a step of 8 prompts repeats some of 4 problems",
        "note: evaluations: how they are sampled is not checked",
    ):
        warned.message(text)
    warned.groups_scored(SimpleNamespace(step=4))
    warned.message("warning: guard canaries: 3 of 4: odd; see rlvr docs guards#canaries")
    again = Warned(manifest)
    again.message("note: evaluations: how they are sampled is not checked")
    assert manifest.fields["warnings"] == [
        {
            "id": "guard canaries",
            "step": 3,
            "text": "3 of 4: odd; see rlvr docs guards#canaries",
        },
        {"id": "run", "step": 3, "text": "tracker 'wandb' failed: OSError: gone"},
        {"id": "run", "step": 3, "text": "a step of 8 prompts repeats some of 4 problems"},
        {"id": "evaluations", "step": 3, "text": "how they are sampled is not checked"},
    ]


def test_a_warning_that_counts_does_not_fill_the_record():
    manifest = Manifest()
    warned = Warned(manifest)
    for step in range(2 * MOST):
        warned.message(f"warning: {step} groups were left out")
    assert len(manifest.fields["warnings"]) == MOST
