"""``rlvr launch``: two processes do the run of one, and end together."""

import json
import os
import shutil
import signal

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlvr_core.api import ConfigError
from rlvr_core.config.model import TrainSection
from rlvr_core.record.checkpoints import verify
from rlvr_core.run.inputs import check_compiled
from rlvr_core.testing.lab import install_plugin
from tests.support.installed import needs
from tests.support.run_records import (
    Launched,
    completions,
    launch,
    lines,
    same_metrics,
    same_weights,
    saved,
)

pytestmark = pytest.mark.slow

SAMPLER = {"use": "shuffle", "with": {"refill": 1.0}}
TRAIN = {"steps": 4, "lr": 1e-3, "warmup_steps": 1, "tokens_per_micro_batch": 60}
THREE = {"prompts_per_step": 3}


@pytest.fixture(scope="module")
def shared(tmp_path_factory, make_lab):
    """A laboratory with one configuration for all runs that are compared."""
    lab = make_lab(tmp_path_factory.mktemp("shared"))
    lab.write(
        sampler=SAMPLER,
        train=TRAIN | THREE,
        checkpoint={"every": 2, "keep": 9},
        track=["tensorboard"],
    )
    return lab


@pytest.fixture(scope="module")
def alone(shared):
    shared.rlvr("run", "config.yaml", "--display", "none")
    return shared.runs()[-1]


@pytest.fixture(scope="module")
def ddp(shared, alone):
    return launch(shared, "config.yaml")


@pytest.fixture(scope="module")
def fsdp(shared, ddp):
    return launch(shared, "config.yaml", "--set", "train.parallel=fsdp")


@pytest.fixture(scope="module")
def split(shared, ddp):
    return launch(shared, "config.yaml", "--set", "train.context_parallel=2")


@pytest.fixture(scope="module")
def split_shards(shared, ddp):
    changes = ["train.context_parallel=2", "train.parallel=fsdp"]
    return launch(shared, "config.yaml", *(word for one in changes for word in ("--set", one)))


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param("ddp", marks=pytest.mark.essential),
        "fsdp",
        pytest.param("split", marks=needs("rlvr_cluster")),
        pytest.param("split_shards", marks=[pytest.mark.essential, needs("rlvr_cluster")]),
    ],
)
def test_t18_two_processes_do_the_run_of_one(shared, alone, strategy, request):
    """The same completions in the same order, the same numbers, a ledger that balances."""
    two = request.getfixturevalue(strategy)
    assert completions(two) == completions(alone)
    same_metrics(alone, two)
    same_weights(alone, two, "step000004")
    assert json.loads(shared.rlvr("show", two.name, "--json").stdout)["ledger"]["balanced"] is True
    record = json.loads((two / "run.json").read_text())
    assert (record["outcome"], record["processes"]) == ("finished", 2)
    AutoModelForCausalLM.from_pretrained(two / "checkpoints" / "step000004")


@needs("rlvr_cluster")
def test_a_sharded_run_goes_on_in_its_store_s_copy_bit_for_bit_past_a_bad_shard(shared, fsdp):
    """Each of two processes wrote its shard; copied, damaged and gone on with, they are the run."""
    store = shared.folder / "store"
    changes = ["--set", f"run.mirror=file://{store}", "--set", "train.parallel=fsdp"]
    run = launch(shared, "config.yaml", *changes)
    for step in ("step000002", "step000004"):
        ours, theirs = saved(run / "checkpoints" / step), saved(fsdp / "checkpoints" / step)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    where = ["--to", "fetched", "--checkpoints", "all"]
    shared.rlvr("jobs", "fetch", f"file://{store}", *where)
    fetched = shared.folder / "fetched" / run.name
    newest = fetched / "checkpoints" / "step000004"
    assert (newest / "COMPLETE").read_bytes() == (
        run / "checkpoints" / "step000004" / "COMPLETE"
    ).read_bytes()
    shard = newest / "trainer" / "optimizer" / "00002-of-00002.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 64
    shard.write_bytes(content)
    words = ["--resume", str(fetched), "--processes", "2", "--display", "plain"]
    told = shared.rlvr("launch", *words)
    assert (
        "checkpoint step000004 is passed over: the content of "
        "trainer/optimizer/00002-of-00002.safetensors has changed" in told.stdout + told.stderr
    )
    torch.testing.assert_close(
        saved(newest), saved(run / "checkpoints" / "step000004"), rtol=0, atol=0
    )


@needs("rlvr_doctor", "rlvr_lab")
def test_commands_read_a_sharded_checkpoint(shared, fsdp):
    shared.rlvr("export", fsdp.name, "exported")
    exported = AutoModelForCausalLM.from_pretrained(shared.folder / "exported")
    master, _ = saved(fsdp / "checkpoints" / "step000004")
    for name, weight in exported.named_parameters():
        assert torch.equal(weight, master[name].to(weight.dtype)), name
    assert not (shared.folder / "exported" / "trainer").exists()
    found = shared.rlvr("models", "check", str(fsdp / "checkpoints" / "latest"), check=None)
    assert "Traceback" not in found.stdout + found.stderr


