import json
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime

import psutil
import pytest

from rlvr_core.api import ConfigError
from rlvr_core.record.manifest import Manifest, is_alive
from rlvr_core.record.provenance import checkout as patches
from rlvr_core.record.provenance.checkout import save_patches
from rlvr_core.record.view import seconds_between


def start(folder, **more):
    return Manifest.start(
        folder,
        name="demo",
        command=["rlvr", "run", "--set", "x.api_key=abcdef"],
        plugins={"rlvr-math": "0.1.0"},
        **more,
    )


def stored(folder):
    return json.loads(folder.manifest.read_text())


def test_start_finish_and_resume(folder):
    before = datetime.now(UTC)
    manifest = start(folder, data={"sums": {"sha256": "ab", "problems": 10}})
    fields = stored(folder)
    assert fields["schema"] == 1
    assert fields["outcome"] == "running"
    created = datetime.fromisoformat(fields["created"])
    assert before <= created <= datetime.now(UTC)
    assert fields["command"][-1] == "x.api_key=<redacted>"
    assert fields["data"]["sums"]["problems"] == 10
    assert fields["versions"]["plugins"] == {"rlvr-math": "0.1.0"}
    assert fields["versions"]["python"] == sys.version.split()[0]
    assert "torch" in fields["versions"]["libraries"]
    assert fields["process"]["pid"] == os.getpid()
    assert fields["hardware"]["cores"] >= 1
    assert "PATH" not in json.dumps(fields)

    trace = 'File "a.py", line 3, in f\nOSError: no room; password: hunter2'
    manifest.finish("failed", steps=3, error="no room; password: hunter2", traceback=trace)
    assert stored(folder)["outcome"] == "failed"
    assert stored(folder)["error"] == "no room; password: <redacted>"
    assert stored(folder)["traceback"] == trace.replace("hunter2", "<redacted>")

    again = Manifest.read(folder)
    again.resume(command=["rlvr", "run", "--resume", "last"], step=2)
    fields = stored(folder)
    assert (fields["outcome"], fields["error"], fields["steps"]) == ("running", None, 2)
    assert fields["traceback"] is None
    assert [r["step"] for r in fields["resumed"]] == [2]
    assert fields["created"] == created.isoformat()
    again.finish("finished", steps=4)
    assert stored(folder)["steps"] == 4
    assert not [p for p in folder.path.iterdir() if "tmp" in p.name]


def test_a_run_json_that_cannot_be_read(folder):
    for text in ("{", "[]"):
        folder.manifest.write_text(text)
        with pytest.raises(ConfigError):
            Manifest.read(folder)


def test_is_alive_tells_a_reused_pid_from_the_process():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        process = {
            "host": socket.gethostname(),
            "pid": child.pid,
            "created": psutil.Process(child.pid).create_time(),
        }
        assert is_alive(process) is True
        assert is_alive(process | {"created": process["created"] - 60}) is False
        assert is_alive(process | {"host": "elsewhere"}) is None
    finally:
        child.kill()
        child.communicate()
    assert is_alive(process) is False


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "checkout"
    root.mkdir()

    def git(*words):
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *words],
            cwd=root, check=True, capture_output=True,
        )  # fmt: skip

    git("init", "-q", "-b", "trunk")
    (root / "a.txt").write_text("one\n")
    (root / "b.txt").write_text("one\n")
    git("add", ".")
    git("commit", "-qm", "first")
    return root, git


@pytest.fixture(autouse=True)
def no_outer_git(monkeypatch):
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", "/tmp")


def test_patches(folder, checkout):
    root, git = checkout
    assert save_patches(folder, root)["dirty"] is False
    (root / "a.txt").write_text("two\napi_key: abcdef1234\n")
    (root / "b.txt").write_text("staged\n")
    git("add", "b.txt")
    (root / "new.txt").write_text("content of an untracked file")
    state = save_patches(folder, root)
    assert state["branch"] == "trunk"
    assert state["dirty"] is True
    assert len(state["commit"]) == 40
    diff = (folder.patches / "git_diff.patch").read_text()
    assert "+two" in diff
    assert "abcdef1234" not in diff
    assert "+staged" in (folder.patches / "git_diff_cached.patch").read_text()
    status = (folder.patches / "git_status.txt").read_text()
    assert "?? new.txt" in status
    assert "content of" not in diff + status


def test_a_huge_diff_is_cut(folder, checkout, monkeypatch):
    root, _ = checkout
    monkeypatch.setattr(patches, "_PATCH_BYTES", 2000)
    (root / "a.txt").write_text("line\n" * 500_000)
    save_patches(folder, root)
    diff = (folder.patches / "git_diff.patch").read_text()
    assert len(diff) < 2100
    assert diff.endswith("[cut: longer than 2000 bytes]\n")


def test_no_git_and_no_checkout_do_not_fail_a_run(folder, tmp_path, monkeypatch):
    assert save_patches(folder, tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert save_patches(folder, tmp_path) is None
    assert start(folder).fields["git"] is None


def test_an_empty_checkout_has_no_commit(folder, tmp_path):
    root = tmp_path / "fresh"
    root.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    state = save_patches(folder, root)
    assert state["commit"] is None
    assert state["branch"] is None


def test_a_clock_that_was_set_back_gives_no_negative_time():
    earlier, later = "2026-11-01T10:00:00+00:00", "2026-11-01T12:00:30+01:00"
    assert seconds_between(earlier, later) == 3630.0
    assert seconds_between(later, earlier) is None
    assert seconds_between(earlier, None) is None
