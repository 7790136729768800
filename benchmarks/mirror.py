"""What run.mirror costs a run: seconds of a step with and without a mirror in S3 (moto's server).

    python benchmarks/mirror.py [--steps 40] [--repeats 3]

Runs the same tiny run in turn without and with a mirror, and prints the mean of a step's seconds
and its ratio to the run without.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import boto3
import yaml
from moto.server import ThreadedMotoServer

from rlvr_core.testing.random_model import save_random_model

KINDS = {"no mirror": [], "mirror in S3": ["--set", "run.mirror=s3://bench/runs"]}


def prepare(folder: Path, steps: int) -> None:
    """Write model, data and config of the run."""
    save_random_model(folder / "model")
    rows = [{"id": f"p{i}", "question": f"Say {i}.", "answer": "x"} for i in range(64)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"path": "rows.jsonl", "prompt": "question", "id": "id", "verifier": "core/exact"}
    config = {
        "run": {"name": "bench", "seed": 1},
        "model": {"path": "model"},
        "data": {"sources": [{"use": "core/jsonl", "with": options}]},
        "sampler": {"use": "shuffle", "with": {"drop_zero_variance": False}},
        "sampling": {"n": 8, "max_tokens": 32},
        "engine": "transformers",
        "loss": {"use": "grpo", "with": {"beta": 0.1}},
        "train": {"steps": steps, "prompts_per_step": 8, "lr": 1e-3, "warmup_steps": 1},
        "checkpoint": {"every": 4, "keep": 3},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


def seconds_of_a_step(folder: Path, options: list[str]) -> float:
    """Make the run, and read its timing; the first step is left out."""
    command = [sys.executable, "-m", "rlvr_core.cli.main", "run", "config.yaml"]
    command += ["--display", "none", *options]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    run = max((folder / "runs").iterdir(), key=lambda path: path.stat().st_ctime_ns)
    lines = (run / "traces" / "timing.jsonl").read_text().splitlines()
    seconds = [json.loads(line)["seconds"] for line in lines[1:]]
    return statistics.fmean(sum(v for k, v in step.items() if "." not in k) for step in seconds)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    url = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    os.environ |= {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test-only-not-real",
        "AWS_DEFAULT_REGION": "us-east-1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    boto3.client("s3", endpoint_url=url).create_bucket(Bucket="bench")
    measured: dict[str, list[float]] = {name: [] for name in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), given.steps)
        for _ in range(given.repeats):
            for name, options in KINDS.items():  # in turn, so that a busy hour hits all alike
                measured[name].append(seconds_of_a_step(Path(folder), options))
    base = statistics.median(measured["no mirror"])
    print(f"{'run':12} {'s/step':>8} {'ratio':>7}")
    for name, values in measured.items():
        step = statistics.median(values)
        print(f"{name:12} {step:8.3f} {step / base:7.2f}")
    server.stop()


if __name__ == "__main__":
    main()
