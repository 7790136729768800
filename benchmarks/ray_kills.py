"""A run on a Ray cluster of four nodes, whose rollout actors are killed twenty times.

    python benchmarks/ray_kills.py [--kills 20] [--steps 600]

The tiny model of ``examples/quickstart.yaml`` is trained twice: with the engine in the run, and
with three actors on a cluster of four raylets on this machine. Of the second, an actor is killed by
``kill -9`` again and again, after a third of the kills one node is removed, after two thirds
another one added. Printed are what both runs learnt, what was lost and sampled again, and whether
the ledger balances. Needs ``pip install rlvr-core[ray]``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import psutil
import yaml

ROOT = Path(__file__).parents[1]
NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20}


def lines(run: Path) -> list[dict[str, Any]]:
    """Return the metrics of the steps so far; a last line may be half written."""
    path = run / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def started(folder: Path, name: str, engine: Any, steps: int) -> tuple[Path, subprocess.Popen[str]]:
    """Start a run of the tiny model; return its folder and its process."""
    config = yaml.safe_load((ROOT / "examples" / "quickstart.yaml").read_text())
    del config["eval"]
    config["run"] = {"name": name, "dir": str(folder / name)}
    config["engine"] = engine
    config["train"] |= {"steps": steps, "prompts_per_step": 16}
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config))
    words = [sys.executable, "-m", "rlvr_core.cli.main", "run", str(file), "--display", "none"]
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, text=True)
    while process.poll() is None and not list((folder / name).glob("*/run.json")):
        time.sleep(0.2)
    found = list((folder / name).glob("*/run.json"))
    if not found:
        sys.exit((folder / f"{name}.log").read_text())
    return found[0].parent, process


def actors() -> list[psutil.Process]:
    """Return the rollout actors that have started."""
    found = []
    for one in psutil.Process().children(recursive=True):
        try:
            words = " ".join(one.cmdline()).strip()
            if words.startswith("ray::RolloutActor") and not words.endswith(".start"):
                found.append(one)
        except psutil.Error:
            continue
    return found


def disturb(run: Path, process: subprocess.Popen[str], cluster: Any, kills: int) -> int:
    """Kill actors, remove a node and add one while the run lasts; return the number of kills."""
    draw, done, seen = random.Random(0), 0, 0
    spare = cluster.spare
    while process.poll() is None and done < kills:
        time.sleep(0.2)
        steps = lines(run)
        some = actors()
        if len(steps) < seen + 2 or steps[-1]["engine/actors"] < 2 or len(some) < 2:
            continue  # the last kill is still felt
        one = draw.choice(some)
        os.kill(one.pid, signal.SIGKILL)
        done, seen = done + 1, len(steps)
        print(f"step {seen}: actor {one.pid} killed, {done} of {kills}", flush=True)
        if done == kills // 3:
            cluster.remove_node(spare)
            print("a node removed", flush=True)
        if done == 2 * kills // 3:
            cluster.add_node(**NODE)
            print("a node added", flush=True)
    return done


def told(run: Path) -> dict[str, Any]:
    """Return what ``rlvr show`` says of a run."""
    words = [sys.executable, "-m", "rlvr_core.cli.main", "show", str(run), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def main() -> int:
    """Print both runs; the exit code is 1 if anything is not as promised."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=600)
    given = parser.parse_args()
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(**NODE) for _ in range(3)]
        cluster.spare = nodes[-1]
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            options = {"engine": "transformers", "actors": 3, "address": cluster.address}
            engine = {"use": "ray", "with": options | {"deadline": 300}}
            run, process = started(folder, "killed", engine, given.steps)
            killed = disturb(run, process, cluster, given.kills)
            code = process.wait()
            if code:
                print((folder / "killed.log").read_text()[-3000:])
            steps = lines(run)
            print(
                f"exit code {code}; {killed} actors killed; {len(steps)} steps, "
                f"{sum(one['engine/restarts'] for one in steps)} restarts, "
                f"{sum(one['engine/resent'] for one in steps)} completions sampled again; "
                f"ledger balanced: {told(run)['ledger']['balanced']}"
            )
            plain, alone = started(folder, "plain", "core/transformers", given.steps)
            alone.wait()
            print("reward, mean of fifty steps: with kills, without Ray")
            for first in range(0, given.steps, 50):
                means = [
                    sum(one["reward/mean"] for one in rows[first : first + 50]) / 50
                    for rows in (steps, lines(plain))
                ]
                print(f"  {first + 1:4d}  {means[0]:.3f}  {means[1]:.3f}")
            return int(code != 0 or killed < given.kills or not told(run)["ledger"]["balanced"])
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
