"""Verifiers on the nodes of a real Ray cluster, several nodes on this machine."""

import hashlib
import json
import os
import signal

import psutil
import pytest

from plugins.rlvr_cluster.tests.ray.processes import NODE, PATIENCE, of_the_cluster, wait_for
from rlvr_core.api import Completion, ConfigError, MachineError, Problem, RunError
from rlvr_core.config.resolve import resolve_file
from rlvr_core.plugins.host import load_host
from rlvr_core.record.jsonl import read_jsonl
from rlvr_core.verify.pool import VerifierPool
from rlvr_core.verify.verdicts import VerifierSpec

LIMITS = {"workers": 1, "timeout": 5.0, "memory_mb": 2048}

VERIFIERS = """
import os, time
from pathlib import Path
from rlvr_core.api import ComponentConfig, NoConfig, Verdict


class Odd:
    \"\"\"Scores, refuses, raises, hangs or dies, as the answer says.\"\"\"

    Config = NoConfig

    def __init__(self, config):
        pass

    @classmethod
    def time_limit(cls, config):
        return 1.0

    def verify(self, problem, completion):
        match completion.text:
            case "raise":
                raise ValueError("no such sum")
            case "hang":
                time.sleep(600)
            case "unscorable":
                return Verdict(None, "unscorable", detail="not a number")
        right = completion.text == problem.spec["answer"]
        return Verdict(float(right), passed=right, extracted=completion.text, parts={"x": 0.1})


class Gated:
    \"\"\"Says that it has begun, and judges once the file is there.\"\"\"

    class Config(ComponentConfig):
        folder: str

    def __init__(self, config):
        self._folder = Path(config.folder)

    @classmethod
    def time_limit(cls, config):
        return 300.0

    def verify(self, problem, completion):
        (self._folder / f"began-{problem.id}-{os.getpid()}").touch()
        while not (self._folder / "open").exists():
            time.sleep(0.02)
        return Verdict(len(completion.text) / 10, passed=True)
"""


@pytest.fixture(scope="module")
def ray_pool():
    pytest.importorskip("ray")
    from rlvr_cluster.ray.verifier_pool import RayVerifierPool

    return RayVerifierPool


@pytest.fixture(scope="module")
def nodes(ray_pool):
    """A cluster of three nodes with one processor each; removed with all its processes."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False, **NODE}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        made.others = [made.add_node(num_cpus=1, **NODE) for _ in range(2)]
        yield made
    finally:
        made.shutdown()
        assert wait_for(lambda: not of_the_cluster("ray::", "raylet", "gcs_server"))


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Name of an importable module with the verifiers."""
    (tmp_path / "ray_pool_verifiers.py").write_text(VERIFIERS)
    monkeypatch.syspath_prepend(tmp_path)
    return "ray_pool_verifiers"


def actors():
    return of_the_cluster("ray::VerifierActor")


def pids(pool):
    return {int(place.where.rpartition(" ")[2]) for place in pool._places}


def answers(*texts):
    return [Completion((1,), (5,), (-0.5,), (True,), text, "stop") for text in texts]


def problem(name="p"):
    return Problem(name, "2+2=", "odd", {"answer": "4"}, "sums")


def options(nodes, **more):
    return {"address": nodes.address, "deadline": PATIENCE, **more}


@pytest.mark.slow
def test_verdicts_are_those_of_a_pool_on_this_machine_failures_included(nodes, ray_pool, module):
    specs = {"odd": VerifierSpec(f"{module}:Odd", {})}
    tries = answers("4", "5", "raise", "hang", "unscorable", "4")
    with VerifierPool(specs, **LIMITS) as here:
        expected = here.submit_group(problem(), tries, ["odd"]).result(PATIENCE)
    with ray_pool(options(nodes, actors=2), specs, **LIMITS) as pool:
        found = pool.submit_group(problem(), tries, ["odd"]).result(PATIENCE)
        assert pool.submit_group(problem(), [], ["odd"]).result(0) == []
        with pytest.raises(KeyError, match="even"):
            pool.submit_group(problem(), tries, ["even"])
        stats = pool.stats()["odd"]
        assert len(pids(pool)) == 2
    statuses = [one["odd"].status for one in found]
    assert statuses == ["ok", "ok", "error", "timeout", "unscorable", "ok"]
    assert [one["odd"].score for one in found] == [1.0, 0.0, None, None, None, 1.0]
    assert found == expected
    assert (stats.calls, stats.errors, stats.timeouts, stats.unscorable) == (6, 1, 1, 1)
    with pytest.raises(RunError, match="closed"):
        pool.submit_group(problem(), tries, ["odd"])
    assert wait_for(lambda: not actors())


