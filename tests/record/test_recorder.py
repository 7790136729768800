import json
import math
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass

import pytest

from rlvr_core.api import EvalReport, Group, Metric, PluginError, RunError
from rlvr_core.api.components import declared_metrics
from rlvr_core.record.jsonl import read_jsonl
from rlvr_core.record.metrics import Glossary, lookup
from rlvr_core.record.recorder import Recorder


@dataclass
class Sampled:
    prompt_text: str
    group: Group


def lines(path):
    return list(read_jsonl(path))


def test_metrics_line_is_exact_and_sorted(folder):
    with Recorder(folder) as recorder:
        recorder.metrics(0, 1, {"pass_rate": 0.25, "loss": 0.1, "groups/drawn": 4})
    assert folder.metrics.read_bytes() == (
        b'{"step":0,"version":1,"groups/drawn":4,"loss":0.1,"pass_rate":0.25}\n'
    )


def test_metrics_that_are_not_finite_stay_json_and_are_named(folder):
    with Recorder(folder) as recorder:
        recorder.metrics(0, 0, {"loss": math.nan, "grad_norm": math.inf, "lr": 1.0})
    (line,) = lines(folder.metrics)
    assert line["loss"] is None
    assert line["non_finite"] == {"loss": "nan", "grad_norm": "inf"}


def test_a_metric_that_is_not_explained_is_refused(folder):
    with Recorder(folder) as recorder, pytest.raises(PluginError, match="rewrd") as caught:
        recorder.metrics(0, 0, {"rewrd": 1.0})
    assert lines(folder.metrics) == []
    assert 'reports = (Metric("rewrd"' in caught.value.complaints[0].remedy[0]


def test_a_metric_that_a_component_declares_is_written(folder):
    own = Glossary([Metric("cache/<part>", "Share of prompts found.", "share", "up")])
    with Recorder(folder, glossary=own) as recorder:
        recorder.metrics(0, 0, {"cache/prefix": 0.5})
    (line,) = lines(folder.metrics)
    assert line["cache/prefix"] == 0.5
    assert lookup("cache/prefix") is None


@pytest.mark.parametrize("given", [["a"], (1,), {"a": 1}])
def test_declarations_of_another_type_are_the_plugins_error(given):
    with pytest.raises(PluginError, match=r"Engine.reports is .* not a tuple of Metric"):
        declared_metrics(type("Engine", (), {"reports": given}))


def test_rollouts_hold_everything(folder, make_group):
    with Recorder(folder) as recorder:
        recorder.rollout(6, 5, make_group(), "2+2=", ["trained", "error"], [1.0, None], 17)
    (line,) = lines(folder.traces / "rollouts.jsonl")
    assert "fate" not in line
    assert (line["step"], line["version"], line["sampled_version"]) == (6, 5, 3)
    assert (line["problem_id"], line["dataset"], line["prompt"]) == ("p1", "sums", "2+2=")
    assert (line["prompt_ids"], line["draw_index"]) == ([1, 2], 17)
    assert line["completions"][0] == {
        "text": "4",
        "finish_reason": "stop",
        "version": 3,
        "n_tokens": 2,
        "verdicts": {
            "exact": {
                "score": 1.0, "status": "ok", "passed": True, "parts": {}, "extracted": "4",
                "detail": "",
            }
        },
        "reward": 1.0,
        "passed": True,
        "token_ids": [7, 8],
        "logprobs": [-0.5, -0.25],
        "loss_mask": [1, 0],
        "advantage": 1.0,
        "fate": "trained",
    }  # fmt: skip


def test_evaluations_get_a_file_each_and_a_line_of_the_index(folder, make_group):
    report = EvalReport({"accuracy": 0.5}, 1)
    sampled = [Sampled("2+2=", make_group())]
    with Recorder(folder) as recorder:
        for temperature in (1.0, 0.0, 0.0):
            recorder.evaluation(0, 0, "math/sums", temperature, report, sampled)
        recorder.evaluation(2, 2, "../../odd name", 1.0, report, sampled)
    index = lines(folder.evals / "index.jsonl")
    assert [line["file"] for line in index] == [
        "math_sums-t1-step000000.jsonl",
        "math_sums-t0-step000000.jsonl",
        "math_sums-t0-step000000-2.jsonl",
        "odd_name-t1-step000002.jsonl",
    ]
    assert index[0] == {
        "step": 0, "version": 0, "task": "math/sums", "temperature": 1.0, "n": 1,
        "metrics": {"accuracy": 0.5}, "file": "math_sums-t1-step000000.jsonl",
    }  # fmt: skip
    rows = lines(folder.evals / index[0]["file"])
    assert [(r["problem_id"], r["sample"], r["prompt"], r["text"], r["passed"]) for r in rows] == [
        ("p1", 0, "2+2=", "4", True),
        ("p1", 1, "2+2=", "5", False),
    ]


