"""One vLLM engine of two processes against one of a single process, and against transformers."""

import importlib.util
import json
import os
import socket
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]

SCRIPT = ("-m", "plugins.rlvr_servers.tests.shared.tp_ranks")
FUSED = 4 * 5
"""q, k, v, gate and up of four layers, which vLLM fuses and splits over the processes."""


def launch(part, folder, processes, *, check=True):
    """What each process says, by rank, in order; they end by themselves."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = [[] for _ in range(processes)]
    started = []
    for rank in range(processes):
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        if processes > 1:
            env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
            env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            env |= {"LOCAL_WORLD_SIZE": str(processes)}
        words = [sys.executable, *SCRIPT, part, str(folder)]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(words, env=env, stdout=pipe, stderr=pipe, text=True))
    for process in started:
        out, err = process.communicate(timeout=400)
        assert process.returncode == 0 or not check, err[-3000:]
        for line in out.splitlines():
            said = json.loads(line)
            found[said["rank"]].append(said)
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return launch("sample", tmp_path_factory.mktemp("alone"), 1)[0][0]


@pytest.mark.essential
def test_two_processes_sample_what_one_does(tmp_path, alone):
    """Same tokens and text, seeded and greedy; log-probs and scores within rounding.

    One process has nothing to do in the first round, and less in the others.
    """
    (first,), (second,) = launch("sample", tmp_path, 2)
    assert (len(first["seeded"]), len(second["seeded"])) == (5, 0)
    largest = 0.0
    for part in ("seeded", "greedy", "cool"):
        together = [*first[part], *second[part]]
        assert [len(one) for one in together] == [2] * 5
        for ours, theirs in zip(together, alone[part], strict=True):
            for one, other in zip(ours, theirs, strict=True):
                assert (one["ids"], one["text"]) == (other["ids"], other["text"])
                apart = map(abs, map(float.__sub__, one["logprobs"], other["logprobs"]))
                largest = max([largest, *apart])
    scores = [*first["scores"], *second["scores"]]
    for ours, theirs in zip(scores, alone["scores"], strict=True):
        largest = max(largest, *map(abs, map(float.__sub__, ours, theirs)))
    print(f"largest difference of log-probs: {largest:.3g} nats")
    assert 0.0 < largest < 1e-4  # sums in another order: not to the bit


def test_two_processes_follow_syncs_and_read_their_weights_back(tmp_path):
    for found in launch("sync", tmp_path, 2):
        assert [one["tied"] for one in found] == [True, False]
        for one in found:
            assert max(one["distances"]) < 1e-4
            assert one["stayed"]
            assert (one["missing"], one["parts"]) == ([], FUSED)
            assert one["changed"] == ["model.layers.2.mlp.down_proj.weight"]
            # the last process had one more request when an answer came
            assert one["label"] == (2 if one["rank"] == 1 else None)


def test_time_that_is_over_and_an_abort(tmp_path):
    """Time that is over in one process ends the wait of all; an abort is of one's own requests."""
    (first,), (second,) = launch("late", tmp_path, 2)
    for one in (first, second):
        assert "was not finished within 0.05 s; 4 completions were left" in one["late"]
    assert first["states"] == ["failed", "cancelled", "answered"]
    assert second["states"] == ["failed", "answered", "answered"]


def test_when_processes_disagree_or_one_fails_all_say_why(tmp_path):
    """Other tokens in one process end the wait of both, now and when they go on."""
    (*told, first), (*others, second) = launch("fails", tmp_path, 2, check=False)
    for one in (*told, *others):
        assert "sampled different tokens from the same requests" in one["error"]
    assert len(told) == len(others) == 2
    assert "RunError: the disk of process 1 is full" in second["error"]
    assert "RunError: the disk of process 1 is full" in first["error"]
    assert "process 1" in first["error"].splitlines()[1]
    assert first["seconds"] < 60
