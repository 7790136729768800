"""``rlvr launch``: two processes do the run of one, and end together."""

import contextlib
import json
import os
import shutil
import signal
import time

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM

from rlvr_core.api import ConfigError
from rlvr_core.config.model import TrainSection
from rlvr_core.record.checkpoints import verify
from rlvr_core.run.inputs import check_compiled
from rlvr_core.testing.lab import install_plugin
from tests.support.installed import needs
from tests.support.run_records import completions, launch, lines, same_metrics, same_weights, saved

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
def split_shards(shared, fsdp):
    changes = ["train.context_parallel=2", "train.parallel=fsdp"]
    return launch(shared, "config.yaml", *(word for one in changes for word in ("--set", one)))


@pytest.mark.parametrize(
    "strategy",
    [
        *("ddp", "fsdp"),
        *(pytest.param(name, marks=needs("rlvr_cluster")) for name in ("split", "split_shards")),
    ],
)
@pytest.mark.essential
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


class Launched:
    """A long run of two processes that has taken some steps."""

    def __init__(self, lab, every=0, **train):
        lab.write(train=TRAIN | {"steps": 5000} | train, checkpoint={"every": every})
        self.lab = lab
        self.process = lab.started("launch", "config.yaml", "--processes", "2", "--display", "none")
        until = time.monotonic() + 200
        while not any(self._steps(run) > 2 for run in lab.runs()):
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < until
            time.sleep(0.05)
        (self.run,) = lab.runs()
        self.ranks = {
            int(child.environ()["RANK"]): child
            for child in psutil.Process(self.process.pid).children()
        }

    @staticmethod
    def _steps(run):
        path = run / "metrics.jsonl"
        return len(path.read_bytes().splitlines()) if path.exists() else 0

    def end(self):
        """Exit code and standard error, once no process is left."""
        everyone = [*self.ranks.values()]
        for rank in self.ranks.values():
            if rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE:
                with contextlib.suppress(psutil.NoSuchProcess):  # one that was killed
                    everyone += rank.children(recursive=True)
        _, told = self.process.communicate(timeout=120)
        _, alive = psutil.wait_procs(everyone, timeout=30)
        assert not alive
        return self.process.returncode, told

    def outcome(self):
        return json.loads((self.run / "run.json").read_text())


@pytest.mark.parametrize(("strategy", "rank"), [("ddp", 0), ("ddp", 1), ("fsdp", 1)])
def test_when_a_process_is_killed_all_end_with_a_word(lab, strategy, rank):
    launched = Launched(lab, parallel=strategy)
    launched.ranks[rank].send_signal(signal.SIGKILL)
    code, told = launched.end()
    assert code == 1
    assert f"process {rank} was ended by SIGKILL" in told
    assert "Traceback" not in told
    if rank == 1:
        assert launched.outcome()["outcome"] == "failed"
        assert "gone without a word" in launched.outcome()["error"]


def test_when_the_launcher_is_killed_its_processes_end(lab):
    launched = Launched(lab)
    launched.process.kill()
    code, _ = launched.end()
    assert code == -signal.SIGKILL


def test_a_run_goes_on_after_a_process_was_killed_and_its_ledger_balances(lab):
    """Killed between two checkpoints; resumed by one process, which takes those steps again."""
    launched = Launched(lab, every=3)
    while not any((launched.run / "checkpoints").glob("step*/COMPLETE")):
        time.sleep(0.05)
    launched.ranks[1].send_signal(signal.SIGKILL)
    code, _ = launched.end()
    assert code == 1
    checkpoints = sorted((launched.run / "checkpoints").glob("step*"))
    newest = max(int(one.name[4:]) for one in checkpoints if (one / "COMPLETE").is_file())
    more = ["--set", f"train.steps={newest + 2}", "--display", "none"]
    lab.rlvr("run", "--resume", launched.run.name, *more)
    shown = json.loads(lab.rlvr("show", launched.run.name, "--json").stdout)
    assert shown["ledger"]["balanced"] is True
    steps = [line["step"] for line in lines(launched.run / "metrics.jsonl")]
    assert steps == list(range(newest + 2))
    per_step = THREE["prompts_per_step"]
    drawn = [line["draw_index"] for line in lines(launched.run / "traces" / "rollouts.jsonl")]
    assert len(drawn) == len(set(drawn)) >= per_step * (newest + 2)


@needs("rlvr_cluster")
def test_a_run_that_splits_rows_goes_on_bit_for_bit_after_a_kill(lab):
    """Killed between two checkpoints, it ends with the weights of a run that nothing stopped."""
    launched = Launched(lab, every=3, context_parallel=2)
    while not any((launched.run / "checkpoints").glob("step*/COMPLETE")):
        time.sleep(0.05)
    launched.ranks[1].send_signal(signal.SIGKILL)
    code, _ = launched.end()
    assert code == 1
    checkpoints = sorted((launched.run / "checkpoints").glob("step*"))
    newest = max(int(one.name[4:]) for one in checkpoints if (one / "COMPLETE").is_file())
    steps = f"train.steps={newest + 2}"
    more = ["--set", steps, "--processes", "2", "--display", "none"]
    lab.rlvr("launch", "--resume", launched.run.name, *more)
    whole = launch(lab, "config.yaml", "--set", steps)
    last = f"step{newest + 2:06d}"
    ours, theirs = (saved(run / "checkpoints" / last) for run in (launched.run, whole))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert completions(launched.run)[-6:] == completions(whole)[-6:]


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


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_signal_lets_the_step_finish_and_writes_a_checkpoint(lab, strategy):
    launched = Launched(lab, parallel=strategy)
    launched.process.send_signal(signal.SIGTERM)
    code, told = launched.end()
    assert code == 130
    assert told.count("interrupted") == 1
    steps = launched.outcome()["steps"]
    assert launched.outcome()["outcome"] == "interrupted"
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
