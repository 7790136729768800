"""Checkpoints of a sharded policy: each process writes its shard, and any number reads them."""

import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from rlvr_core.parallel.fsdp.shards import read_shards
from rlvr_core.parallel.ranks import Ranks
from rlvr_core.record.checkpoints import COMPLETE, CheckpointStore, verify
from rlvr_core.step import checkpoint

WORKER = "shards_worker"
CASES = [("two", "bfloat16"), ("two", "float32"), ("four", "bfloat16"), ("hsdp", "float32")]
SHARDS = {"two": 2, "four": 4, "hsdp": 2}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two(started):
    """What each of two processes finds."""
    return started(2)


@pytest.fixture(scope="module")
def four(started, two):
    """What each of four processes finds, which read what the two wrote."""
    return started(4)


@pytest.fixture(scope="module")
def made(worker, alone):
    """Makes a trainer in this process."""
    return sys.modules[worker]


@pytest.fixture(params=CASES, ids="-".join)
def case(request, folder, two, four):
    """A checkpoint, its name and dtype, and what each process found."""
    ranks = two if request.param[0] == "two" else four
    found = [rank[request.param] for rank in ranks]
    return folder / "-".join(request.param) / "step000001", *request.param, found


def equal(one, two):
    assert one.keys() == two.keys()
    for kind in one:
        torch.testing.assert_close(one[kind], two[kind], rtol=0, atol=0)


def test_each_process_holds_and_writes_its_shard_of_one_copy(case):
    place, name, dtype, ranks = case
    shares = [rank["held"] for rank in ranks]
    writers, others = shares[: SHARDS[name]], shares[SHARDS[name] :]
    # the vocabulary of 61 comes out uneven; step counts are with the first
    assert writers == pytest.approx([1 / SHARDS[name]] * SHARDS[name], abs=0.006)
    assert sum(writers) == pytest.approx(1, abs=1e-9)
    assert others == [0] * (len(ranks) - SHARDS[name])
    kinds = {"optimizer", "reference", *(["master"] if dtype == "bfloat16" else [])}
    shards = {f"{i:05}-of-{SHARDS[name]:05}.safetensors" for i in range(1, SHARDS[name] + 1)}
    files = {path.relative_to(place / "trainer") for path in place.glob("trainer/*/*")}
    assert {str(path) for path in files} == {
        f"{kind}/{shard}" for kind in kinds for shard in shards
    }


def test_slices_in_order_are_the_whole_tensors(case):
    place, _, dtype, ranks = case
    due = ranks[0]["due"]
    kinds = {"moments": "optimizer", "reference": "reference"}
    for kind, part in (
        kinds.items() if dtype == "float32" else [*kinds.items(), ("weights", "master")]
    ):
        pieces = {}
        for file in sorted((place / "trainer" / part).iterdir()):
            for name, piece in load_file(file).items():
                pieces.setdefault(name, []).append(piece)
        whole = {k: torch.cat(v) if v[0].ndim else v[0] for k, v in pieces.items()}
        torch.testing.assert_close(whole, due[kind], rtol=0, atol=0)


def test_the_same_processes_go_on_bit_for_bit_from_what_was_there_before_the_step_beside(case):
    *_, ranks = case
    assert all(rank["back"] and rank["goes_on"] for rank in ranks)


def test_one_process_reads_it_as_the_whole_file(case, folder, made):
    place, _, dtype, ranks = case
    other = made.made(folder, Ranks(), dtype)
    checkpoint.load(place, **made.loaded_into(other))
    equal(made.contents(other), ranks[0]["due"])


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_four_processes_read_what_two_wrote(two, four, dtype):
    for rank in four:
        equal(rank["two", dtype], two[0]["two", dtype]["due"])


