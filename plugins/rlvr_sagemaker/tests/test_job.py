"""The container's entry point, run for real: two hosts as two processes on the loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from click.testing import CliRunner
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from rlvr_core.api import MachineError
from rlvr_core.cli.main import cli
from rlvr_core.record.checkpoints import verify
from rlvr_core.testing.random_model import save_random_model
from rlvr_sagemaker.job import Machine
from rlvr_sagemaker.place import Place
from rlvr_sagemaker.store import S3Store

PLUGIN = """
from rlvr_core.api import NoConfig, Verdict, hookimpl


@hookimpl
def register_verifiers(registrar):
    registrar.add("early", "job_toy:Early", summary="Share of letters before n.")


class Early:
    def __init__(self, config: NoConfig) -> None:
        pass

    def verify(self, problem, completion):
        text = completion.text
        score = sum(c < "n" for c in text) / max(1, len(text))
        return Verdict(score, passed=score > 0.7)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    (folder / "toy").mkdir(parents=True)
    (folder / "toy" / "job_toy.py").write_text(PLUGIN)
    (folder / "toy" / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools>=77"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "job-toy"\nversion = "1.0"\n'
        '[project.entry-points.rlvr]\njobtoy = "job_toy"\n'
        '[tool.setuptools]\npy-modules = ["job_toy"]\n'
    )
    rows = [{"id": f"p{i}", "question": f"Say {i}.", "answer": "x"} for i in range(40)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"path": "rows.jsonl", "prompt": "question", "id": "id", "verifier": "jobtoy/early"}
    config = {
        "run": {"name": "two-hosts", "seed": 1},
        "model": {"path": "set below"},
        "data": {"sources": [{"use": "core/jsonl", "with": options}]},
        "sampler": "shuffle",
        "sampling": {"n": 4, "max_tokens": 12},
        "engine": "transformers",
        "loss": {"use": "dapo"},
        "train": {"steps": 40, "prompts_per_step": 4, "lr": 1e-3, "warmup_steps": 1},
        "checkpoint": {"every": 10, "keep": 2},
        "guards": [{"use": "guards/preflight", "off": True}],
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.chdir(folder)
    # the user's machine has the package too: the config is checked before it leaves
    site = tmp_path / "site"
    site.mkdir()
    (site / "job_toy.py").write_text(PLUGIN)
    info = site / "job_toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: job-toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rlvr]\njobtoy = job_toy\n")
    monkeypatch.syspath_prepend(str(site))
    return folder


class Cluster:
    """What SageMaker does: folders, files, containers, signals."""

    def __init__(self, folder: Path, cloud, job: str, hosts: int) -> None:
        self.folder, self.cloud, self.job = folder, cloud, job
        self.hosts = [f"127.0.0.{number + 1}" for number in range(hosts)]
        self.attempts = 0
        self.machines: list[subprocess.Popen[str]] = []
        self.roots: list[Path] = []

    @property
    def place(self) -> Place:
        return Place(self.cloud.bucket, f"team/jobs/{self.job}")

    def start(self, **env: str) -> None:
        """Fresh machines, as after a spot reclaim."""
        self.attempts += 1
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.machines, self.roots = [], []
        for host in self.hosts:
            root = self.folder / f"{self.job}-{self.attempts}-{host}"
            (submission,) = {key.split("/")[0] for key in S3Store(self.place / "code").list()}
            code = S3Store(self.place / "code" / submission)
            for key in code.list():
                code.get(key, root / "input" / "data" / "code" / key)
            said = {"current_host": host, "hosts": self.hosts[::-1], "network_interface_name": "lo"}
            (root / "input" / "config").mkdir()
            (root / "input" / "config" / "resourceconfig.json").write_text(json.dumps(said))
            environment = {
                **os.environ,
                "RLVR_SAGEMAKER_ROOT": str(root),
                "RLVR_SCRATCH": str(root / "scratch"),
                "RLVR_MAIN_PORT": str(port),
                "OMP_NUM_THREADS": "1",
                "HF_HUB_OFFLINE": "1",
                **env,
            }
            environment.pop("XDG_CACHE_HOME")
            with (root / "output.txt").open("w") as output:
                self.machines.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "rlvr_sagemaker.job", "train"],
                        cwd="/",
                        env=environment,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        text=True,
                    )
                )
            self.roots.append(root)

    def printed(self) -> str:
        return "\n".join((root / "output.txt").read_text() for root in self.roots)

    def steps(self) -> int:
        found = list(self.roots[0].glob("checkpoints/*/metrics.jsonl"))
        return found[0].read_text().count("\n") if found else 0

    def until_step(self, step: int) -> None:
        end = time.monotonic() + 300
        while self.steps() < step:
            assert all(one.poll() is None for one in self.machines), self.printed()
            assert time.monotonic() < end, self.printed()
            time.sleep(0.01)

    def stop(self) -> None:
        for machine in self.machines:
            machine.send_signal(signal.SIGTERM)

    def wait(self) -> list[int]:
        return [machine.wait(timeout=400) for machine in self.machines]

    def close(self) -> None:
        for machine in self.machines:
            if machine.poll() is None:
                machine.kill()

    def run_there(self) -> dict[str, bytes]:
        """Every file of the run on S3."""
        store = S3Store(self.place / "runs")
        folder = self.folder / f"there-{self.job}"
        for key in store.list():
            store.get(key, folder / key)
        (run,) = folder.iterdir()
        return run


