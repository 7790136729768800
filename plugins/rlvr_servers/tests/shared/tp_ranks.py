"""Run by test_tensor_parallel.py, once per process: one engine of two processes.

Each part prints one line of JSON with what this process found.
"""

import json
import os
import sys
import time
import warnings
from datetime import timedelta

import torch
from accelerate import PartialState

from rlvr_core.api import EngineContext, GenerationRequest, RunError, SamplingParams, ScoreRequest
from rlvr_core.engines.sync import ModuleSource, weight_checksums
from rlvr_servers.shared.engine import SharedVllmEngine
from tests.support import vllm_models as helpers

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
SIZE = min(WORLD, 2)
PROMPTS = [tuple(range(10 + 3 * i, 40 + 5 * i)) for i in range(5)]


def say(**found):
    sys.stdout.write(json.dumps({"rank": RANK} | found) + "\n")
    sys.stdout.flush()


def started(folder, model, tokenizer, **options):
    if RANK == 0:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    if WORLD > 1:
        torch.distributed.barrier()
    options = {"kv_cache_mb": 32, "tensor_parallel_size": SIZE, **options}
    engine = SharedVllmEngine(SharedVllmEngine.Config(**options))
    engine.start(EngineContext(folder, model, tokenizer, torch.float32, helpers.MAX_LEN, 7))
    return engine


def request(place, **params):
    params = SamplingParams(**{"max_tokens": 24, **params})
    return GenerationRequest(f"p{place}", PROMPTS[place], params, (place, 100 + place))


def plain(generations):
    return [
        {"ids": one.token_ids, "logprobs": one.logprobs, "text": one.text, "version": one.version}
        for one in generations
    ]


def drained(engine, requests, timeout=120):
    futures = [engine.submit(one) for one in requests]
    engine.drain(timeout)
    return [plain(future.result(0)) for future in futures]


def sample(folder):
    """All prompts, shared out unevenly; seeded, greedy and at another temperature."""
    tokenizer = helpers.make_tokenizer()
    a = helpers.make_model(tokenizer, tied=True, seed=0)
    engine = started(folder, a, tokenizer)
    # the last process has nothing to do at first
    mine = {1: [[0, 1, 2, 3, 4]], 2: [[0, 1, 2, 3, 4], []]}[WORLD][RANK]
    seeded = drained(engine, [request(place) for place in mine])
    mine = {1: [[0, 1, 2, 3, 4]], 2: [[0, 1, 2], [3, 4]]}[WORLD][RANK]
    greedy = drained(engine, [request(place, temperature=0.0) for place in mine])
    cool = drained(engine, [request(place, temperature=0.6, stop=("a",)) for place in mine])
    texts = [ScoreRequest(PROMPTS[place], PROMPTS[place][:7]) for place in mine]
    scores = [score.logprobs for score in engine.score(texts, 60)]
    assert engine.score([], 60) == []
    drained(engine, [])
    say(seeded=seeded, greedy=greedy, cool=cool, scores=scores)
    engine.close()


def sync(folder):
    """Weights there and back; read back, probed, and a new request from a callback."""
    tokenizer = helpers.make_tokenizer()
    for tied in (True, False):
        a, b = (helpers.make_model(tokenizer, tied=tied, seed=seed) for seed in (0, 1))
        engine = started(f"{folder}/{tied}", a, tokenizer)
        before = engine.fingerprint()
        distances = []
        for version, model in ((1, b), (2, a)):
            engine.load_weights(version, ModuleSource(model))
            distances.append(helpers.distance(engine, model))
        held = engine.fingerprint()
        due = weight_checksums(a.named_parameters(), torch.float32)
        fused = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
        same = [name for name in due if held.get(name) == due[name]]
        later = []

        def more(done, engine=engine, later=later):
            later.append(engine.submit(request(4)))

        if RANK == WORLD - 1:
            engine.submit(request(0)).add_done_callback(more)
        engine.drain(120)
        (label,) = {one.version for future in later for one in future.result(0)} or {None}
        with torch.no_grad():
            a.model.layers[2].mlp.down_proj.weight[5, 300] += 1.0  # of the second shard
        engine.load_weights(3, ModuleSource(a))
        changed = [name for name, value in engine.fingerprint().items() if held[name] != value]
        say(
            tied=tied,
            distances=distances,
            stayed=before == held,
            missing=sorted(set(due) - set(same)),
            parts=sum(any(part in name for part in fused) for name in same),
            label=label,
            changed=changed,
        )
        engine.close()


def late(folder):
    """The process whose time is over ends the others' wait too; then abort; then go on."""
    tokenizer = helpers.make_tokenizer()
    engine = started(folder, helpers.make_model(tokenizer, tied=True, seed=0), tokenizer)
    futures = [engine.submit(request(RANK, max_tokens=100))]
    try:
        engine.drain(0.05 if RANK == WORLD - 1 else 300)
        found = ""
    except RunError as error:
        found = str(error)
    futures += [engine.submit(request(RANK))]
    if RANK == 0:
        engine.abort()
    engine.drain(60)
    futures += [engine.submit(request(RANK))]
    engine.drain(60)
    states = [
        "cancelled" if one.cancelled() else "failed" if one.exception() else "answered"
        for one in futures
    ]
    say(late=found, states=states)
    engine.close()


def fails(folder):
    """Processes that sample different tokens; then one that fails while the other generates."""
    from rlvr_core.engines.vllm import requests
    from rlvr_core.parallel.ranks import Ranks

    tokenizer = helpers.make_tokenizer()
    engine = started(folder, helpers.make_model(tokenizer, tied=True, seed=0), tokenizer)
    usual = requests.sampling_fields
    if RANK == 1:
        requests.sampling_fields = lambda params, seed, stops: usual(params, seed + 1, stops)
    for _ in range(2):
        try:
            drained(engine, [request(0)])
            say(error="")
        except RunError as error:
            say(error=str(error))
    requests.sampling_fields = usual
    engine.close()
    engine = started(folder, helpers.make_model(tokenizer, tied=True, seed=0), tokenizer)
    begun = time.monotonic()
    try:
        with Ranks(RANK, WORLD).explained():
            if RANK == 1:
                raise RunError("the disk of process 1 is full")
            drained(engine, [request(0)])
    except Exception as error:
        say(error=f"{type(error).__name__}: {error}", seconds=time.monotonic() - begun)
        os._exit(1)


if __name__ == "__main__":
    if WORLD > 1:
        PartialState(cpu=helpers.DEVICE == "cpu", timeout=timedelta(seconds=200))
    warnings.simplefilter("error", FutureWarning)
    globals()[sys.argv[1]](sys.argv[2])
    if WORLD > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
