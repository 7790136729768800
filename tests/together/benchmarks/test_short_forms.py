"""Each benchmark runs, in a short form, and prints its table."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BENCHMARKS = ROOT / "benchmarks"
DATA = Path(os.environ.get("RLVR_DATA", ROOT.parent / "shared" / "data"))
TINY_CASE = ["--case", "0.8M:8x8x32", "--rounds", "1", "--steps", "1", "--warm-up", "1"]

SHORT = {
    "asynchronous": TINY_CASE,
    "forward": ["--quick", "--threads", "1"],
    "gym_gate": ["--tasks", "basic_arithmetic", "--n", "3"],
    "interval_coverage": ["--quick"],
    "sandbox": ["--seconds", "0.5", "--workers", "2"],
    "step": ["--quick"],
    "verifiers": ["--rows", "20"],
    "viewer": ["--megabytes", "2"],
}
NEEDS = {
    "gym_gate": "reasoning_gym",
    "step": "trl",
    "verifiers": "math_verify",
    "viewer": "uvicorn",
}
ELSEWHERE = {
    "verifier_agreement": "plugins/rlvr_math/tests/test_agreement.py",
    "engines": "test_engines_side_by_side, with vLLM",
}
"""Benchmarks whose short form is another test."""
PARTS = {"step_clock", "step_ours", "step_task", "step_trl", "step_turns"} | {
    "verifier_reasons",
    "verifier_rows",
}
"""Modules that benchmarks import."""


def ran(name, arguments):
    done = subprocess.run(
        [sys.executable, BENCHMARKS / f"{name}.py", *arguments],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "RLVR_DATA": str(DATA)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_benchmark_has_a_short_form():
    programs = {path.stem for path in BENCHMARKS.glob("*.py")} - PARTS
    assert programs == SHORT.keys() | ELSEWHERE.keys()


@pytest.mark.slow
@pytest.mark.timeout(1230)
@pytest.mark.parametrize("name", SHORT)
def test_a_short_form_runs(name):
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    if name == "verifiers" and not (DATA / "math").is_dir():
        pytest.skip(f"no math/ in {DATA}: set RLVR_DATA to its folder")
    assert ran(name, SHORT[name]).strip()


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.timeout(1230)
def test_engines_side_by_side():
    assert "start vllm" in ran("engines", ["--sizes", "0.8M", "--rounds", "1"])
