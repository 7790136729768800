"""One rank of many that split a model of real size by FSDP2, alone and by shapes: what it holds.

    python tests/gpu_standin/one_rank.py '[{"size": "8B", "ranks": 8, "checkpointing": true}]'

Nothing is sent: each rank is taken to hold and to do what this one does, and what a collective
would write is a shape. FSDP2 itself is torch's, with its buffers to gather and to sum in. Times and
numbers mean nothing here; ``ranks.py`` holds the numbers, with a small model and true ranks.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import ranks as several  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from run import FEW, sizes_of  # noqa: E402
from steps import CASE, groups, models, trainer_of  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

from rlvr_core.api import MicroBatch  # noqa: E402
from rlvr_core.builtin.lora import lora  # noqa: E402
from rlvr_core.builtin.packing.packed import predictors  # noqa: E402
from rlvr_core.builtin.packing.split import Split  # noqa: E402
from rlvr_core.parallel.model import ParallelModel  # noqa: E402
from rlvr_core.parallel.ranks import Ranks  # noqa: E402
from rlvr_core.step.model import Precision  # noqa: E402
from rlvr_core.step.step import _bare_rows, _completions  # noqa: E402

T = TypeVar("T")


class Alike(Ranks):
    """Ranks that all say what this one says."""

    def gather(self, mine: T) -> list[T]:
        """See ``Ranks``."""
        return [mine] * self.world


def pretend(gathered: several.Gathered) -> None:
    """Let FSDP2 believe that it is on a GPU, and that what it sends arrives."""
    importlib.import_module("peft")  # while torch does not seem to be built for CUDA
    several.pretend(gathered)
    lora._fingerprint = lambda *_: {}  # of weights, and shapes have none
    dist.all_gather_single = sent
    dist.reduce_scatter_single = lambda output, input, **_: sent(input, output)
    dist.all_reduce = lambda *_, **__: None


def sent(whole: torch.Tensor, part: torch.Tensor, **_: Any) -> None:
    """A collective that makes a whole of parts, or the other way round."""
    assert whole.numel() == part.numel() * dist.get_world_size()
    assert whole.dtype == part.dtype


def own_sizes(batch: MicroBatch, size: int) -> dict[str, int]:
    """What the first of the ranks that split a micro-batch has of it; all of it of one rank."""
    if size == 1:
        return sizes_of(batch)
    split = Split.of(batch, 0, size)
    pieces, queries, keys = (
        len(split.query_len_R), int(split.query_len_R.max()), int(split.key_len_R.max())
    )  # fmt: skip
    return {
        "tokens": len(split.own_n),
        "loss_tokens": int((split.owner_N[predictors(batch.host)] == 0).sum()),
        "keys": len(split.key_K),
        "query_slots": pieces * queries,
        "key_slots": pieces * keys,
        "mask": pieces * queries * keys,
    }


def run(case: Mapping[str, Any], gathered: several.Gathered) -> dict[str, Any]:
    """Do the steps of a case; figures are of the last one, ``sizes`` of its micro-batches."""
    everyone = Alike(0, case["ranks"])
    made = models(case, "meta")
    vocabulary = made["policy"].config.vocab_size
    given = groups(case, vocabulary)
    with several.StandIn(shapes_only=True) as device:
        parallel = ParallelModel(everyone, "fsdp", context=several.context_of(case))
        options = {
            "temperature": 1.0,
            "autocast_dtype": Precision(getattr(torch, case["dtype"])).autocast,
        }
        for name, model in made.items():
            device.put_model(model)
            parallel.add(model, trained=name == "policy", **options)
        trainer = trainer_of(case, made, ranks=everyone, parallel=parallel)
        for step in range(case["steps"]):
            device.forget()
            gathered.peak = gathered.live
            few = step < case["steps"] - 1
            rows = groups({**case, **FEW, "groups": case["ranks"]}, vocabulary) if few else given
            trainer.update(rows, step, step)
        work = [one for one in trainer._pack(_bare_rows(_completions(given))) if one.counts]
        return {
            "waits": sum(device.waits.values()),
            "wide": sum(device.wide.values()),
            "launches": sum(device.launches.values()),
            "at_rest": device.live,
            "peak": device.peak,
            "peak_at": device.peak_at,
            "gathered": gathered.peak,
            "sizes": [own_sizes(one.batch, case["split"]) for one in work],
        }


if __name__ == "__main__":
    cases = [{**CASE, "ranks": 8, **case} for case in json.loads(sys.argv[1])]
    weights = several.Gathered()
    pretend(weights)
    for one in cases:
        os.environ["WORLD_SIZE"] = str(one["ranks"])
        dist.init_process_group("fake", rank=0, world_size=one["ranks"], store=FakeStore())
        print(json.dumps(run(one, weights)), flush=True)
        dist.destroy_process_group()
