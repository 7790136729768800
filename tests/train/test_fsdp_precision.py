"""Under FSDP2 in half precision no copy of a layer's weights outlives the layer; same numbers."""

import pytest
import torch

pytestmark = pytest.mark.slow

WORKER = "precision_worker"
BF16 = ["bf16", "bf16-checkpointing", "bf16-lora", "bf16-reference", "bf16-moving-reference"]
HALF = [*BF16, "fp16-checkpointing"]


def distance(found, wanted):
    """Norm of the difference, relative."""
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


def flat(tensors):
    return torch.cat([tensors[name].flatten().double() for name in sorted(tensors)])


@pytest.mark.parametrize("case", HALF)
def test_copies_of_weights_alive_after_each_layer_are_none(together, case):
    for rank in together:
        assert rank[case]["alive"] == [0, 0]
        assert rank[case]["whole_layers"] == [0, 0]  # each is sharded again


def test_recomputed_layers_leave_no_copies_in_a_single_process_either(alone):
    """Autocast's cache would keep them to the end of the pass."""
    assert alone["bf16-checkpointing"]["alive"] == [0, 0]


@pytest.mark.parametrize("case", BF16)
def test_weights_travel_in_bfloat16_and_gradients_are_summed_in_float32(together, case):
    for rank in together:
        assert rank[case]["gathered"] == ["torch.bfloat16"]
        assert rank[case]["reduced"] == ([] if "reference" in case else ["torch.float32"])


def test_float16_travels_as_float32_and_keeps_its_range(together):
    assert together[0]["fp16-checkpointing"]["gathered"] == ["torch.float32"]


@pytest.mark.parametrize("case", HALF)
def test_the_numbers_are_those_of_one_process_within_rounding(alone, together, case):
    """And as near to float32's as one process's are: 8 bits of mantissa are 0.4 % a product."""
    one, two, exact = alone[case], together[0][case], alone["float32"]
    for name in ("logp", "entropy"):
        assert distance(two[name], one[name]) < 0.02
        if "lora" not in case:
            assert distance(two[name], exact[name]) < 2 * distance(one[name], exact[name]) + 1e-3
    assert one["grads"].keys() == two["grads"].keys()
    if one["grads"]:
        assert {tensor.dtype for tensor in two["grads"].values()} == {torch.float32}
        assert distance(flat(two["grads"]), flat(one["grads"])) < 0.04
    if one["grads"] and "lora" not in case:
        own = distance(flat(one["grads"]), flat(exact["grads"]))
        assert distance(flat(two["grads"]), flat(exact["grads"])) < 2 * own + 1e-3


def test_both_processes_compute_the_same(together):
    first, second = together
    for case in HALF:
        assert torch.equal(first[case]["logp"], second[case]["logp"])
