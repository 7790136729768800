"""Rollouts by actors, on a real Ray cluster of several nodes on this machine."""

import importlib.util
import os
import signal
import socket
from collections import UserList
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from plugins.rlvr_cluster.tests.ray.processes import NODE, PATIENCE, of_the_cluster, wait_for
from rlvr_cluster.ray import cluster as cluster_module
from rlvr_cluster.ray.engine import RayEngine
from rlvr_cluster.ray.host import EngineHost
from rlvr_cluster.ray.messages import ActorArgs
from rlvr_core import __version__
from rlvr_core.api import (
    ConfigError,
    EngineContext,
    GenerationRequest,
    MachineError,
    NoConfig,
    PluginError,
    RunError,
    SamplingParams,
)
from rlvr_core.engines.sync import ModuleSource
from rlvr_core.record.jsonl import read_jsonl

NEEDS_RAY = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'rlvr-core[ray]'"
)

ENGINES = """
import os, time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
import torch
from rlvr_core.api import ComponentConfig, EngineTraits, Generation, NoConfig
from rlvr_core.engines.sync import weight_checksums


class Bigram(torch.nn.Module):
    \"\"\"A model that imports no transformers: the next token depends on the last one alone.\"\"\"

    config = None
    device = torch.device("cpu")

    def __init__(self):
        super().__init__()
        numbers = torch.randn(64, 64, generator=torch.Generator().manual_seed(7))
        self.table = torch.nn.Embedding.from_pretrained(numbers, freeze=False)

    def get_input_embeddings(self):
        return self.table

    def forward(self, input_ids, use_cache, logits_to_keep):
        return SimpleNamespace(logits=self.table(input_ids)[:, -logits_to_keep:])


class Plain:
    \"\"\"Samples from a bigram model of its own.\"\"\"

    Config = NoConfig
    traits = EngineTraits(own_weights=True)

    def __init__(self, config):
        self._config, self._version, self._waiting = config, 0, []

    def start(self, context):
        self._model = Bigram()

    def submit(self, request):
        self._waiting.append((request, Future()))
        return self._waiting[-1][1]

    def drain(self, timeout=None):
        waiting, self._waiting = self._waiting, []
        for request, future in waiting:
            future.set_result(tuple(self._sampled(request, seed) for seed in request.seeds))

    @torch.no_grad()
    def _sampled(self, request, seed):
        draws = torch.Generator().manual_seed(seed)
        ids, logprobs = [request.prompt_ids[-1]], []
        for _ in range(request.params.max_tokens):
            scores = self._model.table(torch.tensor(ids[-1])).log_softmax(-1)
            ids.append(torch.multinomial(scores.exp(), 1, generator=draws).item())
            logprobs.append(scores[ids[-1]].item())
        return Generation(tuple(ids[1:]), tuple(logprobs), "", "length", self._version)

    def load_weights(self, version, source):
        self._model.load_state_dict(dict(source.tensors()))
        self._version = version

    def fingerprint(self):
        return weight_checksums(self._model.named_parameters())

    def sleep(self):
        pass

    def wake(self):
        pass

    def close(self):
        pass


class Gated(Plain):
    \"\"\"Samples while the file is there.\"\"\"

    class Config(ComponentConfig):
        gate: str

    def drain(self, timeout=None):
        while not Path(self._config.gate).exists():
            time.sleep(0.02)
        super().drain(timeout)


class Dying(Plain):
    def submit(self, request):
        os.write(2, b"uncorrectable error in lane 3\\n")
        os._exit(7)


class Unlicensed(Plain):
    def start(self, context):
        raise ValueError("no licence on this node")
"""


