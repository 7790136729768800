"""Evaluations of a real run that are killed and run again, through both engines."""

import importlib.util
import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

LAX = "--allow-truncation"
TASK = ("--task", "toy/letters", LAX)
N = 24
ENGINES = [
    "transformers",
    pytest.param(
        "vllm",
        marks=[
            pytest.mark.slow,
            pytest.mark.vllm,
            pytest.mark.skipif(
                importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"
            ),
        ],
    ),
]


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def lab(tmp_path_factory, toy_site, make_lab, model_dir):
    """A run with a checkpoint, for all tests here."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("both")
        lab = make_lab(folder)
        patch.chdir(folder)
        patch.syspath_prepend(str(toy_site))
        for name, value in lab.env().items():
            patch.setenv(name, value)
        lab.run(model_dir, checkpoint={"every": 0})
        yield lab


@pytest.fixture(scope="module")
def killed(lab):
    """Results of an evaluation that was killed and run again, of each engine that is asked for."""
    found: dict[str, Path] = {}

    def evaluated(engine: str) -> Path:
        if engine not in found:
            found[engine] = kill_and_go_on(lab, engine)
        return found[engine]

    return evaluated


def kill_and_go_on(lab, engine: str) -> Path:
    slow = ("--with", "verifier=toy/slow", "--engine", engine, "--out", engine)
    arguments = ["eval", "last", *TASK, *slow]
    results = lab.folder / engine / "toy_letters" / "results.jsonl"
    with subprocess.Popen(
        lab.command(*arguments),
        cwd=lab.folder,
        env=lab.env(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 300
        while not (results.exists() and results.read_bytes().count(b"\n") >= 3):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    before = lines(results)
    assert 3 <= len(before) < N
    with results.open("a") as file:
        file.write('{"problem_id": "p23", "sam')  # as a kill in the middle of a line leaves it
    again = lab.rlvr(*arguments)
    assert f"going on: {len(before)} of {N}" in again.stderr
    kept = lines(results)
    assert [row for row in kept if row in before] == sorted(
        before, key=lambda row: int(row["problem_id"][1:])
    )
    # a third time there is nothing to do, and no model is loaded
    third = lab.rlvr(*arguments)
    assert "loading" not in third.stderr
    assert third.stdout == again.stdout
    return results.parent


@pytest.mark.parametrize("engine", ENGINES)
def test_t76_killed_and_run_again_it_ends_with_exactly_the_ids(killed, engine):
    folder = killed(engine)
    ids = [f"p{i}" for i in range(N)]
    assert [row["problem_id"] for row in lines(folder / "results.jsonl")] == ids
    assert [row["problem_id"] for row in lines(folder / "completions.jsonl")] == ids
    assert json.loads((folder / "summary.json").read_text())["n_problems"] == N
    assert json.loads((folder / "spec.json").read_text())["engine"]["use"] == f"core/{engine}"


def test_killed_and_run_again_it_holds_what_one_process_would_have_written(lab, killed):
    whole = ("--with", "verifier=toy/slow", "--engine", "transformers", "--out", "whole")
    lab.rlvr("eval", "last", *TASK, *whole)
    for name in ("completions.jsonl", "results.jsonl", "problems.jsonl", "spec.json"):
        one = (killed("transformers") / name).read_text()
        assert one == (lab.folder / "whole" / "toy_letters" / name).read_text(), name


@pytest.mark.slow
@pytest.mark.vllm
def test_both_engines_say_the_same(lab, killed):
    pytest.importorskip("vllm")
    (found,) = lab.json("compare", killed("transformers"), killed("vllm"))["tasks"]
    assert len(found["gained"]) + len(found["lost"]) <= 1  # a near tie may fall either way
    assert any(line.startswith("engine.use") for line in found["differs"])
