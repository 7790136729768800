"""``rlvr export``: adapters, merged and as they are, and whole models."""

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from rlvr_core.api import ConfigError
from rlvr_lab.export.command import export_

LORA = {"rank": 4, "alpha": 8}
STEPS = {"steps": 4, "lr": 1e-2, "warmup_steps": 1}


@pytest.fixture
def run(lab, model_dir):
    """A finished run with LoRA."""
    return lab.run(model={"path": str(model_dir), "lora": LORA}, train=STEPS)


def test_export_of_the_adapter_and_what_it_refuses(lab, run, monkeypatch):
    monkeypatch.chdir(lab.folder)

    def export(*arguments):
        return CliRunner().invoke(export_, arguments)

    assert export("lab", "adapter").output == "adapter: adapter\n"
    names = {path.name for path in (lab.folder / "adapter").iterdir()}
    assert "adapter_model.safetensors" in names
    assert not names & {"COMPLETE", "trainer"}
    assert export("adapter", "merged", "--merge", "--dtype", "bfloat16").exit_code == 0
    saved = load_file(lab.folder / "merged" / "model.safetensors")
    assert {tensor.dtype for tensor in saved.values()} == {torch.bfloat16}
    for arguments, words in {
        ("lab", "adapter"): "exists",
        ("merged", "other", "--merge"): "a whole model already",
        ("lab", "other", "--dtype", "float16"): "--merge",
        ("lab", "other", "--step", "3"): "it has: 2, 4",
        ("org/name", "other"): "no run, checkpoint or adapter",
    }.items():
        refused = export(*arguments).exception
        assert isinstance(refused, ConfigError)
        assert words in str(refused)
    assert not (lab.folder / "other").exists()


def test_a_whole_model_is_exported_as_it_is(lab):
    run = lab.run()
    lab.rlvr("export", "last", "out/model", "--step", "2")
    names = {path.name for path in (lab.folder / "out" / "model").iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= names
    assert not names & {"COMPLETE", "trainer"}
    name = "model.safetensors"
    ours = (lab.folder / "out" / "model" / name).read_bytes()
    assert ours == (run / "checkpoints" / "step000002" / name).read_bytes()
