"""Environment servers that a real Ray cluster starts, several nodes on this machine."""

import asyncio
import contextlib
import json
import os
import signal

import pytest

from plugins.rlvr_cluster.tests.ray.processes import NODE, PATIENCE, of_the_cluster, wait_for
from rlvr_core.api import Done, MachineError, Problem, Reply
from rlvr_core.record.jsonl import read_jsonl
from rlvr_env.servers.on_ray import RayServers
from rlvr_env.servers.remote import Remote, ServerFailedError

pytestmark = pytest.mark.slow
PROBLEM = Problem("p", "How many?", "env/environment", {}, "d")
ENVIRONMENTS = """
import os
from rlvr_core.api import ComponentConfig, Done, Message, Observation, Verdict


class Counting:
    \"\"\"Says in which process it is, and counts the turns of its conversation.\"\"\"

    class Config(ComponentConfig):
        step: int = 1

    def __init__(self, config):
        self._step = config.step

    def start(self, problem, seed):
        return [seed]

    def step(self, state, reply):
        if reply.text == "end":
            return Done(Verdict(1.0, passed=True, detail=str(state)))
        state.append(self._step)
        return Observation((Message("user", str(os.getpid())),))


class Asking(Counting):
    \"\"\"Asks twice, and rewards short answers.\"\"\"

    def step(self, state, reply):
        if reply.turn == 0:
            return Observation((Message("user", f"And {state[0] % 7}? "),), {"asked": 1.0})
        return Done(Verdict(1 / (1 + len(reply.text)), passed=False))


class Broken(Counting):
    def __init__(self, config):
        raise ValueError("no such world")
"""


@pytest.fixture(scope="module")
def nodes():
    """A cluster of a head without processors, and two nodes with one each."""
    pytest.importorskip("ray")
    pytest.importorskip("websockets")
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, **NODE}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        made.others = [made.add_node(num_cpus=1, **NODE) for _ in range(2)]
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def remote(nodes, tmp_path, monkeypatch):
    """The environment ``env/remote`` with servers on the cluster."""
    import ray

    (tmp_path / "ray_worlds.py").write_text(ENVIRONMENTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")

    def make(use="Counting", **options):
        given = {"environment": {"use": f"ray_worlds:{use}", "with": {"step": 3}}, **options}
        return Remote(Remote.Config(ray=RayServers(**{"deadline": PATIENCE, **given})))

    yield make
    ray.shutdown()


async def asked(remote, connection, text="more"):
    answer = await remote.step(connection, Reply(text, 0, 7))
    return answer if isinstance(answer, Done) else int(answer.messages[0].content)


def test_servers_are_spread_and_conversations_keep_their_states(remote):
    made = remote(servers=2)
    assert made.present(PROBLEM) == PROBLEM

    async def play():
        open_ = [await made.start(PROBLEM, seed) for seed in range(4)]
        processes = [await asked(made, one) for one in open_]
        ends = [await asked(made, one, "end") for one in open_]
        for one in open_:
            await made.close(one)
        return processes, [end.verdict.detail for end in ends]

    processes, ends = asyncio.run(play())
    assert of_the_cluster("ray::ServerActor") >= {*processes}
    assert processes[0] != processes[1]  # to the server with the fewest conversations
    assert sorted(processes[:2]) == sorted(processes[2:])
    assert ends == [f"[{seed}, 3]" for seed in range(4)]


def test_a_server_that_is_killed_is_replaced_and_its_conversation_is_lost(remote):
    made = remote()

    async def play():
        first = await made.start(PROBLEM, 0)
        process = await asked(made, first)
        os.kill(process, signal.SIGKILL)
        with pytest.raises(ServerFailedError, match="was lost, and the conversation with it"):
            await asked(made, first)
        await made.close(first)
        for _ in range(100):  # until Ray has noticed
            with contextlib.suppress(ServerFailedError):
                second = await made.start(PROBLEM, 1)
                break
            await asyncio.sleep(0.2)
        return process, await asked(made, second), (await asked(made, second, "end")).verdict.detail

    before, after, end = asyncio.run(play())
    assert before != after
    assert end == "[1, 3]"


def test_a_run_plays_with_servers_of_the_cluster_as_with_its_own(remote, lab):
    sampling = {"n": 4, "max_tokens": 60, "stop": list("aeioustnrlm0123456789")}
    given = {"sampling": sampling, "rewards": ["env/environment"]}
    train = {"steps": 2, "lr": 1e-3, "warmup_steps": 1}
    there = {"ray": {"environment": {"use": "ray_worlds:Asking"}, "servers": 2}}
    found = []
    for environment in ({"use": "ray_worlds:Asking"}, {"use": "env/remote", "with": there}):
        section = {"max_turn_tokens": 20, "straggler_timeout": 60, **environment}
        run = lab.run(train=train, environment=section, **given)
        groups = list(read_jsonl(run / "traces/rollouts.jsonl"))
        found.append([
            (one["token_ids"], one["reward"], one["transcript"]["ended"])
            for group in groups
            for one in group["completions"]
        ])  # fmt: skip
    assert sum(ended == "done" for *_, ended in found[0]) > 5
    assert found[0] == found[1]
    assert wait_for(lambda: not of_the_cluster("ray::ServerActor"))  # they end with the run
    shown = json.loads(lab.rlvr("show", run.name, "--json").stdout)
    assert shown["ledger"]["balanced"] is True


def test_what_cannot_be_started_says_why(remote):
    with pytest.raises(MachineError, match=r"cannot be started: .*no such world"):
        remote("Broken").present(PROBLEM)
    with pytest.raises(MachineError, match="is not there after 2 s: the cluster has no room"):
        remote(cpus=5, deadline=2).present(PROBLEM)
