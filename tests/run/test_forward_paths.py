"""Runs whose models take forward paths of a plugin, or none at all."""

import os

import pytest

PATHS = """
import os
from pathlib import Path

from rlvr_core.api import hookimpl


@hookimpl
def register_forward_paths(registrar):
    registrar.add("plain", "rlvr_paths:find", summary="Whole rows.", models=("Qwen3ForCausalLM",))
    registrar.add("broken", "rlvr_no_such_module:find", summary="No.", models=("Other",))


def find(model, adapter):
    return Plain() if type(model).__name__ == "Qwen3ForCausalLM" else None


class Plain:
    def predict(self, batch, module, *, dtype, compiled):
        from rlvr_core.step.forward import whole_rows

        with open("passes", "a") as file:
            file.write(f"{dtype} {compiled}\\n")
        return whole_rows(module, batch)
"""


@pytest.fixture
def paths_lab(lab, installed_plugin, monkeypatch):
    site = installed_plugin("paths", {"rlvr_paths.py": PATHS})
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    return lab


def test_a_run_takes_the_path_of_a_plugin_that_its_config_names(paths_lab, model_dir):
    """Its whole rows are the kernel's, bit for bit; a path for other models is not imported."""
    own = paths_lab.run(model={"path": str(model_dir), "forward_paths": []})
    assert not (paths_lab.folder / "passes").exists()
    names = ["paths/broken", "paths/plain"]
    taken = paths_lab.run(model={"path": str(model_dir), "forward_paths": names})
    passes = (paths_lab.folder / "passes").read_text().splitlines()
    assert len(passes) >= 4
    assert set(passes) == {"torch.float32 False"}
    assert (own / "metrics.jsonl").read_bytes() == (taken / "metrics.jsonl").read_bytes()


def test_without_a_word_a_run_takes_no_path_of_a_plugin(paths_lab):
    paths_lab.run()
    assert not (paths_lab.folder / "passes").exists()


def test_a_misspelt_path_is_refused_before_anything_is_loaded(paths_lab, model_dir):
    paths_lab.write(model={"path": str(model_dir), "forward_paths": ["core/pakced"]})
    done = paths_lab.rlvr("run", "config.yaml", check=2)
    assert "config.yaml:" in done.stderr
    assert "core/packed" in done.stderr
    assert paths_lab.runs() == []