@pytest.mark.parametrize(
    ("first", "strategy", "processes"),
    [
        ("fsdp", "fsdp", 1),
        ("alone", "fsdp", 2),
        ("fsdp", "ddp", 2),
    ],
)
def test_a_run_goes_on_with_other_processes(shared, alone, first, strategy, processes, request):
    """Resumed at step 2: by one process after two, by two after one, by two of another kind."""
    stopped = shared.folder / "runs" / f"stopped-{first}-{strategy}"
    shutil.copytree(request.getfixturevalue(first), stopped, symlinks=True)
    shutil.rmtree(stopped / "checkpoints" / "step000004")
    if processes == 1:
        shared.rlvr("run", "--resume", str(stopped), "--display", "none")
    else:
        more = ["--set", f"train.parallel={strategy}", "--processes", "2", "--display", "none"]
        shared.rlvr("launch", "--resume", str(stopped), *more)
    assert completions(stopped) == completions(alone)
    same_metrics(alone, stopped)
    same_weights(alone, stopped, "step000004")
    resumed = json.loads((stopped / "run.json").read_text())["resumed"]
    assert [(again["step"], again["processes"]) for again in resumed] == [(2, processes)]


def launched_for_long(lab, **train):
    return Launched(lab, train=TRAIN | {"steps": 5000} | train, checkpoint={"every": 3, "keep": 9})


@pytest.mark.parametrize(("strategy", "rank"), [("ddp", 0), ("fsdp", 1)])
def test_when_a_process_is_killed_all_end_with_a_word(lab, strategy, rank):
    launched = launched_for_long(lab, parallel=strategy)
    launched.ranks[rank].send_signal(signal.SIGKILL)
    code, told, record = launched.end()
    assert code == 1
    assert f"process {rank} was ended by SIGKILL" in told
    if rank == 1:
        assert record["outcome"] == "failed"
        assert "ended without reporting an error" in record["error"]


def test_when_the_launcher_is_killed_its_processes_end(lab):
    launched = launched_for_long(lab)
    launched.process.kill()
    code, *_ = launched.end()
    assert code == -signal.SIGKILL


@needs("rlvr_cluster")
def test_a_run_that_split_rows_goes_on_with_one_process(shared, alone, split):
    """Its checkpoint knows nothing of the split; without the other process it is refused."""
    stopped = shared.folder / "runs" / "stopped-split"
    shutil.copytree(split, stopped, symlinks=True)
    shutil.rmtree(stopped / "checkpoints" / "step000004")
    resume = ["run", "--resume", str(stopped), "--display", "none"]
    refused = shared.rlvr(*resume, check=2).stderr
    assert "1 process does not divide into groups of 2 that split rows" in refused
    assert "rlvr launch --processes 2" in refused
    shared.rlvr(*resume, "--set", "train.context_parallel=1")
    same_metrics(alone, stopped)
    same_weights(alone, stopped, "step000004")


def test_a_signal_lets_the_step_finish_and_writes_a_checkpoint(lab):
    launched = launched_for_long(lab, parallel="fsdp")
    launched.process.send_signal(signal.SIGTERM)
    code, told, record = launched.end()
    assert code == 130
    assert told.count("interrupted") == 1
    steps = record["steps"]
    assert record["outcome"] == "interrupted"
    assert len(lines(launched.run / "metrics.jsonl")) == steps
    assert verify(launched.run / "checkpoints" / f"step{steps:06d}") is None


GUARD = """
import os
from rlvr_core.api import NoConfig, hookimpl
from rlvr_core.api.errors import MachineError


@hookimpl
def register_guards(registrar):
    registrar.add("second", "rlvr_fussy:Second", summary="Fails in process 1 alone.")


class Second:
    def __init__(self, config: NoConfig) -> None:
        pass

    def on_groups(self, event):
        if event.step == 1 and os.environ.get("RANK") == "1":
            raise MachineError("the disk of process 1 is on fire", where="here")

    def on_step(self, event):
        pass
"""


def test_a_fault_of_one_process_ends_all_and_keeps_its_exit_code(lab, tmp_path_factory):
    site = install_plugin(tmp_path_factory.mktemp("fussy"), "fussy", {"rlvr_fussy.py": GUARD})
    lab.site = f"{lab.site}{os.pathsep}{site}"
    lab.write(guards=["fussy/second"])
    done = lab.rlvr("launch", "config.yaml", "--processes", "2", "--display", "none", check=4)
    assert "the disk of process 1 is on fire" in done.stderr
    record = json.loads((lab.runs()[-1] / "run.json").read_text())
    assert record["outcome"] == "failed"
    assert "process 1 is on fire" in record["error"]


def test_a_fault_that_all_processes_meet_is_told_once(lab):
    lab.write(rewards=[{"use": "toy/flaky"}])
    done = lab.rlvr("launch", "config.yaml", "--processes", "2", "--display", "none", check=1)
    assert done.stderr.count("error: verifier 'toy/flaky' failed") == 1


def test_what_several_processes_cannot_do_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    compiled = TrainSection(steps=3, warmup_steps=0, parallel="fsdp", compile=True)
    with pytest.raises(ConfigError, match=r"is not compiled under .*: fsdp"):
        check_compiled(compiled)
    check_compiled(compiled.model_copy(update={"compile": False}))