@pytest.fixture
def submit(cloud, project, tmp_path):
    """Submits a job as a user does; the cluster that is to run it."""
    save_random_model(tmp_path / "model")
    CliRunner().invoke(
        cli, ["sagemaker", "put", str(tmp_path / "model"), f"s3://{cloud.bucket}/models/tiny"]
    )
    clusters = []

    def make(name: str, *more: str, hosts: int = 2) -> Cluster:
        job = f"{name}-{cloud.bucket}"
        words = ["launch", "config.yaml", "--backend", "sagemaker", "--job-name", job]
        words += ["--store", f"s3://{cloud.bucket}/team", "--image", "i", "--instance-type", "ml.t"]
        words += ["--role", "arn:aws:iam::123456789012:role/r", "--include", "toy"]
        words += ["--instance-count", str(hosts)]
        if "--eval" not in more:
            words += ["--set", f"model.path=s3://{cloud.bucket}/models/tiny"]
        words += more
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, f"{done.output} {done.exception}"
        clusters.append(Cluster(tmp_path, cloud, job, hosts))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.close()


@pytest.mark.slow
def test_t87_t94_two_hosts_stopped_in_mid_step_end_as_if_nothing_had_happened(cloud, submit):
    """Trained on two hosts, stopped by SIGTERM, started on fresh machines: the same weights."""
    whole = submit("whole")
    whole.start()
    assert whole.wait() == [0, 0], whole.printed()
    undisturbed = whole.run_there()

    broken = submit("broken")
    cloud.rate = 0.1
    broken.start()
    broken.until_step(13)
    begun = time.monotonic()
    broken.stop()
    assert broken.wait() == [0, 0], broken.printed()
    assert time.monotonic() - begun < 110, "SageMaker gives 120 seconds"
    stopped_at = broken.steps()
    assert 13 <= stopped_at < 40

    first = [root.name for root in broken.roots]
    broken.start()
    assert [root.name for root in broken.roots] != first
    assert broken.wait() == [0, 0], broken.printed()
    cloud.calm()
    assert sum(cloud.done[kind] for kind in cloud.kinds) > 5
    assert "going on with two-hosts-" in broken.printed()
    resumed = broken.run_there()

    record = json.loads((resumed / "run.json").read_text())
    assert (record["outcome"], record["processes"]) == ("finished", 2)
    assert [again["step"] for again in record["resumed"]] == [stopped_at]
    for name in ("model.safetensors", "trainer/optimizer.safetensors"):
        ours = load_file(undisturbed / "checkpoints/step000040" / name)
        theirs = load_file(resumed / "checkpoints/step000040" / name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours), name
    for name in ("metrics.jsonl", "traces/rollouts.jsonl"):
        assert (undisturbed / name).read_bytes() == (resumed / name).read_bytes()
    for run in (undisturbed, resumed):
        kept = sorted((run / "checkpoints").glob("step*"))
        assert [path.name for path in kept] == ["step000030", "step000040"]
        assert [verify(path) for path in kept] == [None, None]
    handed = broken.roots[0] / "model"
    AutoModelForCausalLM.from_pretrained(handed)
    assert not (handed / "trainer").exists()
    assert not (broken.roots[1] / "model").exists()


