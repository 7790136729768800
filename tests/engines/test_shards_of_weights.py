"""Checksums of weights that a vLLM model holds in shards; no vLLM is needed."""

import pytest
import torch
from torch import nn

from rlvr_core.engines.sync import weight_checksums
from rlvr_core.engines.vllm.readback import Shard, held, whole


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_checksums_of_shards_are_those_of_whole_tensors(dtype):
    """Split by rows, by columns, both, and held by all; of 1 and of 2 dimensions."""
    torch.manual_seed(0)
    tensors = {"rows": torch.randn(7, 5), "columns": torch.randn(6, 9), "both": torch.randn(8, 8)}
    tensors |= {"norm": torch.randn(11), "bias": torch.randn(10), "huge": 1e30 * torch.randn(3, 4)}
    cuts = {
        "rows": [(slice(0, 4), slice(None)), (slice(4, 7), slice(None))],
        "columns": [(slice(None), slice(0, 2)), (slice(None), slice(2, 9))],
        "both": [(slice(0, 3), slice(0, 5)), (slice(3, 8), slice(0, 5))],
        "huge": [(slice(0, 1), slice(None)), (slice(1, 3), slice(None))],
    }
    cuts["both"] += [(rows, slice(5, 8)) for rows, _ in cuts["both"]]
    parts = [{}, {}, {}, {}]
    for name, tensor in tensors.items():
        for part, cut in zip(parts, cuts.get(name, []), strict=False):
            place = tuple(one.start or 0 for one in cut)
            sums = weight_checksums([(name, tensor[cut])], dtype)
            part[name] = Shard(sums[name], *place)
    for part in parts[:2]:
        part["norm"] = Shard(weight_checksums([("n", tensors["norm"])], dtype)["n"])
    for part, first in zip(parts, (0, 6), strict=False):
        bias = tensors["bias"][first : first + (6 if first == 0 else 4)]
        part["bias"] = Shard(weight_checksums([("b", bias)], dtype)["b"], first)
    assert whole(parts) == weight_checksums(tensors.items(), dtype)


def test_a_copy_that_differs_between_processes_matches_nothing():
    one, other = (weight_checksums([("n", torch.full((3,), value))])["n"] for value in (1.0, 2.0))
    (found,) = whole([{"n": Shard(one)}, {"n": Shard(other)}]).values()
    assert found not in (one, other)
    assert whole([{"n": Shard(one)}, {"n": Shard(one)}]) == {"n": one}


class Split(nn.Module):
    """A layer as vLLM's: the second of four shards of a fused query, key and value."""

    gather_output, tp_rank, num_kv_head_replicas = False, 1, 2
    output_partition_sizes = (4, 2, 2)

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 3))


def test_a_key_value_head_that_two_processes_hold_has_one_place():
    model = nn.ModuleDict({"qkv_proj": Split()})
    packed = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}
    places = {name: place for name, _, place in held(model, packed)}
    assert places == {
        ".q_proj.weight": (4, 0),  # rows 4 to 8 of 16
        ".k_proj.weight": (0, 0),  # processes 0 and 1 hold the first key-value head
        ".v_proj.weight": (0, 0),
    }
