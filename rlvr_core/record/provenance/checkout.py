"""``patches/``: the state of the git checkout a run was started in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from rlvr_core.api import Json
from rlvr_core.record.files import write_atomic
from rlvr_core.record.rundir import RunFolder
from rlvr_core.record.text import Redactor

_PATCH_BYTES = 10_000_000
_GIT_SECONDS = 20.0


def save_patches(folder: RunFolder, directory: Path) -> dict[str, Json] | None:
    """Keep the state of the git checkout at ``directory`` in ``patches/``.

    Content of untracked files is not kept, only their names. Never fails a run: what cannot be
    had is left out.

    Returns:
        Root, commit, branch and whether it had changes; None outside a checkout.
    """
    root = git(directory, "rev-parse", "--show-toplevel")
    if root is None:
        return None
    head = git(directory, "rev-parse", "HEAD", "--abbrev-ref", "HEAD")
    commit, branch = (None, None) if head is None else head.splitlines()
    status = git(directory, "status", "--porcelain=v1", "--branch")
    # without programs that the user's configuration has it call
    diff = ("diff", "--no-ext-diff", "--no-textconv")
    patches = {
        "git_status.txt": status,
        "git_diff.patch": git(directory, *diff),
        "git_diff_cached.patch": git(directory, *diff, "--cached"),
    }
    redact = Redactor()
    folder.patches.mkdir(exist_ok=True)
    for name, text in patches.items():
        if text:
            write_atomic(folder.patches / name, redact.patch(text))
    changed = None if status is None else any(not s.startswith("##") for s in status.splitlines())
    return {"root": root.strip(), "commit": commit, "branch": branch, "dirty": changed}


def git(directory: Path, *arguments: str) -> str | None:
    """Return a git command's output, cut at ``_PATCH_BYTES``; None if it fails or is too slow."""
    environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", "-c", "color.ui=false", *arguments],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if len(done.stdout) > _PATCH_BYTES:
        note = f"\n[cut: longer than {_PATCH_BYTES} bytes]\n"
        return done.stdout[:_PATCH_BYTES].decode("utf-8", "replace") + note
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
