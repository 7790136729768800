"""``rlvr launch --backend ray --nodes``: machines that Ray places, on a real cluster.

Its nodes are raylets of this machine, with processors and GPUs that they only pretend to have.
"""

import contextlib
import json
import os
import re
import sys
import time

import psutil
import pytest
import torch
from safetensors.torch import load_file

from rlvr_core.api import Completion, ConfigError, Problem
from rlvr_core.builtin.ray import bundles
from rlvr_core.record.checkpoints import verify
from rlvr_core.verify.verdicts import VerifierSpec

pytest.importorskip("ray")

PATIENCE = 240.0
NODE = {"object_store_memory": 100 * 2**20}
SAMPLER = {"use": "shuffle", "with": {"refill": 1.0}}
TRAIN = {
    "steps": 4,
    "prompts_per_step": 4,
    "lr": 1e-3,
    "warmup_steps": 1,
    "tokens_per_micro_batch": 60,
}
LONG = TRAIN | {"steps": 5000}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def cluster(ray_jobs):
    """A head that only has the job server, and two nodes of four processors and two GPUs each."""
    with ray_jobs(num_cpus=0) as made:
        for _ in range(2):
            made.add_node(num_cpus=4, num_gpus=2, **NODE)
        yield made


@pytest.fixture
def submitted(lab, cluster, tmp_path, monkeypatch):
    """The arguments of ``rlvr launch`` for two machines of the cluster."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    return lambda *words: (
        *("launch", "config.yaml", "--backend", "ray", "--address", cluster.server),
        *("--store", f"file://{tmp_path}/store", "--python", sys.executable, "--nodes", "2"),
        *("--env", f"PYTHONPATH={lab.env()['PYTHONPATH']}", "--env", "OMP_NUM_THREADS=1"),
        *("--wait", *words),
    )


def wait_for(reached, what=""):
    until = time.monotonic() + PATIENCE
    while not (found := reached()):
        assert time.monotonic() < until, what
        time.sleep(0.1)
    return found


def ours(*words):
    """Processes of the cluster whose command has these words, one after the other."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            command = one.cmdline()
            places = range(len(command) - len(words) + 1)
            if any(command[at : at + len(words)] == [*words] for at in places):
                found.append(one)
    return found


def group_states(cluster):
    """States of the placement groups, by the cluster itself."""
    import ray

    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    try:
        return sorted(one["state"] for one in ray.util.placement_group_table().values())
    finally:
        ray.shutdown()


def completions(run):
    return [
        (group["draw_index"], [(c["token_ids"], c["reward"]) for c in group["completions"]])
        for group in lines(run / "traces" / "rollouts.jsonl")
    ]


def until(waiting, what):
    """What a command prints, up to the line with this pattern."""
    shown = ""
    for line in waiting.stdout:
        shown += line
        if re.search(what, " ".join(line.split())):
            return shown
    raise AssertionError(shown)


def until_step(waiting, step):
    return until(waiting, f"step {step}/")


def nothing_left():
    """Whether every process of a job ends, those of the machines with it."""
    return wait_for(lambda: not (ours("--node-rank") or ranks()))


def ranks():
    return ours("rlvr_core.builtin.jobs.commands.rank")


def lose_machine(cluster, index):
    """Kill the raylet of a machine, and what it needs."""
    parents = ours("--node-rank", str(index))[0].parents()
    pids = {one.pid for one in parents}
    (node,) = [
        one
        for one in cluster.worker_nodes
        if any(kind.process.pid in pids for kind in one.all_processes["raylet"])
    ]
    cluster.remove_node(node, allow_graceful=False)


def fetched(lab, job="last"):
    lab.rlvr("jobs", "download", job)
    (run,) = lab.runs()
    return run


# -- plans ---------------------------------------------------------------------------------------


def plan(lab, *words, check=0):
    asked = ("launch", "config.yaml", "--backend", "ray", "--store", "file:///shared/runs")
    return lab.rlvr(*asked, "--nodes", "2", *words, check=check)