@pytest.fixture(scope="module")
def nodes():
    """A cluster of two nodes with one processor each; removed with all its processes."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    made = cluster_utils.Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, **NODE},
    )
    try:
        made.second = made.add_node(num_cpus=1, **NODE)
        yield made
    finally:
        made.shutdown()
        assert wait_for(lambda: not of_the_cluster("ray::", "raylet", "gcs_server"))


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    file = tmp_path_factory.mktemp("engines") / "engines.py"
    file.write_text(ENGINES)
    return file


@pytest.fixture(scope="module")
def plain(engines):
    """The module with the engines."""
    spec = importlib.util.spec_from_file_location("ray_test_engines", engines)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def context(plain, tmp_path):
    """What an engine is started with: a bigram model, of which actors import no transformers."""
    vocabulary = UserList(range(64))
    vocabulary.all_special_ids = []
    return EngineContext(str(tmp_path), plain.Bigram(), vocabulary, torch.float32, 64, seed=7)


def actors():
    return of_the_cluster("ray::RolloutActor")


def requests(n=6):
    params = SamplingParams(max_tokens=12)
    return [
        GenerationRequest(f"r{i}", (5 + i, 20, 30), params, tuple(range(100 * i, 100 * i + 4)))
        for i in range(n)
    ]


def generated(engine, *, meanwhile=lambda: None):
    """Token ids, log-probs and versions of the requests' completions, in order."""
    futures = [engine.submit(request) for request in requests()]
    if isinstance(engine, RayEngine):
        engine.begin()
        meanwhile()
    engine.drain(PATIENCE)
    found = [one for future in futures for one in future.result(0)]
    return (
        [one.token_ids for one in found],
        [one.logprobs for one in found],
        {one.version for one in found},
    )


def alike(found, expected):
    """The same tokens, and log-probs up to the rounding of batches of other sizes."""
    assert found[0] == expected[0]
    assert found[2] == expected[2]
    for ours, theirs in zip(found[1], expected[1], strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)


def change(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.05)


def with_actors(nodes, n, engine="transformers"):
    options = {"engine": engine, "actors": n, "address": nodes.address, "deadline": PATIENCE}
    return {"use": "ray", "with": options}


def rows(run):
    return list(read_jsonl(run / "traces/rollouts.jsonl"))


@NEEDS_RAY
@pytest.mark.slow
def test_a_run_with_one_actor_is_the_run_without_ray_up_to_rounding(lab, nodes):
    """Every token, verdict and fate is the same; log-probs and weights differ by rounding."""
    train = {"steps": 2, "lr": 1e-3, "warmup_steps": 1}
    guards = ["guards/seeds", "core/sync"]
    records, logprobs, weights = [], [], []
    for engine in ("transformers", with_actors(nodes, 1)):
        run = lab.run(engine=engine, train=train, guards=guards)
        recorded = rows(run)
        logprobs.append(
            [value for row in recorded for c in row["completions"] for value in c.pop("logprobs")]
        )
        records.append(recorded)
        last = max((run / "checkpoints").glob("step*"))
        weights.append(load_file(last / "model.safetensors"))
    assert len(records[0]) == 8  # 2 steps of 4 groups
    assert records[0] == records[1]
    assert logprobs[0] == pytest.approx(logprobs[1], abs=1e-5)
    for name, tensor in weights[0].items():
        torch.testing.assert_close(tensor, weights[1][name], atol=1e-5, rtol=1e-4)


def started(nodes, context, **options):
    engine = RayEngine(RayEngine.Config(address=nodes.address, deadline=PATIENCE, **options))
    engine.start(context)
    return engine


@NEEDS_RAY
@pytest.mark.slow
def test_an_actor_that_dies_again_and_again_stops_the_run(nodes, engines, context):
    engine = started(nodes, context, engine=f"{engines}:Dying", restarts=1)
    try:
        with pytest.raises(RunError) as caught:
            generated(engine)
    finally:
        engine.close()
    text = str(caught.value)
    assert "rollout actor 0" in text
    assert "2 times in a row without an answer" in text
    assert "engine.with.restarts (1)" in text


@NEEDS_RAY
@pytest.mark.slow
def test_what_cannot_start_says_whose_fault_it_is_and_what_is_missing(nodes, engines, context):
    with pytest.raises(PluginError, match="could not start in a rollout actor") as caught:
        started(nodes, context, engine=f"{engines}:Unlicensed")
    (complaint,) = caught.value.complaints
    assert "ValueError: no licence on this node" in complaint.what
    line = ENGINES.splitlines().index('        raise ValueError("no licence on this node")') + 1
    assert f"{engines}:{line}" in complaint.where
    with pytest.raises(MachineError) as caught:
        RayEngine(RayEngine.Config(address=nodes.address, actors=3, cpus=1, deadline=1)).start(
            context
        )
    assert (
        "no room for 3 actors of 1 CPU each within 1 s; it has 2 nodes with 2 of 2 CPU free"
        in str(caught.value)
    )
    assert wait_for(lambda: not actors())


