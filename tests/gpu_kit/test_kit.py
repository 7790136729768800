"""The kit itself: what it says without a GPU, and that its comparison can fail."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "gpu_standin")]
import engines  # noqa: E402
import right  # noqa: E402
import runs  # noqa: E402
import several  # noqa: E402
from record import Record  # noqa: E402


def test_a_machine_without_a_gpu_is_told_so_part_by_part(tmp_path):
    done = subprocess.run(
        [sys.executable, str(HERE / "run.py"), "--out", str(tmp_path)],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in (tmp_path / "gpu.jsonl").read_text().splitlines()]
    assert [line["part"] for line in lines] == list("ABCWRDGIEF")
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
    record.add("B", "next", 2.0, "s", predicted=4.0)
    broken, after = record.findings
    assert (broken.ok, broken.figure) == (False, None)
    assert "ZeroDivisionError" in broken.note
    assert after.ratio == 0.5
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
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "test_packed.py::" in done.stdout


def of_vllm(tmp_path, monkeypatch, **changes):
    """Verdicts on a run of ten steps with these numbers."""
    healthy = {"step": [1.0] * 10, "parity/mean": [0.01] * 10, "seeds/astray": [0.0] * 10}
    healthy["gpu/peak_memory"] = [3.0, 2.0, *[1.0] * 8]
    given = (0, "sync 0.4 s\nsync 0.2 s\nsync 0.3 s", healthy | changes)
    monkeypatch.setattr(engines, "ran", lambda *_: given)
    record = Record(tmp_path)
    engines.ten_steps(record, "model", "bfloat16")
    return {one.check.partition(": ")[2]: one for one in record.findings}


def test_ten_steps_with_vllm_are_judged(tmp_path, monkeypatch):
    found = of_vllm(tmp_path, monkeypatch)
    assert {one.ok for one in found.values()} == {True, None}
    assert found["sync"].figure == 0.3
    growth = "peak of the last step by the third's"
    assert found[growth].figure == 1.0
    grown = of_vllm(tmp_path, monkeypatch, **{"gpu/peak_memory": [3.0, 2.0, *[1.0] * 7, 1.03]})
    assert grown[growth].ok is False
    apart = of_vllm(tmp_path, monkeypatch, **{"parity/mean": [0.01] * 9 + [0.04]})
    assert (apart["parity"].ok, apart["parity"].figure) == (False, 0.04)
    few = of_vllm(tmp_path, monkeypatch, step=[1.0] * 9)
    assert few["steps"].ok is False
    strange = of_vllm(tmp_path, monkeypatch, **{"seeds/astray": [0.0, 1.0]})
    assert strange["completions of another seed"].ok is False


@pytest.mark.parametrize(("peak", "ok"), [(9.1, True), (11.2, False)])
def test_the_peak_of_a_rank_is_within_a_tenth_of_the_formula(tmp_path, monkeypatch, peak, ok):
    said = f"x\nthe largest micro-batch (16,384 tokens) fits: {peak} of 79.2 GiB\ny"
    monkeypatch.setattr(several, "launched", lambda *_: said)
    monkeypatch.setattr(several, "formula", lambda *_: 10.0)
    from rlvr_core.testing import random_model

    monkeypatch.setattr(random_model, "save_random_model", lambda *_, **__: None)
    record = Record(tmp_path)
    several.fsdp(record)
    (found,) = record.findings
    assert found.ok is ok
    assert found.figure == pytest.approx(abs(peak - 10) / 10)
    assert "16,384 tokens" in found.note
    with pytest.raises(RuntimeError, match="did not try"):
        several.rehearsed("finished")


def test_the_formula_is_of_a_rank_of_two(tmp_path):
    from rlvr_core.testing.random_model import save_random_model

    (tmp_path / "vowels.py").write_text((HERE / "vowels.py").read_text())
    save_random_model(tmp_path / "model", hidden_size=1024, num_hidden_layers=2)
    words = runs.words_of(HERE / "wide.yaml", tmp_path, str(tmp_path / "model"), 4)
    one = several.formula(
        [*words, *setting("model.dtype=bfloat16", "train.warmup_steps=0")], tmp_path
    )
    two = several.formula([*words, *setting(*several.CHANGES)], tmp_path)
    assert 0 < two < one


def setting(*changes):
    return [word for change in changes for word in ("--set", change)]


@pytest.mark.slow
@pytest.mark.vllm
def test_part_e_without_a_gpu(tmp_path):
    """vLLM's CPU build: parity, seeds, ten steps; nothing sleeps, and no card's memory grows."""
    record = Record(tmp_path)
    engines.ten_steps(record, "tiny:math/arithmetic", "float32", *ON_A_CPU)
    engines.repeated(record, "tiny:math/arithmetic", *ON_A_CPU)
    assert [one.check for one in record.findings if one.ok is False] == []
    assert len([one for one in record.findings if one.ok]) == 3


ON_A_CPU = ("train.prompts_per_step=4", "sampling.max_tokens=16")
