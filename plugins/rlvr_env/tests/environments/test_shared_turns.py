"""Conversations in processes that share an engine: each drains as often as the others."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import torch

from plugins.rlvr_env.tests.environments import stand_ins as turns
from rlvr_core.api import Draw

PROGRAM = "plugins.rlvr_env.tests.environments.test_shared_turns"


def test_a_process_without_conversations_drains_as_often_as_the_others(tmp_path):
    """One has a conversation of three turns, another one of a single turn, the third has none."""
    commands = [
        [sys.executable, "-m", PROGRAM, str(rank), str(tmp_path / "store")] for rank in range(3)
    ]
    pipe = subprocess.PIPE
    started = [subprocess.Popen(one, stdout=pipe, stderr=pipe) for one in commands]
    said = []
    for process in started:
        out, err = process.communicate(timeout=400)
        assert process.returncode == 0, err.decode()[-2000:]
        said.append(json.loads(out))
    assert [one["turns"] for one in said] == [[3], [1], []]
    assert {one["drains"] for one in said} == {3}


def main(rank, store):
    class Shared(turns.Engine):
        """Its drain needs all processes."""

        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.traits = replace(self.traits, collective=True)

        def drain(self, timeout):
            torch.distributed.barrier()
            super().drain(timeout)

    turns.Engine = Shared
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=3,
        timeout=timedelta(seconds=100),
    )
    replies = [2, 0][rank : rank + 1]
    plan = turns.plan_of(config={"replies": sum(replies)})
    draws = [Draw(turns.problem(), 1, 0) for _ in replies]
    found, engine, *_ = turns.play(lambda *_: "P", draws, plan)
    played = [one.transcript.n_turns for (one,) in found]
    sys.stdout.write(json.dumps({"turns": played, "drains": engine.drains}))
    torch.distributed.barrier()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
