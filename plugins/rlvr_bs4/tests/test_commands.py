"""``rlvr bs4 ...``"""

from __future__ import annotations

from click.testing import CliRunner

from rlvr_bs4 import commands, manifest
from rlvr_bs4.generate import generate
from rlvr_core.api import DataError


def run(command, *args, **more):
    return CliRunner().invoke(command, args, **more)


def test_preview_lists_and_shows():
    listed = run(commands.preview, "--list").output
    assert listed.count("\n") == 73
    assert "web.opengraph" in listed
    shown = run(commands.preview, "mvp.extract_links", "--seed", "100003", "--size", "bare").output
    task = generate("mvp.extract_links", 100_003, "bare")
    assert "(eval)" in shown
    assert all(one in shown for one in (task.question, task.html, task.gold, task.sha256))
    prompt = run(commands.preview, "mvp.extract_links", "--prompt").output
    assert task.gold not in prompt
    assert "=== PAGE" in prompt


def test_explain_says_how_a_response_is_graded():
    task = generate("mvp.extract_links", 0, "small")
    good = run(commands.explain, "mvp.extract_links", input=task.gold).output
    assert "correct:   True" in good
    bad = run(commands.explain, "mvp.extract_links", input='{"status": "ok", "answer": []}').output
    assert "correct:   False" in bad
    assert task.gold in bad


def test_verify_manifest_finds_what_changed(tmp_path):
    _, entries = manifest.read()
    path = tmp_path / "bench.jsonl"
    manifest.write(path, entries[:4])
    assert "all 4 tasks are as they were" in run(commands.verify_manifest, "--file", path).output
    wrong = [*entries[:3], manifest.Entry(entries[3].archetype, entries[3].seed, "bare", "0" * 64)]
    manifest.write(path, wrong)
    found = run(commands.verify_manifest, "--file", path)
    assert isinstance(found.exception, DataError)
    assert len(found.exception.complaints) == 1
