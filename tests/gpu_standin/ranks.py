"""One of several ranks that split a policy by FSDP2 on the stand-in: what its steps cost.

Each rank has a stand-in of its own, and gloo carries what NCCL would:

    torchrun --nproc-per-node 2 tests/gpu_standin/ranks.py '[{"checkpointing": true}]' FOLDER

Streams and events do nothing, since nothing is ever in flight: an order that only they keep is not
under test. The memory that FSDP2 takes for whole weights and gives back is counted by itself.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import build  # noqa: E402

build.load()

import device as standin  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from steps import CASE, groups, models, trainer_of  # noqa: E402
from torch.distributed.fsdp._fully_shard import _fsdp_param  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402

from rlvr_core.builtin.fsdp.shards import read_shards  # noqa: E402
from rlvr_core.builtin.packing.context import ContextParallel  # noqa: E402
from rlvr_core.config.model import ModelSection  # noqa: E402
from rlvr_core.parallel.model import ParallelModel  # noqa: E402
from rlvr_core.parallel.ranks import Ranks  # noqa: E402
from rlvr_core.step import checkpoint  # noqa: E402
from rlvr_core.step.model import Precision  # noqa: E402


class Nothing:
    """A stream, or an event, of a device on which nothing is ever in flight."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> Nothing:
        return self

    record_event = record

    def wait_event(self, *_: Any) -> None: ...

    wait_stream = wait = synchronize = wait_event


class StandIn(standin.StandIn):
    """The stand-in, to which sharded tensors come as what this rank holds of them."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See ``run``."""
        if any(issubclass(one, DTensor) for one in types):
            return NotImplemented  # torch asks DTensor, which asks again
        return self.run(func, args, kwargs or {})


class Gathered:
    """Bytes of whole weights that FSDP2 holds: now, and at most.

    What it first makes room for is seen when it is given back: figures are of later steps.
    """

    def __init__(self) -> None:
        self._seen: dict[int, standin.OnDevice] = {}
        self.peak = 0

    @property
    def live(self) -> int:
        """Bytes now."""
        return sum(one.held.untyped_storage().size() for one in self._seen.values())

    def resize(self, tensor: standin.OnDevice, size: int) -> None:
        """Give a tensor's storage so many bytes; FSDP2 would resize the device's own."""
        self._seen[id(tensor)] = tensor
        storage = tensor.held.untyped_storage()
        if storage.size() != size:
            storage.resize_(size)
            standin._current().resized(storage)
        self.peak = max(self.peak, self.live)


def event(*, enable_timing: bool = False) -> Any:
    """An event that the step reads, or one of those that keep FSDP2's streams in order."""
    return standin.Event(enable_timing=True) if enable_timing else Nothing()


def set_data(self: torch.Tensor, value: torch.Tensor) -> None:
    """``buffer.data = value``, to the other device as well."""
    if isinstance(self, standin.OnDevice) == isinstance(value, standin.OnDevice):
        standin._DATA.__set__(self, value)
    else:
        torch.utils.swap_tensors(self, value)


def pretend(gathered: Gathered) -> None:
    """Let FSDP2 believe that it is on a GPU."""
    standin.pretend()
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: 0
    torch.cuda.set_device = lambda _: None
    torch.cuda.Stream = Nothing  # type: ignore[assignment, misc]
    torch.cuda.Event = event  # type: ignore[assignment, misc]
    torch.cuda.current_stream = lambda *_: Nothing()  # type: ignore[assignment, return-value]

    torch.Tensor.data = property(standin._DATA.__get__, set_data)  # type: ignore[assignment]

    @contextlib.contextmanager
    def stream(_: Any) -> Iterator[None]:
        yield

    torch.cuda.stream = stream  # type: ignore[assignment]
    _fsdp_param.alloc_storage = lambda one: gathered.resize(one, one.numel() * one.itemsize)
    _fsdp_param.free_storage = lambda one: gathered.resize(one, 0)


