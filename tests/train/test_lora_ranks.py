"""Two gloo processes train the adapters that one does, with DDP and with FSDP2."""

import pytest
import torch

WORKER = "lora_ranks"
CASES = ["ddp-follows", "fsdp-follows", "fsdp-bf16"]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_the_adapters_of_one(alone, together, case):
    one, two = alone[case], together[0][case]
    close = {"rtol": 1e-3, "atol": 1e-5} if case != "fsdp-bf16" else {"rtol": 0.2, "atol": 0.02}
    for ours, theirs in zip(one["metrics"], two["metrics"], strict=True):
        assert ours.keys() == theirs.keys()
        for name in ("loss", "kl/mean", "grad_norm"):
            assert ours[name] == pytest.approx(theirs[name], rel=close["rtol"], abs=close["atol"])
    assert one["metrics"][1]["kl/mean"] > 1e-4
    for kind in ("adapter", "reference", "merged"):
        assert one[kind].keys() == two[kind].keys()
        torch.testing.assert_close(one[kind], two[kind], **close)
    assert bool(two["reference"]) == ("follows" in case)
    assert len(two["adapter"]) == 28
    assert two["moments"].keys() == one["moments"].keys()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_both_processes_hold_and_hand_on_the_same(together, case):
    first, second = (rank[case] for rank in together)
    for kind in ("adapter", "reference", "merged", "replica"):
        assert all(torch.equal(first[kind][name], second[kind][name]) for name in first[kind])
    assert all(torch.equal(first["merged"][n], first["replica"][n]) for n in first["merged"])
