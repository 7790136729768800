"""One process of test_fsdp_loading: memory while policy and reference are loaded to shards."""

import gc
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist

from rlvr_core.config.model import ModelSection
from rlvr_core.parallel.fsdp.loading import probe, stored_dtype
from rlvr_core.parallel.model import ParallelModel
from rlvr_core.parallel.ranks import joined
from rlvr_core.parallel.sharded import whole
from rlvr_core.step.batch import Row, micro_batches
from rlvr_core.step.forward import completion_logprobs, probe_forward_path
from rlvr_core.step.model import load_policy, load_reference

CPU = torch.device("cpu")


def memory(*names):
    """Bytes of this process by the kernel's count."""
    found = {}
    for file in ("status", "smaps_rollup"):
        for line in Path(f"/proc/self/{file}").read_text().splitlines():
            name, _, rest = line.partition(":")
            if rest.strip().endswith("kB"):
                found[name] = int(rest.split()[0]) * 1024
    return {name: found[name] for name in names}


class Peak:
    """The most anonymous memory, and the most of all that counts to this process."""

    def __enter__(self):
        gc.collect()
        self.base = self.most = memory("RssAnon", "Pss")
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self):
        while True:
            now = memory("RssAnon", "Pss")
            self.most = {name: max(value, now[name]) for name, value in self.most.items()}
            if self._done.wait(0.002):
                return

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()

    @property
    def grown(self):
        return {name: self.most[name] - self.base[name] for name in self.base}


def loaded(folder, ranks, *, at_once):
    """The peaks of policy and reference, and what the policy computes and holds."""
    section = ModelSection(path=folder)
    options = {"temperature": 1.0, "autocast_dtype": torch.bfloat16}
    parallel = ParallelModel(ranks, "fsdp")
    peaks = {}
    for kind in ("policy", "reference"):
        dist.barrier()
        with Peak() as peak:
            if kind == "policy":
                dtype = torch.float32 if at_once else stored_dtype(folder, section)
                model = policy = load_policy(folder, section, CPU, dtype)
            elif at_once:
                model = load_policy(folder, section, CPU).to(torch.bfloat16).requires_grad_(False)
            else:
                model = load_reference(folder, section, CPU, torch.bfloat16)
            (probe_forward_path if at_once else probe)(model)
            parallel.add(model, trained=kind == "policy", **options)
        peaks[kind] = {**peak.grown, "kept": memory("RssAnon")["RssAnon"] - peak.base["RssAnon"]}
    (batch,) = micro_batches(
        [Row((4, 5, 9), (6, 7, 8), (True,) * 3, (0.0,) * 3, 0.0)],
        tokens_per_micro_batch=100,
        device=CPU,
    )
    with torch.no_grad():
        logps = [parallel.compute(completion_logprobs, one, batch) for one in (policy, model)]
    return {
        "peaks": peaks,
        "policy": logps[0],
        "reference": logps[1],
        "dtypes": {str(p.dtype) for p in policy.parameters()},
        "frozen": {str(p.dtype) for p in model.parameters()},
        "tied": policy.get_output_embeddings().weight is policy.get_input_embeddings().weight,
        "weights": {n: whole(p).sum(dtype=torch.float64) for n, p in policy.named_parameters()},
    }


if __name__ == "__main__":
    folder, out = sys.argv[1:]
    with joined(300.0) as ranks:
        small = Path(folder) / "small"
        if small.is_dir() and ranks.world > 1:
            loaded(str(small), ranks, at_once=False)  # imports are not counted
        for way in ("shards", "whole"):
            found = loaded(folder, ranks, at_once=way == "whole")
            torch.save(found, Path(out) / f"{way}{ranks.index}.pt")