def there_and_back(trainer: Any, shards: Any, ranks: Ranks) -> list[int]:
    """Write a rank's shards and read them; how many weights and moments are the same again."""
    optimizer, weights = trainer.optimizer, dict(trainer.model.named_parameters())
    of_parameters = dict(zip(optimizer.names, optimizer.parameters, strict=True))
    kept = [
        {name: local(one).cpu() for name, one in part.items()}
        for part in (weights, optimizer.state_tensors())
    ]
    place = Path(ranks.gather(tempfile.mkdtemp() if ranks.main else "")[0])
    if ranks.main:
        (place / "trainer").mkdir()
    shards.write(place if ranks.main else None, trainer.precision.compute)
    with torch.no_grad():
        for weight in weights.values():
            weight.zero_()
    found = [
        read_shards(place / "trainer", "master", weights),
        read_shards(place / "trainer", "optimizer", of_parameters),
    ]
    ranks.gather(None)
    if ranks.main:
        shutil.rmtree(place)
    return [
        sum(torch.equal(local(back[name]).cpu(), one) for name, one in before.items())
        for back, before in zip(found, kept, strict=True)
    ]


def local(tensor: Any) -> torch.Tensor:
    """What this rank has of a tensor."""
    part: torch.Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return part.detach()


def context_of(case: Mapping[str, Any]) -> Any:
    """The ranks that split rows with this one, where a case has such."""
    if case["split"] == 1:
        return None
    paths = ModelSection.model_fields["forward_paths"].default
    train, run = (SimpleNamespace(context_parallel=case["split"]), SimpleNamespace(timeout=60))
    config: Any = SimpleNamespace(train=train, run=run, model=SimpleNamespace(forward_paths=paths))
    return ContextParallel(config)


def run(case: Mapping[str, Any], ranks: Ranks, gathered: Gathered) -> dict[str, Any]:
    """Do the steps of a case; figures are of the last one."""
    made = models(case, "cpu")
    given = groups(case, made["policy"].config.vocab_size)
    with StandIn() as device:
        parallel = ParallelModel(ranks, "fsdp", context=context_of(case))
        options = {
            "temperature": 1.0,
            "autocast_dtype": Precision(getattr(torch, case["dtype"])).autocast,
        }
        for name, model in made.items():
            parallel.add(model, trained=name == "policy", **options)
        trainer = trainer_of(case, made, ranks=ranks, parallel=parallel)
        alive: list[int] = []
        for layer in made["policy"].base_model.layers:
            layer.register_forward_hook(lambda *_: alive.append(gathered.live))
        metrics, updates = [], 0
        for step in range(case["steps"]):
            device.forget()
            alive.clear()
            gathered.peak = gathered.live
            report = trainer.update(given, step, step)
            metrics.append(report.metrics)
            updates = len(report.updates)
        figures = {
            "waits": [[*key, n] for key, n in device.waits.most_common()],
            "wide": device.wide.most_common(),
            "alive": alive,
            "gathered": gathered.peak,
            "at_rest": gathered.live,
        }
        shards = checkpoint.collect(
            trainer.model, trainer.optimizer, trainer.reference, ranks, Path.cwd()
        ).shards
        copied = [one for part in shards._parts.values() for one, _ in part.values()]
        restored = there_and_back(trainer, shards, ranks)
        weight: Any = next(made["policy"].parameters())
        held = weight.to_local()
    return figures | {
        "metrics": metrics,
        "updates": updates,
        "device": str(held.device),
        "held": held.numel() / weight.numel(),
        "restored": restored,
        "copied": sum(one.numel() for one in copied),
        "places": sorted({str(one.device) for one in copied}),
    }


if __name__ == "__main__":
    dist.init_process_group("gloo")
    everyone, whole_weights = Ranks(dist.get_rank(), dist.get_world_size()), Gathered()
    cases = [{**CASE, **case} for case in json.loads(sys.argv[1])]
    pretend(whole_weights)
    found = [run(case, everyone, whole_weights) for case in cases]
    Path(sys.argv[2], f"rank{everyone.index}.json").write_text(json.dumps(found))
