"""Fixtures for tests of evaluations: a toy plugin with an eval task, and the command beside it.

A ``conftest.py`` imports those that it wants; ``lab`` takes the place of the one in ``fixtures``.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlvr_core.cli.main import main
from rlvr_core.testing.lab import Lab
from rlvr_core.testing.random_model import save_random_model

WIDE = {"head_dim": 32, "initializer_range": 0.3}
"""Heads that vLLM has kernels for, and answers that differ."""

TOY = """
import time
from pathlib import Path
from rlvr_core.api import ComponentConfig, EvalReport, Metric, NoConfig, Problem, SamplingParams
from rlvr_core.api import Verdict, hookimpl


@hookimpl
def register_verifiers(registrar):
    registrar.add("early", "rlvr_evals_toy:Early", summary="The first letter is before the limit.")
    registrar.add("slow", "rlvr_evals_toy:Slow", summary="The same, slowly.")
    registrar.add("odd", "rlvr_evals_toy:Odd", summary="An odd number of letters.")


@hookimpl
def register_eval_tasks(registrar):
    registrar.add("letters", "rlvr_evals_toy:Letters", summary="Say something.")
    registrar.add("planned", "rlvr_evals_toy:Planned", summary="Metrics that the test chose.")


class Config(ComponentConfig):
    note: str


@hookimpl
def configure(options):
    Path("note.txt").write_text(options.note)


class Early:
    class Config(ComponentConfig):
        limit: int = 110

    def __init__(self, config):
        self.limit = config.limit

    def verify(self, problem, completion):
        if problem.spec["hopeless"]:
            return Verdict(None, status="unscorable", detail="no answer is known")
        text = completion.text
        first = ord(text[0]) if text else 0
        share = sum(ord(c) < self.limit for c in text) / max(1, len(text))
        return Verdict(
            share,
            passed=first < self.limit,
            parts={"short": float(len(text) < 8), "share": share},
            extracted=text[:1] or None,
        )


class Slow(Early):
    def verify(self, problem, completion):
        time.sleep(0.3)
        return super().verify(problem, completion)


class Odd:
    def __init__(self, config: NoConfig):
        pass

    def verify(self, problem, completion):
        odd = len(completion.text) % 2 == 1
        return Verdict(float(odd), passed=odd)


class Letters:
    class Config(ComponentConfig):
        count: int = 24
        max_tokens: int = 12
        hopeless: int = 0
        stop: str = ""
        verifier: str = "toy/early"
        twice: bool = False
        single: bool = False

    n = 1

    def __init__(self, config):
        self.config = config
        self.sampling = SamplingParams(temperature=0.0, max_tokens=config.max_tokens)

    def problems(self):
        problems = [
            Problem(
                id=f"p{i}",
                prompt=f"Say {i * 37}:",
                verifier=self.config.verifier,
                spec={"hopeless": i < self.config.hopeless},
                dataset="toy",
                stop=(self.config.stop,) if self.config.stop else (),
                tags={"level": i % 3, "kinds": ["a", "b"] if i % 2 else ["a"], "row": i},
            )
            for i in range(self.config.count)
        ]
        if self.config.single:
            return problems[0]
        return problems + problems[:1] if self.config.twice else problems

    def score(self, groups):
        members = [member for group in groups for member in group.members]
        letters = sum(len(member.completion.text) for member in members)
        a = sum(member.completion.text.count("a") for member in members)
        metrics = {"longest": float(max(len(member.completion.token_ids) for member in members))}
        metrics["share_of_a"] = a / max(1, letters)
        metrics["mine"] = sum(bool(member.passed) for member in members) / len(members)
        return EvalReport(metrics, len(groups))


class Planned(Letters):
    # metrics by policy version; null leaves one out

    class Config(Letters.Config):
        count: int = 2
        plan: dict[str, list[float | str | None]]

    reports = (
        Metric("cost", "What it costs.", "coins", better="down"),
        Metric("cost/<part>", "The same of a part.", "coins", better="down"),
        Metric("gain", "What it brings.", "coins", better="up"),
    )

    def score(self, groups):
        at = groups[0].version
        now = {name: values[min(at, len(values) - 1)] for name, values in self.config.plan.items()}
        known = {name: float(value) for name, value in now.items() if value is not None}
        return EvalReport(known, len(groups))
"""
"""The plugin ``toy``: three verifiers and two eval tasks."""


@pytest.fixture(scope="session")
def toy_site(installed_plugin: Callable[..., Path]) -> Path:
    """A folder with an installed plugin ``toy``, for PYTHONPATH."""
    return installed_plugin("toy", {"rlvr_evals_toy.py": TOY})


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model."""
    return save_random_model(tmp_path_factory.mktemp("model"), seed=0, **WIDE)


@pytest.fixture(scope="session")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another random model."""
    return save_random_model(tmp_path_factory.mktemp("other"), seed=1, **WIDE)


class EvalLab(Lab):
    """The ``rlvr`` command, run in this process, which saves the imports."""

    def rlvr(
        self, *arguments: object, check: int | None = 0, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a command line to its end; ``timeout`` is not used."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(word) for word in arguments])
        if check is not None:
            assert code == check, f"exit {code}\n{out.getvalue()}{err.getvalue()}"
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    def command(self, *arguments: object) -> list[str]:
        """The words that start ``rlvr`` as a process of its own."""
        return super().command(*map(str, arguments))

    def write_run_config(self, model: Path, **sections: Any) -> None:
        """Write config.yaml, for ``rlvr run`` on a few problems of the toy plugin."""
        rows = [{"id": f"q{i}", "question": f"Speak {i}.", "hopeless": False} for i in range(8)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self.folder / "data.jsonl").write_text(text)
        source = {"path": "data.jsonl", "prompt": "question", "id": "id", "verifier": "toy/early"}
        config: dict[str, Any] = {
            "run": {"name": "lab"},
            "model": {"path": str(model)},
            "data": {"sources": [{"use": "core/jsonl", "with": source}]},
            "sampling": {"n": 4, "max_tokens": 6},
            "engine": "transformers",
            "loss": {"use": "grpo"},
            "train": {"steps": 2, "prompts_per_step": 4, "lr": 1e-3, "warmup_steps": 1},
            "checkpoint": {"every": 1},
        }
        config |= sections
        config["train"] = {"prompts_per_step": 4} | config["train"]
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config))

    def run(self, model: Path, **sections: Any) -> Path:
        """Run to the end; the run's folder."""
        self.write_run_config(model, **sections)
        self.rlvr("run", "config.yaml", "--display", "none")
        (folder,) = (self.folder / "runs").iterdir()
        return folder

    def json(self, *arguments: object) -> Any:
        """What a command prints with ``--json``."""
        return json.loads(self.rlvr(*arguments, "--json").stdout)


@pytest.fixture(scope="session")
def make_lab(toy_site: Path) -> Callable[[Path], EvalLab]:
    """A lab in a folder, for a module that shares one."""
    return lambda folder: EvalLab(folder, toy_site)


@pytest.fixture
def lab(tmp_path: Path, toy_site: Path, monkeypatch: pytest.MonkeyPatch) -> EvalLab:
    """A lab in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(toy_site))
    # another conftest's copy of the plugin, in another folder, may be the one that is imported
    sys.modules.pop("rlvr_evals_toy", None)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return EvalLab(tmp_path, toy_site)
