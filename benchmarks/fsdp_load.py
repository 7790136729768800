"""Host memory of each process while a policy and its reference are loaded to be sharded (FSDP2).

    python benchmarks/fsdp_load.py --layers 16 --processes 4     # Llama-3.2-1B's sizes, over gloo
    python benchmarks/fsdp_load.py --step                        # one update, too: minutes

A model of random weights in bfloat16 is written, and each process loads it as a run under
train.parallel: fsdp does. Anonymous memory alone is counted, as it grows over what the process had
when everything was imported: pages of the mapped files can be dropped at any time. The update is by
plain SGD in bfloat16, on 12 short completions, every layer recomputed: moments of AdamW would be
twice the shard more.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

WORKER = Path(__file__).parents[1] / "tests" / "train" / "loading_worker.py"
LAUNCH = (sys.executable, "-m", "torch.distributed.run", "--standalone")
GIB = 2**30
TINY = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
TINY_HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1}


def write(folder: Path, sizes: dict[str, int]) -> tuple[int, int, int]:
    """Write a model, and return its parameters: all, of a layer, and of the embedding."""
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, **sizes))
    model = model.to(torch.bfloat16).to_empty(device="cpu")
    model.tie_weights()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.02)
    model.save_pretrained(folder)
    layer = sum(p.numel() for p in model.model.layers[0].parameters())
    whole = sum(p.numel() for p in model.parameters())  # tied weights once
    return whole, layer, model.get_input_embeddings().weight.numel()


def main() -> None:
    """Print a line for each process, and the bound."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    words.add_argument("--processes", type=int, default=4)
    words.add_argument("--layers", type=int, default=16)
    words.add_argument("--hidden", type=int, default=2048)
    words.add_argument("--vocabulary", type=int, default=128_256)
    words.add_argument("--step", action="store_true", help="make an update")
    given = words.parse_args()
    sizes = {
        "vocab_size": given.vocabulary,
        "hidden_size": given.hidden,
        "intermediate_size": 4 * given.hidden,
        "num_hidden_layers": given.layers,
        "num_attention_heads": given.hidden // 64,
        "num_key_value_heads": given.hidden // 256,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole, layer, embedding = write(folder, sizes)
        write(folder / "small", TINY | TINY_HEADS)
        for way in ("load", "step") if given.step else ("load",):
            subprocess.run(
                [*LAUNCH, f"--nproc-per-node={given.processes}", WORKER, name, name, way],
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                check=True,
                stderr=subprocess.DEVNULL,
            )
        for kind, width in (("policy", 4), ("reference", 2)):
            shard = width * whole / given.processes
            part = width * max(layer, embedding)
            print(
                f"{kind}: {whole / 1e9:.2f}B parameters; GiB: whole {width * whole / GIB:.2f}, "
                f"shard {shard / GIB:.2f}, largest part {part / GIB:.2f}, "
                f"together {(shard + part) / GIB:.2f}"
            )
            for rank in range(given.processes):
                peaks = torch.load(folder / f"load{rank}.pt", weights_only=False)["peaks"][kind]
                print(
                    f"  process {rank}: peak {peaks['RssAnon'] / GIB:.2f}, "
                    f"kept {peaks['kept'] / GIB:.2f}"
                )
        for rank in range(given.processes if given.step else 0):
            found = torch.load(folder / f"step{rank}.pt", weights_only=False)
            print(
                f"update, process {rank}: {found['seconds']:.0f} s, "
                f"{found['grown']['RssAnon'] / GIB:.2f} GiB over what was loaded, "
                f"gradient norm {found['grad_norm']:.3e}, weights moved: {all(found['moved'])}"
            )


if __name__ == "__main__":
    main()
