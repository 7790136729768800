"""Weights on their way to stand-ins for servers: transports, copies, fingerprints."""

import os
import signal
import socket
from dataclasses import asdict
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from rlvr_core.api import (
    MachineError,
    PluginError,
    RunError,
    TensorMeta,
)
from rlvr_core.engines.sync import ModuleSource
from rlvr_core.engines.transport import ChosenTransport
from rlvr_core.engines.vllm.files import Files, n_bytes
from rlvr_servers import publisher as weight_publisher
from rlvr_servers.engine import NCCL
from rlvr_servers.fingerprint import Fingerprint
from rlvr_servers.nccl import GroupClient, meeting_place
from rlvr_servers.pool import LoopThread, Server
from rlvr_servers.publisher import (
    Outgoing,
    SentWeights,
    ServerLink,
    ServerWeights,
    WeightPublisher,
)
from tests.support.carrier import Carrier, Streaming
from tests.support.fake_servers import Policy, check, sample, servers, until


def test_workers_of_all_servers_join_one_nccl_group_behind_the_trainer():
    """vLLM's trainer side names the first free rank; each server gets those that are its own."""
    asked = []

    class Client:
        def __init__(self, name):
            self.name = name

        async def call(self, method, path, *, seconds, body, **query):
            asked.append((self.name, path, body))

    thread = LoopThread()
    try:
        three = [
            Server(name, Client(name), world=world)
            for name, world in zip("abc", (2, 1, 4), strict=True)
        ]
        pool = SimpleNamespace(run="run")
        weights = ServerWeights(SentWeights("run/3"), None, 5.0)
        publisher = WeightPublisher(None, thread, pool, weights)
        publisher.use(NCCL, None)
        link = ServerLink(publisher, three)
        assert link.receivers == 7
        client = GroupClient(link)
        join = {"rank_offset": 1, "world_size": 8}
        client.init_weight_transfer_engine(join)

        def update(message, first):
            return {
                "update_info": {
                    "transport": asdict(NCCL),
                    "message": message,
                    "first_worker": first,
                }
            }

        # a worker's rank is the offset plus its number among those of all servers
        assert [one for one in asked if one[1] == "/update_weights"] == [
            (name, "/update_weights", update({"join": join}, first))
            for name, first in zip("abc", (0, 2, 3), strict=True)
        ]
        assert [path for name, path, _ in asked if name == "b"] == [
            "/pause",
            "/start_weight_update",
            "/update_weights",
        ]
        asked.clear()
        client.start_weight_update()
        client.update_weights({"names": ["w"]})
        client.finish_weight_update()
        assert [one for one in asked if one[0] == "b"] == [
            ("b", "/update_weights", update({"tensors": {"names": ["w"]}}, 2)),
        ]
    finally:
        thread.close()


@pytest.mark.parametrize(
    ("names", "address"),
    [(["server 0"], "127.0.0.1"), (["http://127.0.0.1:8000"], "127.0.0.1")],
)
def test_t31_the_trainer_meets_servers_at_a_free_port(names, address):
    process = None if "http" in names[0] else object()
    link = ServerLink(None, [Server(name, None, process) for name in names])
    assert link.remote_hosts == (("127.0.0.1",) if process is None else ())
    found, port = meeting_place(link.remote_hosts)
    assert found == address
    with socket.socket() as free:
        free.bind((found, port))


def test_matrices_travel_in_the_runs_precision_and_vectors_as_they_are(tmp_path):
    class Weights:
        def tensors(self):
            yield "matrix", torch.full((2, 3), 1 / 3)
            yield "vector", torch.full((3,), 1 / 3)
            yield "again", torch.full((2, 3), 2 / 3)

    snapshot = Files(Files.Config(folder=str(tmp_path)))
    outgoing = Outgoing(Weights(), torch.bfloat16)
    assert n_bytes(outgoing.tensors) == 2 * 6 + 4 * 3 + 2 * 6
    outgoing.copy = snapshot
    sent = dict(outgoing)
    assert [sent[name].dtype for name in ("matrix", "vector")] == [torch.bfloat16, torch.float32]
    (file,) = snapshot.files
    kept, digest = load_file(file), Fingerprint()
    for name, tensor in kept.items():
        assert torch.equal(tensor, sent[name])
        digest.add(name, tensor)
    assert digest.digest() == outgoing.fingerprint.digest()
    kept["matrix"][0, 0] = 0
    digest.add("matrix", kept["matrix"])
    assert digest.digest() != outgoing.fingerprint.digest()
    snapshot.close()
    assert list(tmp_path.iterdir()) == []