@pytest.mark.slow
def test_an_actor_lost_again_and_again_ends_the_run_and_gives_no_verdict(nodes, ray_pool, module):
    specs = {"odd": VerifierSpec(f"{module}:Odd", {})}
    with ray_pool(options(nodes, restarts=0), specs, **LIMITS) as pool:
        (one,) = pids(pool)
        waiting = pool.submit_group(problem(), answers("hang"), ["odd"])
        os.kill(one, signal.SIGKILL)
        with pytest.raises(
            RunError, match=r"(?s)verifier actor 0 .* was lost.*verify\.pool\.with\.restarts"
        ):
            waiting.result(PATIENCE)
        with pytest.raises(RunError, match="was lost"):
            pool.submit_group(problem(), answers("4"), ["odd"])
    specs = {"none": VerifierSpec("no_such_module:Verifier", {})}
    with pytest.raises(MachineError, match=r"cannot be started on .*no_such_module"):
        ray_pool(options(nodes), specs, **LIMITS)
    with pytest.raises(MachineError, match=r"(?s)no room for 9 actors.*at verify\.pool\.with"):
        ray_pool(options(nodes, actors=9, deadline=1), {}, **LIMITS)
    assert wait_for(lambda: not actors())


def rows(run):
    return list(read_jsonl(run / "traces/rollouts.jsonl"))


@pytest.mark.slow
def test_a_run_is_the_one_without_ray_bit_for_bit(nodes, lab):
    train = {"steps": 2, "lr": 1e-3, "warmup_steps": 1}
    found = []
    there = {"pool": {"use": "ray-pool", "with": options(nodes, actors=2)}}
    for pool in ({}, there):
        run = lab.run(train=train, verify={"workers": 1, **pool})
        last = max((run / "checkpoints").glob("step*"))
        weights = (last / "model.safetensors").read_bytes()
        found.append((rows(run), hashlib.sha256(weights).hexdigest()))
    assert len(found[0][0]) == 8
    assert found[0] == found[1]
    shown = json.loads(lab.rlvr("show", run.name, "--json").stdout)
    assert shown["ledger"]["balanced"] is True
    assert wait_for(lambda: not actors())


def test_wrong_options_are_told_before_anything_starts_by_line(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(
        "model: {path: m}\n"
        "data: {sources: [{use: checks/commands}]}\n"
        "train: {steps: 1}\n"
        "verify:\n"
        "  pool:\n"
        "    use: ray-pool\n"
        "    with:\n"
        "      actors: -1\n"
        "      nodes: 2\n"
    )
    with pytest.raises(ConfigError) as caught:
        resolve_file(path, [], load_host())
    found = {complaint.where: complaint.what for complaint in caught.value.complaints}
    assert found == {
        f"{path}:8 (verify.pool.with.actors)": "option 'actors' of verifier pool "
        "'cluster/ray-pool' must be a whole number above 0, not -1",
        f"{path}:9 (verify.pool.with.nodes)": "unknown option 'nodes' of verifier pool "
        "'cluster/ray-pool'",
    }
    right = resolve_file(
        path, ["verify.pool={use: ray-pool, with: {actors: 4}}"], load_host()
    ).config.verify.pool
    assert right is not None
    assert (right.use, right.with_["actors"], right.with_["restarts"]) == ("cluster/ray-pool", 4, 3)


@pytest.mark.slow
def test_what_a_lost_actor_or_node_was_judging_is_judged_again(nodes, ray_pool, module, tmp_path):
    # the last test with this cluster, whose nodes it changes
    gates = tmp_path / "gates"
    gates.mkdir()
    specs = {"gated": VerifierSpec(f"{module}:Gated", {"folder": str(gates)})}

    def began(name):
        return {int(one.name.rpartition("-")[2]) for one in gates.glob(f"began-{name}-*")}

    def actor_of(worker):
        return psutil.Process(worker).ppid()

    def judged(pool, first, names, lose):
        """Verdicts on two problems; ``lose`` is called while both are being judged."""
        (gates / "open").unlink(missing_ok=True)
        futures = [pool.submit_group(problem(n), answers("abc", "x"), ["gated"]) for n in names]
        assert wait_for(lambda: all(began(name) for name in names))
        lose(actor_of(*began(first)))
        (gates / "open").touch()
        return [[one["gated"].score for one in f.result(PATIENCE)] for f in futures]

    with ray_pool(options(nodes, actors=2, groups=1), specs, **LIMITS) as pool:
        before = pids(pool)
        assert len(before) == 2
        right = [[0.3, 0.1]] * 2
        assert judged(pool, "a", ("a", "b"), lambda pid: os.kill(pid, signal.SIGKILL)) == right
        assert len(began("a")) == 2  # begun by the worker that was lost, and by another
        assert len(began("b")) == 1
        assert wait_for(lambda: all(place.ready for place in pool._places))
        assert len(before & pids(pool)) == 1

        gone = next(other for other in nodes.others if below(other) & pids(pool))
        assert judged(pool, "c", ("c", "d"), lambda _: nodes.remove_node(gone)) == right
        assert len(began("c")) + len(began("d")) == 3
    assert wait_for(lambda: not actors())


def below(node):
    """Process ids of a node's workers."""
    raylets = [info.process.pid for info in node.all_processes["raylet"]]
    return {child.pid for pid in raylets for child in psutil.Process(pid).children(recursive=True)}
