"""Which places that speak of CUDA are come by: ``cuda_places.txt`` against what runs.

    python tests/gpu_standin/reached.py            # compares, and says what is wrong
    python tests/gpu_standin/reached.py --write    # writes the list anew; reasons stay

The list has every place of ``branches.py`` under one heading: the stand-in comes by it in steps and
rehearsals, tests with a simulated card or without one do, or nobody does, and why.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import branches  # noqa: E402

LIST = HERE / "cuda_places.txt"
STAND_IN = "reached by the stand-in"
TESTS = "reached by tests that simulate a card, and by a run on a CPU"
NEW = "reached by nothing: say why, or write a test"
ROOT = branches.ROOT
FILES = (
    "tests/cli/test_doctor_gpu.py",
    "tests/engines/test_child_gpus.py",
    "tests/gpu_standin/test_simulated_card.py",
    "tests/launch/test_plan.py",
    "tests/planner/test_checkpointing.py",
    "tests/planner/test_room.py",
)
"""Tests that simulate a card."""

STEPS: tuple[Mapping[str, Any], ...] = (
    {"beta": 0.05},
    {"beta": 0.05, "offload": True},
    {"flash": False, "distillation": True},
    {"forward_paths": False, "dtype": "float32", "muon": True},
    {"lora": 4, "dtype": "float16", "beta": 0.05},
    {"vocab": 40_000},  # logits in chunks
    {"device": "cpu", "beta": 0.05, "muon": True},
)
REHEARSALS: tuple[Mapping[str, Any], ...] = (
    {"rehearsed": [0], "name": "NVIDIA H100 80GB HBM3", "groups": 2},
    {"memory": 1, "prompt": 10, "tokens": 40, "groups": 8, "budget": 400, "dtype": "float32"},
)


def read() -> dict[str, list[str]]:
    """Places by heading."""
    found: dict[str, list[str]] = {}
    for line in LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []:
        if line.startswith("== "):
            places = found.setdefault(line[3:], [])
        elif line.strip() and not line.startswith("#"):
            places.append(line)
    return found


def ran(*words: str) -> set[str]:
    """Places that a process of this file came by."""
    paths = [str(ROOT / "plugins" / name) for name in branches.PACKAGES[1:]]
    path = os.pathsep.join([str(ROOT), *paths, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, __file__, *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return set(json.loads(done.stdout.splitlines()[-1]))


def main(words: list[str]) -> int:
    """See the module; with a word, do what a process of its own does."""
    if words in ([], ["--write"]):
        found = {STAND_IN: ran("stand-in"), TESTS: ran("tests")}
        if words:
            write(found)
        wrong = differences(read(), branches.places(), found)
        sys.stdout.write("\n".join([*wrong, f"{len(wrong)} wrong\n"]))
        return bool(wrong)
    branches.watch()
    {"stand-in": stand_in, "tests": tests}[words[0]]()
    sys.stdout.write("\n" + json.dumps(sorted(branches.REACHED)) + "\n")
    return 0


def stand_in() -> None:
    """Steps, rehearsals and a run, as ``run.py``, ``rehearsals.py`` and ``whole_runs.py`` do."""
    import machine
    import rehearsals
    import run
    import whole_runs
    from steps import CASE

    machine.pretend()
    for case in STEPS:
        run.run({**CASE, "groups": 2, "budget": 40, **case})
    for case in REHEARSALS:
        if "rehearsed" in case:
            rehearsals.steps({**CASE, **case}, rehearsed=case["rehearsed"])
        else:
            rehearsals.run({**CASE, **case})
    with tempfile.TemporaryDirectory() as folder:
        for words in commands(Path(folder)):
            done = whole_runs.run({"words": words})
            assert done["code"] == 0, (words, done)
        assert whole_runs.run({"words": ["doctor", "--gpu"]})["code"] == 1  # nothing to measure


def commands(folder: Path) -> Iterator[list[str]]:
    """Runs, in bfloat16 with a reference and plain; a talk; the doctor, who makes steps himself."""
    from test_whole_run import QUICKSTART, words

    options = {"model__dtype": "bfloat16", "train__optimizer": "core/muon"}
    yield words(folder, loss__with__beta="0.01", **options)
    yield words(folder)
    yield ["chat", "tiny:math/arithmetic", "--prompt", "What is 12+34?"]
    few = ["train.prompts_per_step=4", "sampling.max_tokens=24", "model.dtype=bfloat16"]
    yield ["doctor", str(QUICKSTART), *(word for one in few for word in ("--set", one))]


def tests() -> None:
    """The files, and a run on the CPU, in this process."""
    import pytest

    from rlvr_core.cli.main import main

    code = pytest.main(["-q", "-n", "0", "-m", "not slow and not vllm and not gpu", *FILES])
    assert code == 0, f"pytest: {code}"
    with tempfile.TemporaryDirectory() as folder:
        for words in commands(Path(folder)):
            assert main(words) == 0, words


def differences(
    listed: Mapping[str, list[str]], there: Mapping[str, int], found: Mapping[str, set[str]]
) -> list[str]:
    """What is wrong with the list, a line each."""
    wrong = unlisted(listed, there)
    anybody = set().union(*found.values())
    for heading, places in listed.items():
        for place in places:
            if heading in found and place not in found[heading]:
                wrong.append(f"nothing came by it any more, and it is listed as {heading}: {place}")
            if heading not in found and place in anybody:
                wrong.append(f"it is reached, and listed as not: {place}")
    return wrong


def unlisted(listed: Mapping[str, list[str]], there: Mapping[str, int]) -> list[str]:
    """Places that are not in the list, or are in it and are no more."""
    known = [place for places in listed.values() for place in places]
    wrong = [
        f"{place.partition(' | ')[0]}:{there[place]}: no test reaches this and no reason says why "
        f"not: {place.partition(' | ')[2]}\n  write a test in tests/gpu_standin, or a line under a "
        f"reason in {LIST.name}: python tests/gpu_standin/reached.py --write"
        for place in there
        if place not in known
    ]
    wrong += [f"it is no more: {place}" for place in known if place not in there]
    wrong += [f"twice in the list: {place}" for place in {p for p in known if known.count(p) > 1}]
    return wrong + [f"a reason is missing: {place}" for place in listed.get(NEW, [])]


def write(found: Mapping[str, set[str]]) -> None:
    """Write the list anew; places that nothing reaches keep their heading."""
    reasons = {place: heading for heading, places in read().items() for place in places}
    by_heading: dict[str, list[str]] = {}
    for place in branches.places():
        by_run = [heading for heading in found if place in found[heading]]
        reason = reasons.get(place, NEW)
        reason = NEW if reason in found else reason
        by_heading.setdefault(by_run[0] if by_run else reason, []).append(place)
    order = [*found, *sorted(set(by_heading) - set(found))]
    parts = [f"== {one}\n" + "".join(f"{p}\n" for p in by_heading.get(one, [])) for one in order]
    head = "# Every place that speaks of CUDA: file | function | code | outcome. See reached.py.\n"
    LIST.write_text(head + "\n" + "\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
