"""One process of test_fsdp_precision: what a pass in half precision computes, and what it keeps."""

import sys

import torch
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from rlvr_core.config.model import LoraSection, ModelSection
from rlvr_core.lora import lora
from rlvr_core.parallel.model import ParallelModel
from rlvr_core.parallel.sharded import whole
from rlvr_core.step.batch import Row, micro_batches
from rlvr_core.step.forward import completion_scores, probe_forward_path
from rlvr_core.step.model import Precision, enable_checkpointing, load_policy, load_reference
from tests.support.train.parallel_worker import main

CPU = torch.device("cpu")
CASES = {
    "float32": (torch.float32, {}),
    "bf16": (torch.bfloat16, {}),
    "bf16-checkpointing": (torch.bfloat16, {"checkpointing": True}),
    "bf16-lora": (torch.bfloat16, {"lora": True}),
    "bf16-reference": (torch.bfloat16, {"frozen": torch.bfloat16}),
    "bf16-moving-reference": (torch.bfloat16, {"frozen": torch.float32}),
    "fp16-checkpointing": (torch.float16, {"checkpointing": True}),
}


class Watch(TorchDispatchMode):
    """Notes copies of weights in another dtype, and what processes send each other."""

    def __init__(self, shapes, dtype):
        super().__init__()
        self.shapes, self.dtype = shapes, dtype
        self.copies, self.gathered, self.reduced = [], [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = str(func)
        if "_to_copy" in name and tuple(out.shape) in self.shapes and out.dtype == self.dtype:
            self.copies.append(StorageWeakRef(out.untyped_storage()))
        if "allgather" in name:
            self.gathered.append(str(args[1].dtype))
        if "reduce_scatter" in name:
            self.reduced.append(str(args[1].dtype))
        return out

    @property
    def alive(self):
        """Copies of weights that somebody still holds."""
        return sum(not one.expired() for one in self.copies)


def policy(folder, dtype, case):
    section = ModelSection(path=str(folder))
    if "frozen" in case:
        return load_reference(str(folder), section, CPU, case["frozen"])
    model = load_policy(str(folder), section, CPU)
    if case.get("lora"):
        section = LoraSection(rank=4, alpha=8)
        lora.attach(model, section, seed=1, compute=dtype, path=str(folder), revision=None)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.fill_(0.02)
    return model


def one_pass(folder, ranks, dtype, case):
    model = policy(folder, dtype, case)
    if case.get("checkpointing"):
        enable_checkpointing(model)
    options = {"temperature": 0.7, "autocast_dtype": Precision(dtype).autocast}
    layers = list(model.model.layers)
    shapes = {tuple(p.shape) for layer in layers for p in layer.parameters() if p.ndim == 2}
    probe_forward_path(model)
    if ranks.world > 1:
        parallel = ParallelModel(ranks, "fsdp")
        parallel.add(model, trained="frozen" not in case, **options)
    answers = [(6, 7, 8, 9, 3), (11, 12, 13), (40, 3, 40, 5, 6, 7, 8)]
    rows = [Row((4, 5, 9), ids, (True,) * len(ids), (0.0,) * len(ids), 0.0) for ids in answers]
    (batch,) = micro_batches(rows, tokens_per_micro_batch=100, device=CPU)
    alive, whole_layers = [], []
    watch = Watch(shapes, dtype)

    def after_layer(*_):
        alive.append(watch.alive)
        whole_layers.append(
            sum(any(not isinstance(p, DTensor) for p in one.parameters()) for one in layers)
        )

    hooks = [layer.register_forward_hook(after_layer) for layer in layers]
    graded = torch.no_grad() if "frozen" in case else torch.enable_grad()
    with watch, graded:
        if ranks.world > 1:
            logp_BT, entropy_BT = parallel.compute(completion_scores, model, batch)
        else:
            logp_BT, entropy_BT = completion_scores(model, batch, **options)
        for hook in hooks:
            hook.remove()
        if logp_BT.requires_grad:
            (2.0 * logp_BT + 0.1 * entropy_BT).sum().backward()
    return {
        "logp": logp_BT.detach(),
        "entropy": entropy_BT.detach(),
        "grads": {
            name: whole(parameter.grad)
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        },
        "alive": alive,
        "whole_layers": whole_layers,
        "gathered": sorted(set(watch.gathered)),
        "reduced": sorted(set(watch.reduced)),
    }


def everything(folder, ranks):
    return {name: one_pass(folder, ranks, *case) for name, case in CASES.items()}


if __name__ == "__main__":
    main(everything, *sys.argv[1:])
