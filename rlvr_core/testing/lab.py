"""A working directory with the ``rlvr`` command in it, and plugins installed for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rlvr_core.testing.fork_server import run_rlvr


def install_plugin(
    site: Path, name: str, files: Mapping[str, str], *, entry: str | None = None
) -> Path:
    """Leave a plugin in a folder as pip leaves it: its modules, and metadata with an entry point.

    Args:
        site: A folder that is, or will be, on ``sys.path``.
        name: The plugin's; its distribution is ``rlvr-NAME``.
        files: Source by path below the folder.
        entry: Module of the hooks; that of the first file by default.

    Returns:
        The folder.
    """
    for path, source in files.items():
        file = site / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
    module = entry or next(iter(files)).removesuffix(".py").replace("/", ".")
    info = site / f"rlvr_{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: rlvr-{name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[rlvr]\n{name} = {module}\n")
    return site


class Lab:
    """The ``rlvr`` command in a working directory, offline and with one thread.

    Args:
        folder: The working directory.
        site: Folder of installed plugins, put before ``PYTHONPATH``.
        model: Folder of a model, for tests to name in a config.
    """

    def __init__(self, folder: Path, site: Path | None = None, model: Path | None = None) -> None:
        self.folder, self.site, self.model = folder, site, model

    def env(self) -> dict[str, str]:
        """Return the environment variables of a command."""
        places = [str(self.site or ""), os.environ.get("PYTHONPATH", "")]
        path = os.pathsep.join(filter(None, places))
        return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

    def command(self, *arguments: str) -> list[str]:
        """The words that start ``rlvr`` as a process of its own."""
        return [sys.executable, "-m", "rlvr_core.cli.main", *arguments]

    def rlvr(
        self, *arguments: str, check: int | None = 0, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end in a fork that has imported rlvr already.

        Args:
            arguments: The command line after ``rlvr``.
            check: The exit code that it must have; None for any.
            timeout: Seconds.

        Raises:
            AssertionError: Another exit code; the message shows all output.
            TimeoutExpired: It took longer.
        """
        done = run_rlvr(*arguments, cwd=self.folder, env=self.env(), timeout=timeout)
        if check is not None and done.returncode != check:
            raise AssertionError(f"exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def runs(self) -> list[Path]:
        """Run folders by age, those that are just being made left out."""
        return sorted(
            (self.folder / "runs").glob("[!.]*"), key=lambda folder: folder.stat().st_ctime_ns
        )
