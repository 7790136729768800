"""The kit itself: what it says without a GPU, and that its comparison can fail."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.together.gpu_kit import right
from tests.together.gpu_kit.record import Record

HERE = Path(__file__).parent


def test_a_machine_without_a_gpu_is_told_so_part_by_part(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.together.gpu_kit.run", "--out", str(tmp_path)],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in (tmp_path / "gpu.jsonl").read_text().splitlines()]
    assert [line["part"] for line in lines] == list("ABCWRDGIE")
    assert {line["note"] for line in lines} == {"not made: torch sees no GPU here"}
    assert all(line["figure"] is None for line in lines)


@pytest.fixture
def on_the_cpu(monkeypatch):
    """The CPU in the place of the GPU."""
    made = right.made_of
    monkeypatch.setattr(right, "made_of", lambda case, _: made(case, "cpu"))


def findings(tmp_path, case):
    record = Record(tmp_path)
    right.record_one(record, "grids, bfloat16", right.case_of(case), {}, {})
    (found,) = record.findings
    return found


def test_a_step_that_is_right_passes(tmp_path, on_the_cpu):
    found = findings(tmp_path, {"dtype": "bfloat16", "flash": False, "beta": 0.05})
    assert found.ok is True
    assert 0 < found.figure <= found.limit < 0.1


def test_a_step_that_loses_a_part_of_its_gradient_does_not(tmp_path, on_the_cpu, monkeypatch):
    from rlvr_core.step import step

    plain = step.PolicyTrainer._losses

    def losses(self, *given):
        """Every loss is a tenth too large, in the case that is under test."""
        return [(term, replace(out, loss=1.1 * out.loss)) for term, out in plain(self, *given)]

    known = {}
    case = right.case_of({"dtype": "bfloat16", "flash": False})
    for dtype in ("bfloat16", "float32"):
        right.truth_of(case, dtype, known)
    monkeypatch.setattr(step.PolicyTrainer, "_losses", losses)
    record = Record(tmp_path)
    right.record_one(record, "grids, bfloat16", case, known, {})
    (found,) = record.findings
    assert found.ok is False
    assert found.figure == pytest.approx(0.1, rel=0.2)


def test_a_check_that_breaks_is_a_finding_and_the_next_goes_on(tmp_path):
    record = Record(tmp_path)
    record.attempt("B", "broken", lambda: 1 / 0)
    record.add("B", "next", 2.0, "s")
    broken, after = record.findings
    assert (broken.ok, broken.figure) == (False, None)
    assert "ZeroDivisionError" in broken.note
    assert after.figure == 2.0
    assert "ZeroDivisionError" in (tmp_path / "errors.txt").read_text()


@pytest.mark.slow
def test_tests_marked_gpu_import_nothing_that_a_bare_machine_with_a_gpu_lacks():
    lacks = ["rlvr_bs4", "rlvr_code", "rlvr_ifeval", "rlvr_sagemaker", "bs4", "boto3", "datasets"]
    lacks += ["moto", "playwright", "ray", "vllm", "trl"]
    script = f"""
import sys
sys.modules.update(dict.fromkeys({lacks}))
import pytest
sys.exit(pytest.main(["-m", "gpu", "--collect-only", "-q"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=HERE.parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "test_packed.py::" in done.stdout