def test_a_plan_says_what_is_reserved_for_machines_and_actors(lab):
    lab.write(
        engine={"use": "ray", "with": {"actors": 3, "gpus": 0.5}},
        verify={"workers": 5, "pool": {"use": "ray-pool", "with": {"actors": 2}}},
    )
    words = ("--gpus", "2", "--cpus", "8", "--memory-gb", "1.5", "--resources", "lab=1")
    told = plan(lab, *words, "--dry-run").stdout
    machine = "8 CPU, 2 GPU, 1.5 GiB of memory, 1 lab"
    # 2 machines, and 2 x 2 processes with 3 + 2 actors each
    assert (
        f"one placement group, reserved before anything starts: 2 machines of {machine} each, "
        "8 actors of 5 CPU each (verifiers), 12 actors of 1 CPU, 0.5 GPU each (engine)"
    ) in told
    assert "training processes on each machine: 2" in told
    made = json.loads(plan(lab, *words, "--dry-run", "--json").stdout)["plan"]
    assert made["resources"] == {}  # what waits for the machines needs none itself
    assert made["group"]["machine"] == {"CPU": 8, "GPU": 2, "memory": 1610612736, "lab": 1}
    wanted = ["--backend", "accelerate", "--processes", "2", "--gpus", "0,1"]
    assert made["command"][-6:] == wanted


def test_servers_of_an_environment_have_bundles_too(lab):
    ray = {"environment": {"use": "core/lookup"}, "servers": 2, "cpus": 0.5}
    lab.write(environment={"use": "core/remote", "with": {"ray": ray}})
    told = plan(lab, "--dry-run").stdout
    assert "2 machines of 1 CPU each, 4 actors of 0.5 CPU each (environment)" in told
    # a server without processors is placed as without a job
    none = plan(lab, "--dry-run", "--set", "environment.with.ray.cpus=0").stdout
    assert "2 machines of 1 CPU each\n" in none


# -- bundles -------------------------------------------------------------------------------------


def test_each_process_has_its_own_bundles_after_those_of_the_machines(monkeypatch):
    actors = {"engine": [{}] * 3, "environment": [{}]}
    group = "5" * 36  # an id of Ray
    monkeypatch.setenv(bundles.GROUP, bundles.group_variable(group, 2, actors))
    found = []
    for rank in range(3):
        monkeypatch.setattr(bundles, "_taken", set())
        monkeypatch.setenv("RANK", str(rank))
        ours = [bundles.reserved(*asked, "w") for asked in (("engine", 3), ("environment", 1))]
        found.append([one.first for one in ours])
        assert {one.group.id.hex() for one in ours} == {group}
        assert not any(one.own for one in ours)
    # machines 0 and 1; then 3 + 1 of process 0, and so on
    assert found == [[2, 5], [6, 9], [10, 13]]
    assert bundles.reserved("engine", 3, "w") is None  # a bundle has room for one actor
    assert bundles.reserved("verifiers", 1, "w") is None
    monkeypatch.setattr(bundles, "_taken", set())
    with pytest.raises(ConfigError, match="has reserved 3 bundles for"):
        bundles.reserved("engine", 4, "engine.with")
    monkeypatch.delenv("RANK")  # the launcher of the processes is none of them
    assert bundles.reserved("engine", 3, "w") is None


# -- on a cluster --------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_machines_with_actors_in_one_group_do_the_run_of_one_bit_for_bit(
    lab, cluster, submitted
):
    """Four processes on two machines, each with an actor; and four here, without Ray."""
    sections = {"sampler": SAMPLER, "train": TRAIN, "checkpoint": {"every": 2, "keep": 9}}
    lab.write(**sections, engine={"use": "ray", "with": {"actors": 1}})
    before = len(group_states(cluster))
    done = lab.rlvr(*submitted("--processes", "2", "--cpus", "2"), timeout=550)
    job, *log = done.stdout.splitlines()
    assert [line.split()[1] for line in log if line.startswith("step ")][-1] == "4/4"
    two = fetched(lab, job)
    assert json.loads((two / "run.json").read_text())["processes"] == 4
    assert [one["engine/actors"] for one in lines(two / "metrics.jsonl")] == [4] * 4
    # the actors made no groups of their own: there was one
    assert group_states(cluster)[before:] == ["REMOVED"]
    lab.write(**sections)
    lab.rlvr("launch", "config.yaml", "--processes", "4", "--display", "none")
    one = lab.runs()[-1]
    assert one != two
    for name in ("model.safetensors", "trainer/optimizer.safetensors"):
        first, second = (load_file(run / "checkpoints" / "step000004" / name) for run in (one, two))
        torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert completions(two) == completions(one)


