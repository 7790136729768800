"""Run by test_servers.py, once per rank: two processes share the servers of the first."""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch

from rlvr_core.engines.sync import ModuleSource
from rlvr_servers import fleet as vllm_fleet
from rlvr_servers import process as vllm_serve
from rlvr_servers.engine import VllmServerEngine
from tests.support.fake_servers import Policy, check, context, request, servers, until


def main(folder, slow):
    vllm_serve.SERVER_MODULE, vllm_fleet.CHECK_INTERVAL = "tests.support.fake_vllm", 0.3
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=120))
    rank = torch.distributed.get_rank()
    os.environ["FAKE_SECONDS_PER_TOKEN"] = slow
    engine = VllmServerEngine(VllmServerEngine.Config(servers=2, hang_after=20, deadline=100))
    engine.start(context())
    found, pids = {}, [one.process.pid for one in servers(engine) if one.process]
    for version in range(3):
        policy = Policy(shift=0.3 * version)
        engine.load_weights(version, ModuleSource(policy))
        seeds = range(20 * rank, 20 * rank + 20)
        future = engine.submit(request(seeds))
        if version == 2 and pids:  # the others' completions are there too
            until(lambda: len(servers(engine)[0].in_flight) >= 8)
            os.kill(pids[0], 9)
        engine.drain(100)
        answers = future.result(0)
        check(answers, policy, version)
        found[version] = [one.token_ids for one in answers]
    until(lambda: all(one.ready for one in servers(engine)))
    told = engine.metrics()  # added up over processes, they are two servers
    assert told.get("engine/servers") == (2 if pids else None)
    (Path(folder) / f"{rank}.json").write_text(json.dumps({"tokens": found, "started": len(pids)}))
    torch.distributed.barrier()
    engine.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
