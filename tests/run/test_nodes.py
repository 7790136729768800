"""``rlvr launch --backend accelerate``: a run on two machines, each with a network of its own.

The machines are network namespaces joined by a cable, where root may make some, else this machine's
loopback; each has a folder of its own, and knows its own name as the loopback address, as Debian
sets it up.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import time

import psutil
import pytest
import torch
from safetensors.torch import load_file

from tests.support.run_records import balanced, completions, lines

pytestmark = pytest.mark.slow

SAMPLER = {"use": "shuffle", "with": {"refill": 1.0}}
TRAIN = {
    "steps": 4,
    "prompts_per_step": 3,
    "lr": 1e-3,
    "warmup_steps": 1,
    "tokens_per_micro_batch": 60,
}
CABLE = "10.213.77"


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


ALL = pytest.mark.skipif(not os.environ.get("RLVR_TEST_ALL"), reason="takes minutes: make test-all")


@pytest.fixture(scope="module")
def network():
    """Words before the command of each machine, the address of machine 0, and the cable's end."""
    names = [f"rlvr-{os.getpid()}-{index}" for index in range(2)]
    ends = [f"rl{os.getpid() % 10**6}v{index}" for index in range(2)]
    made = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
        words = ["type", "veth", "peer", "name", ends[1], "netns", names[1]]
        ip("link", "add", ends[0], "netns", names[0], *words)
        for index, (name, end) in enumerate(zip(names, ends, strict=True)):
            ip("-n", name, "addr", "add", f"{CABLE}.{index + 1}/24", "dev", end)
            for device in (end, "lo"):
                ip("-n", name, "link", "set", device, "up")
        yield [["ip", "netns", "exec", name] for name in names], f"{CABLE}.1", (names[1], ends[1])
    except (OSError, subprocess.CalledProcessError):
        if len(made) == 2:
            raise
        yield [[], []], "127.0.0.1", None
    finally:
        for name in made:
            ip("netns", "del", name)


class Machines:
    """Two machines with the same config, and the command on each of them."""

    def __init__(self, labs, network):
        self.labs = labs
        self.before, self.address, self.cable = network

    def write(self, **sections):
        for lab in self.labs:
            lab.write(**sections)

    def start(self, *arguments, display="none"):
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        several = ["--backend", "accelerate", "--nodes", "2", "--main-port", str(port)]
        several += ["--main-address", self.address, "--processes", "1", "--display", display]
        self.launched = [
            subprocess.Popen(
                [*before, *lab.command("launch", *arguments, *several, "--node-rank", str(index))],
                cwd=lab.folder,
                env=lab.env(),
                stdout=None if display == "none" else subprocess.PIPE,
                stderr=subprocess.PIPE if display == "none" else subprocess.STDOUT,
                text=True,
            )
            for index, (lab, before) in enumerate(zip(self.labs, self.before, strict=True))
        ]

    def stop(self):
        for index, one in enumerate(self.launched):
            if one.poll() is None:
                self.lose(index)

    def end(self, timeout=200):
        """Exit code of each and what it told: standard error, or all where it has a display."""
        told = [one.communicate(timeout=timeout) for one in self.launched]
        told = [error if output is None else output for output, error in told]
        return [(one.returncode, text) for one, text in zip(self.launched, told, strict=True)]

    def run(self, *arguments):
        """Run to the end; the folder, which machine 0 has."""
        self.start(*arguments)
        for code, told in self.end():
            assert code == 0, told
        return self.labs[0].runs()[-1]

    def started(self, steps=2):
        """The folder of a run that has taken some steps."""
        until = time.monotonic() + 200
        while True:
            for run in self.labs[0].runs():
                path = run / "metrics.jsonl"
                if path.exists() and len(path.read_bytes().splitlines()) > steps:
                    return run
            assert all(one.poll() is None for one in self.launched), self.end()
            assert time.monotonic() < until
            time.sleep(0.05)

    def lose(self, index):
        """What a machine without power leaves: nothing. The processes that were there."""
        top = psutil.Process(self.launched[index].pid)
        everyone = [top, *top.children(recursive=True)]
        for process in everyone:
            process.send_signal(signal.SIGKILL)
        psutil.wait_procs(everyone, timeout=30)


