"""The plugin as it is installed."""

from __future__ import annotations

import json
import subprocess
import sys


def rlvr(*args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rlvr_core.cli.main", *args], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_installed_light_and_offers_its_parts():
    records = json.loads(rlvr("plugins", "list", "--json"))
    found = next(one for one in records if one["name"] == "bs4")
    assert found["status"] == "ok", found["problems"]
    names = {(one["kind"], one["name"]) for one in found["components"]}
    assert {
        ("dataset", "bs4/pages"),
        ("verifier", "bs4/answer"),
        ("dataset", "bs4/web"),
        ("environment", "bs4/web"),
        ("verifier", "bs4/process"),
        ("eval_task", "bs4/bench"),
        ("eval_task", "bs4/web-bench"),
        ("command", "bs4/preview"),
        ("command", "bs4/verify-manifest"),
    } <= names


def test_its_commands_are_under_its_name():
    assert "primer.extract_by_id" in rlvr("bs4", "preview", "--list")
