"""Run by test_vllm_server.py, once per rank: two processes share the servers of the first."""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

import test_vllm_server as one_process  # type: ignore[import-not-found]

from rlvr_core.engines.sync import ModuleSource
from rlvr_core.engines.vllm import fleet as vllm_fleet
from rlvr_core.engines.vllm import server_process as vllm_serve
from rlvr_core.engines.vllm.server import VllmServerEngine


def main(folder, slow):
    vllm_serve.SERVER_MODULE, vllm_fleet.CHECK_INTERVAL = "fake_vllm", 0.3
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=120))
    rank = torch.distributed.get_rank()
    os.environ["FAKE_SECONDS_PER_TOKEN"] = slow
    engine = VllmServerEngine(VllmServerEngine.Config(servers=2, hang_after=20, deadline=100))
    engine.start(one_process.context())
    found, pids = {}, [one.process.pid for one in one_process.servers(engine) if one.process]
    for version in range(3):
        policy = one_process.Policy(shift=0.3 * version)
        engine.load_weights(version, ModuleSource(policy))
        seeds = range(20 * rank, 20 * rank + 20)
        future = engine.submit(one_process.request(seeds))
        if version == 2 and pids:  # the others' completions are there too
            one_process.until(lambda: len(one_process.servers(engine)[0].in_flight) >= 8)
            os.kill(pids[0], 9)
        engine.drain(100)
        answers = future.result(0)
        one_process.check(answers, policy, version)
        found[version] = [one.token_ids for one in answers]
    one_process.until(lambda: all(one.ready for one in one_process.servers(engine)))
    told = engine.metrics()  # added up over processes, they are two servers
    assert told.get("engine/servers") == (2 if pids else None)
    (Path(folder) / f"{rank}.json").write_text(json.dumps({"tokens": found, "started": len(pids)}))
    torch.distributed.barrier()
    engine.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