def test_a_copy_of_the_weights_needs_room(tmp_path):
    files = Files(Files.Config(folder=str(tmp_path)))
    huge = SimpleNamespace(tensors=[TensorMeta("w", torch.int8, (2**50,))])
    with pytest.raises(MachineError, match=r"no room for a copy of the weights, 1048576\.00 GiB"):
        list(files.keep(huge, []))


def carried(folder, cls=Carrier, **options):
    target = f"tests.support.carrier:{cls.__name__}"
    return ChosenTransport("theirs/carrier", target, "theirs", {"folder": str(folder), **options})


@pytest.mark.parametrize("cls", [Carrier, Streaming])
def test_weights_reach_servers_by_a_transport_of_somebody_elses(make, tmp_path, cls):
    engine = make(servers=2, transport=carried(tmp_path, cls))
    policy = Policy(shift=0.3)
    engine.load_weights(1, ModuleSource(policy))  # fingerprint and probe hold
    check(sample(engine), policy, 1)
    assert sorted(path.name for path in tmp_path.glob("received*")) == ["received 0", "received 1"]
    # a server that is started again has the weights, be it from a copy; none is made before
    publisher = engine._running.publisher
    assert publisher._copy is None or publisher._copy.files == []
    first = servers(engine)[0]
    os.kill(first.process.pid, signal.SIGKILL)
    until(lambda: first.restarts and first.ready)
    check(sample(engine), policy, 1)
    assert publisher._copy is None or publisher._copy.files
    policy = Policy(shift=0.6)
    engine.load_weights(2, ModuleSource(policy))
    check(sample(engine), policy, 2)


def test_a_copy_is_of_the_weights_that_were_sent_or_none(make, tmp_path, monkeypatch):
    """A server that comes back in the middle of an update waits until the next sync, if need be."""
    monkeypatch.setattr(weight_publisher, "_PAUSE", 0.01)
    engine = make(servers=2, transport=carried(tmp_path, Streaming))
    policy = Policy(shift=0.3)
    engine.load_weights(1, ModuleSource(policy))
    publisher, weights = engine._running.publisher, engine._running.fleet.weights
    tries = []
    keep = publisher._keep

    def counted(fingerprint):
        tries.append(keep(fingerprint))
        return tries[-1]

    weights.keep = counted
    first_weight = next(policy.parameters())
    before = first_weight.detach().clone()
    with torch.no_grad():
        first_weight.add_(1.0)  # an update has begun
    first = servers(engine)[0]
    os.kill(first.process.pid, signal.SIGKILL)
    until(lambda: len(tries) > 2)
    assert set(map(str, tries)) == {"None"}
    assert not first.ready
    with torch.no_grad():
        first_weight.copy_(before)  # as if it had been skipped
    until(lambda: first.ready)
    check(sample(engine), policy, 1)


@pytest.mark.parametrize("cls", [Carrier, Streaming])
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"fails": "send"}, PluginError, "transport 'theirs/carrier' of plugin theirs could not"),
        ({"fails": "receive"}, RunError, "transport 'theirs/carrier' of plugin theirs could not"),
        ({"spoils": True}, RunError, "other weights arrived than were sent"),
    ],
    ids=["sending", "receiving", "spoilt"],
)
def test_t19_a_transport_that_fails_is_named_and_changes_no_value(
    make, tmp_path, cls, options, error, words
):
    engine = make(transport=carried(tmp_path, cls, **options))
    with pytest.raises(error, match=words):
        engine.load_weights(1, ModuleSource(Policy(shift=0.5)))
    with pytest.raises(RunError, match="out of order since"):
        sample(engine)