@pytest.fixture
def machines(network, tmp_path_factory, make_lab):
    two = Machines([make_lab(tmp_path_factory.mktemp(f"machine{i}")) for i in range(2)], network)
    yield two
    two.stop()


def test_two_machines_do_the_run_of_one_with_two_processes(machines):
    machines.write(sampler=SAMPLER, train=TRAIN, checkpoint={"every": 2, "keep": 9})
    two = machines.run("config.yaml")
    lab = machines.labs[0]
    lab.rlvr("launch", "config.yaml", "--processes", "2", "--display", "none")
    one = lab.runs()[-1]
    assert one != two
    assert completions(two) == completions(one)
    for name in ("model.safetensors", "trainer/optimizer.safetensors"):
        ours, theirs = (load_file(run / "checkpoints" / "step000004" / name) for run in (two, one))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert json.loads((two / "run.json").read_text())["processes"] == 2
    balanced(machines.labs[0], two)
    assert not machines.labs[1].runs()


def test_when_a_machine_is_lost_the_other_ends_with_a_word_and_the_run_can_go_on(machines):
    machines.write(sampler=SAMPLER, train=TRAIN | {"steps": 5000}, checkpoint={"every": 2})
    machines.start("config.yaml")
    run = machines.started(steps=3)
    machines.lose(0)
    code, told = machines.end()[1]
    assert code == 1
    assert "another machine has failed or is gone" in told
    assert told.count("error:") == 1
    assert len(told.splitlines()) < 10
    checkpoints = [
        one for one in (run / "checkpoints").glob("step*") if (one / "COMPLETE").is_file()
    ]
    newest = max(int(one.name[4:]) for one in checkpoints)
    machines.start("--resume", str(run), "--set", f"train.steps={newest + 2}")
    for code, told in machines.end():
        assert code == 0, told
    balanced(machines.labs[0], run)
    assert [line["step"] for line in lines(run / "metrics.jsonl")] == list(range(newest + 2))
    record = json.loads((run / "run.json").read_text())
    assert (record["outcome"], record["resumed"][-1]["processes"]) == ("finished", 2)


@ALL
def test_both_machines_end_when_the_cable_is_cut(machines):
    """No word comes then, not even that the other is gone."""
    if machines.cable is None:
        pytest.skip("needs root, who may make network namespaces")
    name, end = machines.cable
    run = dict(machines.labs[0].config["run"], timeout=10)
    machines.write(run=run, sampler=SAMPLER, train=TRAIN | {"steps": 5000}, checkpoint={"every": 2})
    machines.start("config.yaml")
    machines.started()
    ip("-n", name, "link", "set", end, "down")
    try:
        ended = machines.end(timeout=300)
    finally:
        ip("-n", name, "link", "set", end, "up")
    for code, told in ended:
        assert code == 1
        assert told.count("error:") == 1
    # whether a wait or the connection ends first is the network's affair
    told = ended[0][1]
    assert "did not answer in time" in told or "ended without reporting an error" in told
    assert "another machine has failed or is gone" in ended[1][1]


def test_machines_with_another_config_and_other_code_are_refused_by_one_message(machines, tmp_path):
    machines.write(sampler=SAMPLER, train=TRAIN)
    ours, theirs = machines.labs
    theirs.write(sampler=SAMPLER, train=TRAIN | {"lr": 2e-3})
    theirs.site = shutil.copytree(theirs.site, tmp_path / "site")
    with (theirs.site / "rlvr_toy.py").open("a") as file:
        file.write("# newer\n")
    machines.start("config.yaml")
    (code, told), (other_code, _) = machines.end()
    assert code == 4
    assert other_code in (1, 4)  # by whether it still learns why the run is refused
    assert told.count("error:") == 1  # by machine 0 alone
    assert "files of rlvr_toy, value of train" in told
    assert not ours.runs()
    assert not theirs.runs()