def write_steps(recorder, make_group, start, stop):
    offsets = {}
    for step in range(start, stop):
        offsets[step] = recorder.offsets()
        group = make_group(f"p{step}", texts=("x" * 40, f"{step}"))
        recorder.rollout(step, step, group, "q", ["trained", "trained"], [0.5, -0.5], step)
        recorder.metrics(step, step + 1, {"loss": 1 / (step + 3)})
        recorder.timing(step, step + 1, {"train": 0.1 * step}, {"tokens_per_second": 5})
        sampled = [Sampled("q", group)]
        recorder.evaluation(
            step + 1, step + 1, "t/e", 1.0, EvalReport({"accuracy": 1.0}, 1), sampled
        )
    return offsets


EXACT = ("metrics.jsonl", "traces/rollouts.jsonl", "evals/index.jsonl")


def exact(folder):
    return {name: lines(folder.path / name) for name in EXACT}


@pytest.mark.parametrize("segment_bytes", [1500, 10**9])
@pytest.mark.parametrize("cut", [0, 3])
def test_t94_a_resumed_run_writes_the_same_lines(folder, make_group, tmp_path, segment_bytes, cut):
    from rlvr_core.record.rundir import RunFolder

    whole = RunFolder.create(tmp_path, "whole", config_text="", resolved={})
    with Recorder(whole, segment_bytes=segment_bytes) as recorder:
        write_steps(recorder, make_group, 0, 6)

    with Recorder(folder, segment_bytes=segment_bytes) as recorder:
        offsets = json.loads(json.dumps(write_steps(recorder, make_group, 0, 6)[cut]))
    for name in (*EXACT, "traces/timing.jsonl"):
        with (folder.path / name).open("ab") as file:
            file.write(b'{"torn": ')
    with Recorder(folder, segment_bytes=segment_bytes) as recorder:
        assert recorder.rewind(offsets) == []
        write_steps(recorder, make_group, cut, 6)
    assert exact(folder) == exact(whole)
    assert folder.metrics.read_bytes() == whole.metrics.read_bytes()
    timing = lines(folder.traces / "timing.jsonl")
    assert [line.get("step", "resumed") for line in timing] == [
        *range(6), "resumed", *range(cut, 6),
    ]  # fmt: skip


def test_resume_from_the_very_start_and_with_a_lost_trace(folder, make_group):
    with Recorder(folder) as recorder:
        offsets = write_steps(recorder, make_group, 0, 3)
    (folder.traces / "rollouts.jsonl").unlink()
    with Recorder(folder) as recorder:
        (told,) = recorder.rewind(offsets[2])
        assert "rollouts.jsonl is shorter" in told
        assert [line["step"] for line in lines(folder.metrics)] == [0, 1]
        assert recorder.rewind({}) == []
    assert all(read == [] for read in exact(folder).values())


def test_a_second_process_cannot_write_in_the_same_run(folder):
    code = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from rlvr_core.record.recorder import Recorder
        from rlvr_core.record.rundir import RunFolder
        Recorder(RunFolder(Path(sys.argv[1])))
        """
    )
    command = [sys.executable, "-c", code, str(folder.path)]
    with Recorder(folder):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "another process is writing" in done.stderr
    assert subprocess.run(command, check=False).returncode == 0


def test_a_full_disk_is_said_and_leaves_whole_lines(folder, monkeypatch):
    recorder = Recorder(folder)
    recorder.metrics(0, 1, {"loss": 0.5})
    write = os.write

    def half(descriptor, data):
        if len(data) > 20:
            return write(descriptor, data[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(RunError, match="disk is full") as caught:
        recorder.metrics(1, 2, {"loss": 0.25})
    assert "metrics.jsonl" in str(caught.value)
    assert "free" in str(caught.value)
    monkeypatch.undo()
    recorder.metrics(1, 2, {"loss": 0.25})
    assert [line["loss"] for line in lines(folder.metrics)] == [0.5, 0.25]
    assert folder.metrics.read_bytes().count(b"\n") == 2
