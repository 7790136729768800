"""What checkpoints and exports say of where they came from, and who reads it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rlvr_core.record.provenance.lineage import LINEAGE, lineage_lines, lineage_of, write_lineage
from rlvr_core.record.provenance.model import model_identity

META = {"version": "2", "based_on": "first.yaml", "notes": "Größe"}


def manifest(run):
    return json.loads((run / "run.json").read_text(encoding="utf-8"))


def test_the_chain_from_run_to_export_to_run(lab, model_dir, tmp_path):
    first = lab.run(model={"path": str(model_dir)}, meta=META)
    checkpoint = first / "checkpoints" / "step000002"
    found = lineage_of(checkpoint)
    assert (found["run"], found["step"], found["meta"]) == (first.name, 2, META)
    assert found["data"] == manifest(first)["data"]
    assert found["model"]["path"] == str(model_dir)
    assert found["model"]["sha256"] == model_identity(str(model_dir))["sha256"]
    assert found["parent"] is None
    assert [one["use"] for one in found["sources"]]

    copied = Path(shutil.copytree(checkpoint, tmp_path / "copied"))
    assert lineage_of(copied) == found  # it says so away from its run, too

    lab.rlvr("export", "last", "out", "--step", "2")
    out = lab.folder / "out"
    assert json.loads((out / LINEAGE).read_text(encoding="utf-8")) == {
        **found, "exported": {"merged": None},
    }  # fmt: skip
    bare = Path(shutil.copytree(out, tmp_path / "bare"))
    (bare / LINEAGE).unlink()
    assert model_identity(str(out)) | {"path": ""} == model_identity(str(bare)) | {"path": ""}

    second = lab.run(model={"path": "out"})
    grown = lineage_of(second / "checkpoints" / "step000002")
    assert grown["run"] == second.name
    assert {k: v for k, v in grown["parent"].items() if k != "exported"} == found

    told = lab.rlvr("models", "check", str(second / "checkpoints" / "step000002")).stdout
    lines = [line for line in told.splitlines() if line.startswith(("written by", "trained from"))]
    assert lines == [
        f"written by: {second.name}, step 2",
        f"trained from: out, {grown['model']['sha256']}",
        f"written by: {first.name}, step 2",
        f"trained from: {model_dir}, {found['model']['sha256']}",
    ]
    assert "meta.based_on: first.yaml" in told
    shown = lab.rlvr("show", first.name).stdout
    assert "based_on    first.yaml" in shown
    assert "Größe" in shown


def test_a_merged_adapter_says_so(lab, model_dir):
    pytest.importorskip("peft")
    run = lab.run(model={"path": str(model_dir), "lora": {"rank": 4}})
    lab.rlvr("export", "last", "adapter")
    lab.rlvr("export", "adapter", "merged", "--merge", "--dtype", "bfloat16")
    found = lineage_of(lab.folder / "merged")
    assert found["exported"] == {"merged": "bfloat16"}
    assert found["run"] == run.name
    assert lineage_of(lab.folder / "adapter") == {**found, "exported": {"merged": None}}
    checked = lab.rlvr("models", "check", "merged", "--json")
    assert json.loads(checked.stdout)["lineage"] == found
    told = lab.rlvr("models", "check", "adapter").stdout
    assert f"written by: {run.name}, step " in told


def test_without_identity_only_the_step_is_known(lab):
    run = lab.run(run={"name": "lab", "identity": False}, meta=META)
    lineage = lineage_of(run / "checkpoints" / "step000002")
    assert lineage == {"format": 1, "step": 2, "run": None}
    assert lineage_lines(lineage) == [("written by", "a run that is not recorded, step 2")]


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"'])
def test_a_record_that_cannot_be_read_is_none(tmp_path, text):
    (tmp_path / LINEAGE).write_text(text)
    assert lineage_of(tmp_path) is None
    assert lineage_of(tmp_path / "nowhere") is None
    out = tmp_path / "out"
    out.mkdir()
    write_lineage(tmp_path, out, None)
    assert list(out.iterdir()) == []
