"""``rlvr bs4 ...``"""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from rlvr_bs4 import catalog, commands, manifest
from rlvr_bs4.generate import generate
from rlvr_core.api import DataError, ToolCall, tool_format


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


def test_preview_of_an_unknown_archetype_is_a_message():
    found = run(commands.preview, "mvp.extract_linx")
    assert isinstance(found.exception, DataError)


def test_explain_says_how_a_response_is_graded():
    task = generate("mvp.extract_links", 0, "small")
    good = run(commands.explain, "mvp.extract_links", input=task.gold).output
    assert "correct:   True" in good
    bad = run(commands.explain, "mvp.extract_links", input='{"status": "ok", "answer": []}').output
    assert "correct:   False" in bad
    assert task.gold in bad


def test_bench_scores_the_reference_solvers():
    found = run(commands.bench, "--limit", "20", "--json")
    assert found.exit_code == 0, found.output
    result = json.loads(found.output)
    assert result["sha256"] == manifest.read()[0]["sha256"]
    assert sum(row["tasks"] for row in result["categories"].values()) == 20
    assert all(row["reference"] == 1.0 for row in result["categories"].values())
    assert all(row["bugs"] < 0.5 for row in result["categories"].values())


@pytest.mark.slow
def test_smoke_finds_a_machine_ready_and_says_what_is_wrong(monkeypatch):
    found = run(commands.smoke, "--rows", "40", "--json")
    assert found.exit_code == 0, found.output
    checks = {one["what"]: one for one in json.loads(found.output)}
    assert list(checks) == ["libraries", "tasks", "conversations", "memory"]
    assert "73 archetypes made and solved under html.parser" in checks["tasks"]["told"]
    kind = type(catalog.get("mvp.extract_links"))
    monkeypatch.setattr(kind, "solve", lambda self, site: [])
    monkeypatch.setattr("rlvr_bs4.web.judge.efficiency", lambda *given: 0.5)
    found = run(commands.smoke, "--rows", "2")
    assert found.exit_code == 4
    wrong = [line for line in found.output.splitlines() if line.startswith("FAULT")]
    assert [line.split()[1] for line in wrong] == ["tasks", "conversations"]
    assert "mvp.extract_links (html.parser)" in wrong[0]
    assert "a right answer is worth 0.5" in wrong[1]


def test_bench_refuses_what_is_no_conversation_of_it(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"status": "ok", "answer": 1}')
    found = run(commands.bench, "--file", path)
    assert "does not hold conversations" in str(found.exception)
    turns = [{"role": "assistant", "text": "x"}]
    path.write_text(json.dumps({"problem_id": f"bs4_{'0' * 16}", "turns": turns}))
    found = run(commands.bench, "--file", path)
    assert f"about no task of the benchmark: bs4_{'0' * 16}" in str(found.exception)
    for option, says in (("call_cost", "KEY=VALUE"), ("call_cots=1", "call_cots")):
        found = run(commands.bench, "--file", path, "--with", option)
        assert found.exit_code == 2
        assert says in found.output


def test_bench_plays_conversations_of_the_benchmark_with_the_options_given(tmp_path):
    entry = manifest.read()[1][0]
    task, look = entry.task(), "HTML; print(make_soup().find('body').get_text()[:9])"
    call = tool_format("hermes").render(ToolCall("run_python", {"code": look}))
    turns = [{"role": "assistant", "text": text} for text in (call, call, task.gold)]
    row = {"id": f"{entry.problem}#0.0", "ended": "done", "turns": turns}
    cut = {"id": f"{entry.problem}#0.1", "ended": "turn_length", "turns": turns[1:],
           "counts": {"tool_calls": 1.0}}  # fmt: skip
    failed = {"id": f"{entry.problem}#0.2", "ended": "timeout", "turns": turns[:1]}
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (row, cut, failed)))
    found = run(commands.bench, "--file", path, "--with", "call_cost=0.25", "--json")
    assert found.exit_code == 0, found.output
    result = json.loads(found.output)
    first, second, third = result["conversations"]
    assert (first["score"], first["passed"], first["ended"]) == (0.75, True, "done")
    assert (second["score"], second["passed"]) == (0.0, False), "what was cut off is no answer"
    assert second["detail"] == "turn_length: no answer; 1 calls"
    assert (third["score"], third["passed"], third["ended"]) == (None, None, "timeout")
    (means,) = result["categories"].values()
    assert means == {"tasks": 1, "conversations": 3, "accuracy": 0.5, "score": 0.375}
    table = run(commands.bench, "--file", path).output
    assert "accuracy" in table


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


def test_write_needs_a_file():
    assert run(commands.verify_manifest, "--write").exit_code == pytest.approx(2)
