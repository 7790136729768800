"""What run.mirror costs a run: S3 that works, that fails at every tenth request, that is away.

    python benchmarks/mirror.py --steps 40 --repeats 3

Runs the same tiny run in turn without a mirror and with each kind of S3 (moto's server behind a
proxy that spoils requests), and prints the median of a step's seconds, its ratio to the run without
a mirror, and how long the end of the run waited for the last copies.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import boto3
import yaml
from moto.server import ThreadedMotoServer

from rlvr_core.testing.random_model import save_random_model

ROOT = Path(__file__).parents[1]
KINDS = {"none": None, "sound": 0.0, "10% fail": 0.1, "away": 1.0}
CHILD = """
import sys, time
from rlvr_cluster.stores import mirror
from rlvr_core.cli.main import main
mirror.PATIENCE = 2.0
close = mirror.Mirror.close
def timed(self, limit):
    begun = time.perf_counter()
    told = close(self, limit)
    print("waited", time.perf_counter() - begun, flush=True)
    return told
mirror.Mirror.close = timed
sys.exit(main())
"""


def helper(name: str) -> Any:
    """A module of the plugin's tests."""
    path = ROOT / "plugins" / "rlvr_sagemaker" / "tests" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"bench_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prepare(folder: Path, steps: int) -> None:
    """Model, data and config of the run."""
    save_random_model(folder / "model")
    rows = [{"id": f"p{i}", "question": f"Say {i}.", "answer": "x"} for i in range(64)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"path": "rows.jsonl", "prompt": "question", "id": "id", "verifier": "core/exact"}
    config = {
        "run": {"name": "bench", "seed": 1},
        "model": {"path": "model"},
        "data": {"sources": [{"use": "core/jsonl", "with": options}]},
        "sampler": {
            "use": "shuffle",
            "with": {"drop_zero_variance": False},
        },
        "sampling": {"n": 8, "max_tokens": 32},
        "engine": "transformers",
        "loss": {"use": "grpo", "with": {"beta": 0.1}},
        "train": {"steps": steps, "prompts_per_step": 8, "lr": 1e-3, "warmup_steps": 1},
        "checkpoint": {"every": 4, "keep": 3},
        "guards": [{"use": "guards/preflight", "off": True}],
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


def one(folder: Path, proxy: Any, rate: float | None, bucket: str) -> tuple[float, float]:
    """Seconds of a step and of the wait at the end."""
    words = ["run", "config.yaml", "--display", "none"]
    proxy.rate, proxy.down = rate or 0.0, rate == 1.0
    if rate is not None:
        words += ["--set", f"run.mirror=s3://{bucket}/runs"]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=rate != 1.0,  # a run whose store never answers says so at its end
    )
    proxy.calm()
    run = max((folder / "runs").iterdir(), key=lambda path: path.stat().st_ctime_ns)
    lines = (run / "traces" / "timing.jsonl").read_text().splitlines()
    seconds = [sum(v for k, v in json.loads(x)["seconds"].items() if "." not in k) for x in lines]
    waited = [float(x.split()[1]) for x in done.stdout.splitlines() if x.startswith("waited")]
    return statistics.fmean(seconds[1:]), waited[0] if waited else 0.0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    port = server.get_host_and_port()[1]
    proxy = helper("faulty").Proxy(port)
    os.environ |= {
        "AWS_ENDPOINT_URL": proxy.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test-only-not-real",
        "AWS_DEFAULT_REGION": "us-east-1",
        "RLVR_AWS_TIMEOUT": "1.5",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}").create_bucket(Bucket="bench")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in KINDS}
    with tempfile.TemporaryDirectory() as temporary:
        prepare(Path(temporary), asked.steps)
        for _ in range(asked.repeats):
            for name, rate in KINDS.items():  # in turn, so that a busy hour hits all alike
                found[name].append(one(Path(temporary), proxy, rate, "bench"))
    base = statistics.median(step for step, _ in found["none"])
    print(f"{'S3':10} {'s/step':>8} {'ratio':>7} {'end, s':>8}")
    for name, values in found.items():
        step = statistics.median(step for step, _ in values)
        end = statistics.median(end for _, end in values)
        print(f"{name:10} {step:8.3f} {step / base:7.2f} {end:8.1f}")
    proxy.close()
    server.stop()


if __name__ == "__main__":
    main()
