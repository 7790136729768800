"""Time the pages of ``rlvr view`` on a large synthetic trace: while its index is built, and after.

    python benchmarks/viewer.py --megabytes 500

Writes the trace by the recorder's own stream, serves it over loopback, and prints the seconds of
each page (the slowest of what was asked) and of building the index.
"""

from __future__ import annotations

import argparse
import random
import socket
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import uvicorn

from rlvr_core.record.jsonl import Stream
from rlvr_core.record.manifest import Manifest
from rlvr_core.record.rundir import RunFolder
from rlvr_view.viewer.app import application
from rlvr_view.viewer.index import Cache
from rlvr_view.viewer.runs import Runs

GROUPS, SAMPLES = 32, 8
"""Groups of a step, completions of a group."""


def completion(rng: random.Random, words: list[str], step: int) -> dict[str, object]:
    """One completion as a run records it."""
    n, right = rng.randint(200, 800), rng.random() < 0.3 + step / 300
    verdict = {"score": float(right), "status": "ok", "passed": right, "parts": {}}
    return {
        "text": " ".join(rng.choices(words, k=n)),
        "finish_reason": "stop",
        "version": step,
        "n_tokens": n,
        "verdicts": {"math/boxed": {**verdict, "extracted": "4", "detail": "boxed: '4'"}},
        "reward": float(right),
        "passed": right,
        "token_ids": [rng.randrange(150_000) for _ in range(n)],
        "logprobs": [-rng.expovariate(3) for _ in range(n)],
        "loss_mask": [1] * n,
        "advantage": rng.gauss(0, 1),
        "fate": "trained",
    }


def make_run(root: Path, megabytes: int) -> tuple[RunFolder, int]:
    """Write a run whose rollouts have so many megabytes; its folder and number of groups."""
    resolved = {"run": {"name": "large"}, "train": {"steps": 200, "lr": 1e-6}}
    folder = RunFolder.create(root, "large", config_text="", resolved=resolved)
    manifest = Manifest.start(folder, name="large", command=["rlvr", "run"], plugins={})
    rng = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(5000)]
    stream, metrics = Stream(folder.traces / "rollouts.jsonl"), Stream(folder.metrics)
    draw = step = 0
    while stream.offset() < megabytes * 1_000_000:
        for _ in range(GROUPS):
            line = {"step": step, "version": step, "problem_id": f"p{draw % 700}"}
            line |= {"draw_index": draw, "dataset": "sums", "sampled_version": step}
            line |= {"tags": {"level": draw % 5}, "prompt": " ".join(rng.choices(words, k=60))}
            line["completions"] = [completion(rng, words, step) for _ in range(SAMPLES)]
            stream.write(line)
            draw += 1
        metrics.write({"step": step, "version": step, "reward/mean": 0.3 + step / 300})
        step += 1
    stream.close()
    metrics.close()
    manifest.finish("finished", steps=step)
    return folder, draw


def seconds(address: str) -> float:
    """Time of one page."""
    began = time.perf_counter()
    with urllib.request.urlopen(address) as answer:
        answer.read()
    return time.perf_counter() - began


def building(at: str) -> bool:
    """Whether the index is still being built."""
    with urllib.request.urlopen(f"{at}/rollouts") as answer:
        return b"in what was read so far" in answer.read()


def measure(home: str, folder: RunFolder, groups: int) -> None:
    """Ask for pages while the index is built and after; print the slowest of each."""
    at = f"{home}/runs/{folder.name}"
    pages = {
        "table of runs": home,
        "page of the run": at,
        "rollouts": f"{at}/rollouts",
        "rollouts, right": f"{at}/rollouts?answer=right&sort=longest",
        "rollouts, text that is nowhere": f"{at}/rollouts?text=qqqqqqqqqq",
    }
    began = time.perf_counter()
    slowest = {page: seconds(address) for page, address in pages.items()}
    while building(at):
        slowest = {page: max(slowest[page], seconds(one)) for page, one in pages.items()}
    built = time.perf_counter() - began
    pages |= {
        "group": f"{at}/groups/{groups // 2 // GROUPS}.{groups // 2}",
        "problem across steps": f"{at}/problem?id=p3",
    }
    after = {page: max(seconds(one) for _ in range(3)) for page, one in pages.items()}
    print(f"{'seconds':<32}{'building':>10}{'after':>8}")
    for page, took in after.items():
        before = f"{slowest[page]:.2f}" if page in slowest else ""
        print(f"{page:<32}{before:>10}{took:>8.2f}")
    print(f"the index took {built:.0f} s, with pages asked for all the time")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    given = parser.parse_args()
    wanted = given.megabytes
    with tempfile.TemporaryDirectory() as name:
        root, cache = Path(name) / "runs", Cache(Path(name) / "cache")
        folder, groups = make_run(root, wanted)
        print(f"{wanted} MB of rollouts, {groups:,} groups of {SAMPLES}")
        bound = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(application(Runs(root), cache), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            measure(f"http://127.0.0.1:{bound.getsockname()[1]}", folder, groups)
        finally:
            server.should_exit = True
            thread.join()
        size = cache.file(folder.path).stat().st_size / 1e6
        print(f"the index has {size:.0f} MB")


if __name__ == "__main__":
    main()
