"""Plugins written to a folder as pip leaves them: packages and dist-info with entry points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(repr=False)
class Outcome:
    """What a command did; shown whole when an assertion about it fails."""

    code: int
    out: str
    err: str

    def __repr__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"

    @property
    def json(self):
        return json.loads(self.out)


class Site:
    """A folder on ``sys.path`` with installed distributions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def module(self, path: str, source: str) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(source))
        return file

    def install(self, distribution: str, entry: str, version: str = "1.2.3") -> Path:
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        (info / "entry_points.txt").write_text(f"[rlvr]\n{entry}\n")
        return info / "entry_points.txt"

    def plugin(self, name: str, source: str, version: str = "1.2.3") -> Path:
        """A distribution ``acme-NAME`` with package ``acme_NAME`` and the plugin ``NAME``."""
        self.module(f"acme_{name}/__init__.py", "")
        self.install(f"acme-{name}", f"{name} = acme_{name}.plugin", version)
        return self.module(f"acme_{name}/plugin.py", source)

    def run(self, *args: str, **env: str) -> Outcome:
        return self.python("-m", "rlvr_core.cli.main", *args, **env)

    def python(self, *args: str, **env: str) -> Outcome:
        done = subprocess.run(
            [sys.executable, *args],
            env={**os.environ, "PYTHONPATH": str(self.folder), "NO_COLOR": "1", **env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "site")


@pytest.fixture(scope="session")
def new_site():
    """Makes a site in a folder, for fixtures of wider scope."""
    return Site


GOOD = """
from rlvr_core.api import hookimpl

@hookimpl
def register_verifiers(registrar):
    registrar.add("right", "acme_good.verifiers:Right", summary="Always right.")
"""

RIGHT = '''
from rlvr_core.api import ComponentConfig, Verdict

class Right:
    """Says yes."""

    class Config(ComponentConfig):
        score: float = 1.0
        """What it gives."""

    def __init__(self, config):
        self.score = config.score

    def verify(self, problem, completion):
        return Verdict(self.score, passed=True)
'''


@pytest.fixture(scope="session")
def good_plugin():
    """Writes a plugin that works into a site."""

    def write(site: Site) -> None:
        site.plugin("good", GOOD)
        site.module("acme_good/verifiers.py", RIGHT)

    return write