@pytest.mark.slow
def test_a_job_that_is_stopped_finishes_its_step_on_every_machine(lab, submitted):
    lab.write(sampler=SAMPLER, train=LONG, checkpoint={"every": 4000})
    waiting = lab.started(*submitted(), together=True)
    try:
        shown = until_step(waiting, 2)
        assert len(ours("--node-rank")) == 2
        lab.rlvr("jobs", "stop", "last")
        shown += waiting.stdout.read()
        assert waiting.wait(PATIENCE) == 130, shown
    finally:
        waiting.kill()
    assert "stopped (STOPPED" in shown
    run = fetched(lab)
    assert json.loads((run / "run.json").read_text())["outcome"] == "interrupted"
    last = sum(1 for _ in (run / "metrics.jsonl").open())
    assert 2 <= last < 4000
    (checkpoint,) = (run / "checkpoints").glob("step*")
    assert checkpoint.name == f"step{last:06}"
    assert verify(checkpoint) is None
    assert nothing_left()


@pytest.mark.slow
def test_a_machine_that_is_lost_ends_the_run_which_goes_on_by_itself_or_when_resumed(
    lab, cluster, submitted, tmp_path
):
    # beforehand: a new node of this machine unpacks the files of jobs again, over those in use
    cluster.add_node(num_cpus=4, num_gpus=2, **NODE)
    lab.write(sampler=SAMPLER, train=LONG, checkpoint={"every": 2})
    waiting = lab.started(*submitted("--restarts", "1", "--grace", "60"), together=True)
    try:
        shown = until_step(waiting, 3)
        wait_for(lambda: list(tmp_path.glob("store/**/step*/COMPLETE")))
        lose_machine(cluster, 1)
        shown += until(waiting, "is started again, 1 left")
        shown += until(waiting, r"step \d+/")
        lose = ours("--node-rank", "0")[0]
        lose.kill()  # the command of a machine that stays
        shown += waiting.stdout.read()
        code = waiting.wait(PATIENCE)
    finally:
        waiting.kill()
    assert code == 137, shown
    assert "machine 1 (" in shown
    assert "was lost while the run was at work" in shown
    assert "going on with lab-" in shown
    assert "Traceback" not in shown
    assert nothing_left()
    first = fetched(lab)
    newest = max(int(one.name[4:]) for one in (first / "checkpoints").glob("step*"))
    again = ("launch", "--backend", "ray", "--resume", "last", "--wait")
    done = lab.rlvr(*again, "--set", f"train.steps={newest + 1}", "--restarts", "0")
    assert f"step {newest + 1}/{newest + 1}" in done.stdout
    lab.rlvr("jobs", "download", "last", "--to", "again")
    (run,) = (lab.folder / "again").glob("lab-*")
    assert [one["step"] for one in lines(run / "metrics.jsonl")] == list(range(newest + 1))


@pytest.mark.slow
def test_a_group_for_which_there_is_no_room_starts_nothing(lab, cluster, submitted):
    """There would be room for the machines, and not for their actors as well."""
    lab.write(engine={"use": "ray", "with": {"actors": 2, "cpus": 4}})
    done = lab.rlvr(*submitted("--deadline", "3"), check=4)
    assert (
        "error: the Ray cluster had no room for 2 machines of 1 CPU each, 4 actors of 4 CPU "
        in (done.stdout)
    )
    assert "(engine) within 3 s" in done.stdout
    assert "CPU free" in done.stdout
    assert "Traceback" not in done.stdout
    assert "REMOVED" in group_states(cluster)
    assert not {"CREATED", "PENDING"} & set(group_states(cluster))


