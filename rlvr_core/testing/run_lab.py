"""A model, a data set and a plugin small enough to run ``rlvr run`` in seconds.

Fixtures of tests that run: a ``conftest.py`` imports ``lab`` and those that ``lab`` needs.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from rlvr_core.testing.lab import Lab
from rlvr_core.testing.random_model import save_random_model

TOY = """
import time
from rlvr_core.api import NoConfig, Verdict, hookimpl


@hookimpl
def register_verifiers(registrar):
    registrar.add("early", "rlvr_toy:Early", summary="Share of letters before n.")
    registrar.add("flaky", "rlvr_toy:Flaky", summary="Raises on some answers.")
    registrar.add("wrong-gold", "rlvr_toy:WrongGold", summary="Fails its own gold answer.")


class Early:
    def __init__(self, config: NoConfig) -> None:
        pass

    def verify(self, problem, completion):
        text = completion.text
        score = sum(c < "n" for c in text) / max(1, len(text))
        return Verdict(score, passed=score > 0.7)


class Flaky(Early):
    def verify(self, problem, completion):
        if len(completion.text) % 2:
            raise RuntimeError("odd text")
        return super().verify(problem, completion)


class WrongGold(Early):
    def gold(self, problem):
        return "zzz"

    def verify(self, problem, completion):
        return Verdict(0.0, passed=False)
"""


@pytest.fixture(scope="session")
def toy_site(installed_plugin: Callable[..., Path]) -> Path:
    """A folder with an installed plugin ``toy``, for PYTHONPATH."""
    return installed_plugin("toy", {"rlvr_toy.py": TOY})


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model of random weights."""
    return save_random_model(tmp_path_factory.mktemp("model"))


class RunLab(Lab):
    """A working directory with a config, and the rlvr command in it."""

    def __init__(self, folder: Path, model: Path, site: Path) -> None:
        super().__init__(folder, site, model)
        rows = [{"id": f"p{i}", "question": f"Say {i}.", "answer": "x"} for i in range(40)]
        (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.config: dict[str, Any] = {
            "run": {"name": "lab", "seed": 1},
            "model": {"path": str(model)},
            "data": {
                "sources": [
                    {
                        "use": "core/jsonl",
                        "with": {
                            "path": "data.jsonl",
                            "prompt": "question",
                            "id": "id",
                            "verifier": "toy/early",
                        },
                    }
                ]
            },
            "sampler": {"use": "shuffle"},
            "sampling": {"n": 4, "max_tokens": 12},
            "engine": "transformers",
            "loss": {"use": "dapo"},
            "train": {"steps": 4, "prompts_per_step": 4, "lr": 1e-3, "warmup_steps": 1},
            "checkpoint": {"every": 2},
        }

    def write(self, **sections: Any) -> Path:
        """Write the configuration with these sections in the place of its own.

        The prompts of a step stay those of the laboratory, unless ``train`` says it.
        """
        config = self.config | sections
        prompts = self.config["train"].get("prompts_per_step", 4)
        config["train"] = {"prompts_per_step": prompts} | config["train"]
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    def started(self, *arguments: str, together: bool = False) -> subprocess.Popen[str]:
        """The command in a process that goes on; ``together``: errors come with its output."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.env(),
            stdout=subprocess.PIPE if together else None,
            stderr=subprocess.STDOUT if together else subprocess.PIPE,
            text=True,
        )

    def descendants(self, process: subprocess.Popen[str], words: str) -> list[psutil.Process]:
        """Processes below a command whose command line contains these words, and that live."""
        found = []
        for one in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # ended, or a zombie
                found += [one] if words in " ".join(one.cmdline()) else []
        return found

    def run(self, *arguments: str, **sections: Any) -> Path:
        """Run to the end; the run's folder."""
        self.write(**sections)
        self.rlvr("run", "config.yaml", "--display", "none", *arguments)
        return self.runs()[-1]


@pytest.fixture(scope="session")
def make_lab(model_dir: Path, toy_site: Path) -> Callable[[Path], RunLab]:
    """Makes a laboratory of a folder."""
    return lambda folder: RunLab(folder, model_dir, toy_site)


@pytest.fixture
def lab(tmp_path: Path, make_lab: Callable[[Path], RunLab]) -> RunLab:
    """A laboratory in the test's folder."""
    return make_lab(tmp_path)
