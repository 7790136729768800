"""Prints the bytes one forward and backward pass adds to this process's resident peak."""

import re
import sys
from pathlib import Path

import torch

from rlvr_core.step.logprobs import fused_logprobs

TOKENS, VOCABULARY = 2 * 256, 151_936


def status(key):
    text = Path("/proc/self/status").read_text()
    return int(re.search(rf"{key}:\s+(\d+) kB", text).group(1)) * 1024


def plain(hidden_NH, weight_VH, target_N):
    logits_NV = (hidden_NH @ weight_VH.T).float()
    return logits_NV.log_softmax(-1).gather(1, target_N[:, None])[:, 0]


def fused(hidden_NH, weight_VH, target_N):
    return fused_logprobs(hidden_NH, weight_VH, target_N, temperature=1.0)[0]


def entropy(hidden_NH, weight_VH, target_N):
    both = fused_logprobs(hidden_NH, weight_VH, target_N, temperature=1.0, with_entropy=True)
    return both[0] + both[1]


def main(way, hidden, dtype):
    dtype = getattr(torch, dtype)
    torch.manual_seed(0)
    hidden_NH = torch.randn(TOKENS, int(hidden), dtype=dtype, requires_grad=True)
    weight_VH = torch.randn(VOCABULARY, int(hidden), dtype=dtype, requires_grad=True)
    target_N = torch.randint(VOCABULARY, (TOKENS,))
    run = {"plain": plain, "fused": fused, "entropy": entropy}[way]
    run(hidden_NH[:8], weight_VH[:999], target_N[:8] % 999).sum().backward()  # libraries' own
    hidden_NH.grad = weight_VH.grad = None
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    run(hidden_NH, weight_VH, target_N).sum().backward()
    print(status("VmHWM") - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