LENGTHS = """
from rlvr_core.api import Done, Message, NoConfig, Observation, Verdict


class Length:
    Config = NoConfig

    def __init__(self, config):
        pass

    def verify(self, problem, completion):
        return Verdict(float(len(completion.text)), passed=True)


class Echo:
    Config = NoConfig

    def __init__(self, config):
        pass

    def start(self, problem, seed):
        return None

    def step(self, state, reply):
        return Done(Verdict(float(len(reply.text)), passed=True))
"""


@pytest.mark.slow
def test_verifiers_and_servers_of_environments_use_the_bundles_of_the_job(
    cluster, tmp_path, monkeypatch
):
    """The group has all the processors there are: with groups of their own they would not start."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    from rlvr_core.builtin.env_servers.on_ray import Fleet, RayServers
    from rlvr_core.builtin.ray.verifiers import RayVerifierPool

    (tmp_path / "ray_lengths.py").write_text(LENGTHS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(bundles, "_taken", set())
    environment = {"env_vars": {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}}
    ray.init(cluster.address, log_to_driver=False, runtime_env=environment)
    try:
        four = {"CPU": 4}
        group = placement_group([four, four])
        assert group.wait(PATIENCE)
        actors = {"verifiers": [four], "environment": [four]}
        monkeypatch.setenv(bundles.GROUP, bundles.group_variable(group.id.hex(), 0, actors))
        monkeypatch.setenv("RANK", "0")
        given = {"cpus": 4, "deadline": 60}
        verifiers = {"length": VerifierSpec("ray_lengths:Length", {})}
        limits = {"workers": 1, "timeout": 20, "memory_mb": 2048}
        with RayVerifierPool(given, verifiers, **limits) as pool:
            answer = Completion((1,), (5,), (-0.5,), (True,), "four", "stop")
            problem = Problem("p", "2+2=", "length", {}, "sums")
            (found,) = pool.submit_group(problem, [answer], ["length"]).result(PATIENCE)
            assert found["length"].score == 4.0
        fleet = Fleet(RayServers(environment={"use": "ray_lengths:Echo"}, **given))
        assert fleet.url(0).startswith("ws://")
        (left,) = [
            one for one in ray.util.placement_group_table().values() if one["state"] == "CREATED"
        ]
        assert left["placement_group_id"] == group.id.hex()  # neither gives back what is the job's
        remove_placement_group(group)
    finally:
        ray.shutdown()


STAND_IN = """#!/bin/sh
case "$*" in
  *ray.trainers*) exec {python} "$@";;
esac
echo "GPUs $CUDA_VISIBLE_DEVICES threads $OMP_NUM_THREADS $*"
exit 3
"""


@pytest.mark.slow
def test_the_processes_of_a_machine_see_the_gpus_that_ray_gave_it(lab, submitted, tmp_path):
    """A shell script in place of the launcher on the machine; the GPUs are pretended."""
    python = tmp_path / "stand-in"
    python.write_text(STAND_IN.format(python=sys.executable))
    python.chmod(0o755)
    lab.write(engine={"use": "vllm-server"})
    words = ("--gpus", "1", "--engine-gpus", "1", "--cpus", "3", "--python", str(python))
    told = lab.rlvr(*submitted(*words), check=3).stdout.splitlines()
    said = [line for line in told if "GPUs 0,1" in line or "GPUs 1,0" in line]
    places = [line for line in said if line.startswith("rlvr: machine ")]
    commands = [line for line in said if " threads " in line]
    assert len(places) == len(commands) == 2, told
    assert [line.split(" ")[0] for line in commands].count("[machine") == 1
    for line in commands:
        assert "--gpus 0 --engine-gpus 1" in line  # places within what Ray gave
        assert "threads 1 " in line