@pytest.mark.slow
def test_t80_a_run_is_evaluated_beside_by_its_own_config_and_comes_home(
    cloud, submit, project, tmp_path
):
    """One host: checkpoints are evaluated as they appear; results are fetched and shown.

    The eval config extends one of another folder, and names rows outside of both; neither is where
    it was when the job runs (T89).
    """
    far = tmp_path / "held out" / "rows.jsonl"
    far.parent.mkdir()
    (project / "rows.jsonl").rename(far)
    (project / "rows.jsonl").write_text(far.read_text().replace("p", "train-p"))
    rows = {"path": str(far), "prompt": "question", "id": "id", "verifier": "jobtoy/early"}
    data = {"use": "core/jsonl", "with": rows}
    asked = {
        "tasks": [{"use": "core/dataset", "with": {"data": data, "max_tokens": 8}}],
        "engine": "transformers",
        "max_contaminated": 1,
        "max_truncated": 1,
    }
    (tmp_path / "bases").mkdir()
    (tmp_path / "bases" / "evals.yaml").write_text(yaml.safe_dump(asked))
    (project / "eval.yaml").write_text("extends: ../bases/evals.yaml\nlimit: 4\n")
    cluster = submit(
        "evals", "--eval-config", "eval.yaml", "--set", "train.steps=4", "--set",
        "checkpoint.every=2", hosts=1,
    )  # fmt: skip
    for gone in (far, tmp_path / "bases" / "evals.yaml", project / "eval.yaml"):
        gone.unlink()
    cluster.start()
    assert cluster.wait() == [0], cluster.printed()
    done = CliRunner().invoke(cli, ["jobs", "fetch", cluster.job])
    assert done.exit_code == 0, f"{done.output} {done.exception}"
    run = Path(done.stdout.strip())
    assert run.parent == Path("runs")
    shown = CliRunner().invoke(cli, ["show", run.name, "--json"])
    assert json.loads(shown.stdout)["ledger"]["balanced"] is True
    AutoModelForCausalLM.from_pretrained(run / "checkpoints" / "latest")
    table = (run / "evals" / "watch" / "table.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[2:9]] for line in table.splitlines()[2:]]
    found = [(step, n) for step, _, metric, _, _, _, n in rows if metric == "accuracy"]
    assert found == [("2", "4"), ("4", "4")], table


@pytest.mark.slow
def test_an_evaluation_is_a_job_too(cloud, submit, project):
    rows = {"path": "rows.jsonl", "prompt": "question", "id": "id", "verifier": "jobtoy/early"}
    data = {"use": "core/jsonl", "with": rows}
    asked = {
        "tasks": [{"use": "core/dataset", "with": {"data": data, "max_tokens": 8}}],
        "engine": "transformers",
        "limit": 4,
        "max_contaminated": 1,
        "max_truncated": 1,
    }
    (project / "config.yaml").write_text(yaml.safe_dump(asked))
    model = f"s3://{cloud.bucket}/models/tiny"
    cluster = submit("only", "--eval", model, hosts=1)
    cluster.start()
    assert cluster.wait() == [0], cluster.printed()
    done = CliRunner().invoke(cli, ["jobs", "fetch", cluster.job, "--to", "home"])
    folder = Path(done.stdout.strip())
    assert folder == Path("home") / f"eval-{cloud.bucket}-models-tiny"
    assert list(folder.rglob("summary.json"))


@pytest.mark.slow
def test_a_job_that_fails_says_why(cloud, submit):
    cluster = submit("fails", "--set", "data.max_prompt_tokens=1", hosts=1)
    cluster.start()
    assert cluster.wait() == [2]
    failure = (cluster.roots[0] / "output" / "failure").read_text()
    assert failure.startswith("exit code 2\n")
    assert "max_prompt_tokens" in failure


def test_machines_are_counted_alike_by_all(tmp_path):
    hosts = ["algo-2", "algo-10", "algo-1"]
    found = []
    for host in hosts:
        folder = tmp_path / host / "input" / "config"
        folder.mkdir(parents=True)
        said = {"current_host": host, "hosts": hosts, "network_interface_name": "eth0"}
        (folder / "resourceconfig.json").write_text(json.dumps(said))
        found.append(Machine.read(tmp_path / host, {}))
    assert {one.hosts for one in found} == {("algo-1", "algo-10", "algo-2")}
    assert sorted(one.index for one in found) == [0, 1, 2]
    toolkit = {"SM_HOSTS": '["algo-1"]', "SM_CURRENT_HOST": "algo-1"}
    assert Machine.read(tmp_path, toolkit) == Machine(("algo-1",), 0, "")
    with pytest.raises(MachineError, match="does not look like a SageMaker job"):
        Machine.read(tmp_path, {})