def test_transformers_loads_the_model_folder(case):
    place, _, dtype, ranks = case
    model, info = AutoModelForCausalLM.from_pretrained(place, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    kind = getattr(torch, dtype)
    assert model.dtype == kind
    due = {name: one.to(kind) for name, one in ranks[0]["due"]["weights"].items()}
    torch.testing.assert_close(dict(model.named_parameters()), due, rtol=0, atol=0)
    index = json.loads((place / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == due.keys()
    assert index["metadata"]["total_size"] == sum(one.nbytes for one in due.values())
    sizes = [(place / file).stat().st_size for file in sorted({*index["weight_map"].values()})]
    assert len(sizes) == len(list(place.glob("model-*.safetensors"))) > 1
    assert max(sizes) < 0.75 * sum(sizes)


def test_without_a_folder_that_all_see_process_0_gathers(two):
    assert [rank["unseen"] for rank in two] == [(False, 20), (False, 0)]


def test_a_full_disk_of_one_process_is_told_by_all_and_leaves_nothing(two):
    (main, left), (other, _) = (rank["full"] for rank in two)
    assert main.startswith("the checkpoint could not be written: the disk is full")
    assert other.startswith("the checkpoint could not be written: [Errno 28]")
    assert left == []


@pytest.mark.parametrize("damage", ["flipped", "cut", "lost"])
@pytest.mark.parametrize("part", ["trainer/master", "trainer/optimizer", "."])
def test_one_bad_shard_makes_the_checkpoint_bad_and_is_named(folder, two, tmp_path, part, damage):
    older, newer = tmp_path / "step000001", tmp_path / "step000002"
    for copy in (older, newer):
        shutil.copytree(folder / "two-bfloat16" / older.name, copy)
    seal = json.loads((newer / COMPLETE).read_text())
    (newer / COMPLETE).write_text(json.dumps(seal | {"step": 2}))
    assert verify(newer) is None
    file = sorted((newer / part).glob("*2-of-00002.safetensors"))[0]
    content = bytearray(file.read_bytes())
    if damage == "flipped":
        content[-5] ^= 1
        file.write_bytes(content)
    elif damage == "cut":
        file.write_bytes(content[:-1])
    else:
        file.unlink()
    said = []
    assert CheckpointStore(tmp_path, keep=9).newest(said.append) == older
    (why,) = said
    assert file.relative_to(newer).as_posix() in why
    words = {"flipped": "has changed", "cut": f"not {len(content)}", "lost": "is missing"}
    assert words[damage] in why


def test_another_shape_is_refused_before_anything_is_read(folder, two):
    place = folder / "two-bfloat16" / "step000001" / "trainer"
    name = "model.norm.weight"
    ours = {name: torch.zeros(7)}
    with pytest.raises(ValueError, match=rf"{name} is \[32\] there, and \[7\] here"):
        read_shards(place, "master", ours)
    assert not ours[name].any()


def test_a_process_that_is_killed_between_its_files_makes_no_checkpoint(folder, worker):
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    subprocess.run(
        [sys.executable, *torchrun, "-m", worker, folder, folder],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        timeout=500,
        check=False,
    )
    complaint = torch.load(folder / "complaint.pt", weights_only=False)
    assert complaint.what.startswith("the checkpoint could not be written")
    place = folder / "killed"
    assert "step000002" in complaint.where
    assert complaint.remedy[0] == f"the last good checkpoint is {place / 'step000001'}"
    assert not (place / "step000002").exists()
    assert verify(place / "step000001") is None
    assert CheckpointStore(place, 1).newest(pytest.fail) == place / "step000001"


def test_torch_finds_the_places_of_slices(folder, two):
    """Files are in the layout that torch.distributed.checkpoint reads."""
    place = folder / "two-bfloat16" / "step000001" / "trainer" / "master"
    starts = {}
    for file in sorted(place.iterdir()):
        with safe_open(file, framework="pt") as slices:
            for name, one in json.loads(slices.metadata()["DCP_SHARDING_INFO"]).items():
                rows = slices.get_slice(name).get_shape()[0]
                starts.setdefault(name, []).append((one["saved_offsets"][0], rows))
    assert starts["model.embed_tokens.weight"] == [(0, 31), (31, 30)]
    for places in starts.values():
        assert places[0][0] == 0
        assert all(start + rows == after for (start, rows), (after, _) in pairwise(places))