@NEEDS_RAY
@pytest.mark.slow
def test_actors_are_killed_and_nodes_come_and_go_and_no_completion_changes(
    nodes, engines, plain, context, tmp_path
):
    # the last test with this cluster, whose nodes it changes
    gate = tmp_path / "open"
    engine = RayEngine(
        RayEngine.Config(
            engine={"use": f"{engines}:Gated", "with": {"gate": str(gate)}},
            actors=2,
            address=nodes.address,
            deadline=PATIENCE,
        )
    )
    alone = plain.Plain(NoConfig())
    alone.start(context)
    expected = generated(alone)
    gate.touch()
    engine.start(context)
    try:
        pool = engine._pool
        alike(generated(engine), expected)
        assert engine.metrics() == {"engine/actors": 2, "engine/restarts": 0, "engine/resent": 0}

        def kill():
            assert wait_for(lambda: pool.slots[1].load == 12)
            os.kill(pool.slots[1].where["pid"], signal.SIGKILL)
            gate.touch()

        gate.unlink()
        alike(generated(engine, meanwhile=kill), expected)
        # 6 requests of 4 completions: half of them were with the actor that was killed
        assert wait_for(lambda: pool.n_ready() == 2)
        assert engine.metrics() == {"engine/actors": 2, "engine/restarts": 1, "engine/resent": 12}
        assert any("with 12 completions unfinished" in line for line in engine.take_events())

        change(context.model)
        for one in (engine, alone):
            one.load_weights(1, ModuleSource(context.model))
        assert engine.fingerprint() == alone.fingerprint()
        expected, old = generated(alone), expected
        assert expected[0] != old[0]
        alike(generated(engine), expected)

        # the actor of the node that goes, whichever it is
        (gone,) = (slot for slot in pool.slots if slot.where.get("node") == nodes.second.node_id)

        def remove():
            assert wait_for(lambda: gone.load == 12)
            nodes.remove_node(nodes.second)
            gate.touch()

        gate.unlink()
        alike(generated(engine, meanwhile=remove), expected)
        assert engine.metrics() == {"engine/actors": 1, "engine/restarts": 1, "engine/resent": 12}

        change(context.model)
        for one in (engine, alone):  # one actor is missing in this sync
            one.load_weights(2, ModuleSource(context.model))
        nodes.second = nodes.add_node(num_cpus=2, **NODE)
        assert wait_for(lambda: pool.n_ready() == 2), engine.take_events()
        # the one that joined holds the weights of the sync it missed
        alike(generated(engine), generated(alone))
        assert engine.fingerprint() == alone.fingerprint()
        assert len(actors()) == 2
    finally:
        engine.close()
    engine.close()
    assert wait_for(lambda: not actors())


def test_without_ray_the_extra_is_named(context, monkeypatch):
    monkeypatch.setattr(cluster_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MachineError, match="needs Ray, which is not installed") as caught:
        RayEngine(RayEngine.Config()).start(context)
    assert "rlvr-core[ray]" in str(caught.value)


@NEEDS_RAY
def test_where_no_cluster_answers_the_error_says_where_and_how_to_start_one(context):
    handler = signal.getsignal(signal.SIGTERM)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(MachineError) as caught:
        RayEngine(RayEngine.Config(address=f"127.0.0.1:{port}")).start(context)
    assert f"no Ray cluster can be reached at 127.0.0.1:{port}" in str(caught.value)
    assert "ray start --head" in str(caught.value)
    assert signal.getsignal(signal.SIGTERM) is handler
    with pytest.raises(ConfigError, match="an address for clients"):
        RayEngine(RayEngine.Config(address="ray://10.0.0.7:10001")).start(context)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"cpus": 0}, "an actor needs cpus or gpus"),
        ({"restarts": -1}, "restarts"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options, what):
    with pytest.raises(ValueError, match=what):
        RayEngine.Config(**options)


@pytest.mark.parametrize("engine", ["vllm-server", "ray"])
def test_an_engine_with_processes_of_its_own_needs_no_actor(engine):
    with pytest.raises(ConfigError, match=f"engine {engine} starts its own processes"):
        RayEngine(RayEngine.Config(engine=engine))


def test_a_node_that_has_another_rlvr_says_so(context):
    args = ActorArgs(
        use="transformers",
        options={},
        context=context,
        own_weights=True,
        device="cpu",
        threads=1,
        environment={},
        version=__version__,
    )
    with pytest.raises(
        MachineError, match=rf"has rlvr-core {__version__}, and the trainer 0\.0\.1"
    ):
        EngineHost(replace(args, version="0.0.1"), 0)
