"""docker, or podman in its place: whichever works on this machine."""

from __future__ import annotations

import json
import shutil
import subprocess

from rlvr_core.api import MachineError

_NAMES = ("docker", "podman")


def engine() -> str:
    """The program that builds and runs images here; docker's client alone does not count.

    Raises:
        MachineError: If none works.
    """
    wrong = []
    for name in _NAMES:
        if shutil.which(name) is None:
            continue
        done = _tried([name, "info"])
        if done.returncode == 0:
            return name
        lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        wrong.append(f"{name} does not work here: {lines[-1]}")
    raise MachineError(
        "; ".join(wrong) or "neither docker nor podman is installed here",
        remedy="start or install one of them, or build the image elsewhere",
    )


def do(tool: str, *words: str, text: str | None = None) -> None:
    """Call it, which prints what it does.

    Raises:
        MachineError: If it fails.
    """
    done = subprocess.run([tool, *words], input=text, text=True, check=False)
    if done.returncode != 0:
        raise MachineError(f"{tool} {words[0]} failed with {done.returncode}; see above")


def ask(tool: str, *words: str) -> str | None:
    """Return the command's output; None if it fails."""
    done = _tried([tool, *words])
    return done.stdout.strip() if done.returncode == 0 else None


def digests(tool: str, image: str) -> list[str]:
    """The names by content of an image of this machine, ``repository@sha256:…``."""
    listed = ask(tool, "image", "inspect", "--format", "{{json .RepoDigests}}", image)
    return [str(name) for name in json.loads(listed or "null") or []]


def by_content(tool: str, image: str) -> str | None:
    """An image's name by content; None where it is on this machine alone and has none."""
    if "@" in image:
        return image
    slash = image.rfind("/")
    colon = image.rfind(":")
    repository = image[:colon] if colon > slash else image
    for digest in digests(tool, image):
        name = digest.partition("@")[0]
        if name == repository or name.endswith("/" + repository):
            return digest
    return None


def _tried(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
