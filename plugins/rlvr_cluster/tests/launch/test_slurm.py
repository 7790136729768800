"""The batch script, what a fake scheduler is asked, and what its answers mean."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from pydantic import ValidationError

from rlvr_cluster.jobs.job_book import JobBook
from rlvr_cluster.jobs.protocol import JobLauncher
from rlvr_cluster.jobs.slurm import SlurmLauncher
from rlvr_core.api import ConfigError, LaunchRequest, MachineError
from rlvr_core.launch.processes import Nodes, ProcessConfig, process_plan

REQUEST = LaunchRequest(("run", "my config.yaml", "--set", "a.b=it's"), "demo")

FAKE = """#!{python}
import json, os, sys
name = os.path.basename(sys.argv[0])
with open({log!r}, "a") as file:
    text = sys.stdin.read() if name == "sbatch" else ""
    file.write(json.dumps([name, sys.argv[1:], text]) + "\\n")
answers = json.load(open({answers!r}))
print(answers.get(name, ""))
sys.exit(answers.get(name + ":code", 0))
"""


class Scheduler:
    """Commands of Slurm that write down what they are asked, and say what they are told to."""

    def __init__(self, folder):
        self.log, self.answers = folder / "asked.jsonl", folder / "answers.json"
        self.says(sbatch="4711")
        text = FAKE.format(python=sys.executable, log=str(self.log), answers=str(self.answers))
        (folder / "bin").mkdir()
        for name in ("sbatch", "squeue", "sacct", "scancel", "sinfo", "scontrol"):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)

    def says(self, **answers):
        self.answers.write_text(json.dumps(answers))

    def asked(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def scheduler(tmp_path, monkeypatch):
    one = Scheduler(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.chdir(tmp_path)
    return one


def slurm(**options):
    return SlurmLauncher(SlurmLauncher.Config(**options))


def script(request=REQUEST, **options):
    return slurm(**options).plan(request).details["script"]


def test_a_plan_is_a_script_that_bash_understands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    launcher = slurm(gpus=2, nodes=2, time="04:00:00", extra=["--constraint=a100"])
    assert isinstance(launcher, JobLauncher)
    plan = launcher.plan(REQUEST)
    assert launcher.plan(REQUEST) == plan
    text = plan.details["script"]
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    directives = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert directives == [
        "#SBATCH --job-name=demo",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --gpus-per-node=2",
        "#SBATCH --time=04:00:00",
        "#SBATCH --signal=TERM@120",
        "#SBATCH --requeue",
        "#SBATCH --open-mode=append",
        "#SBATCH --output=slurm-%j.log",
        "#SBATCH --constraint=a100",
    ]
    assert f"cd {tmp_path}\n" in text
    assert set(text.splitlines()) < set(plan.lines)


def test_options_of_srun_and_lines_before_it_stand_in_the_script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = script(
        processes=1,
        cpus=4,
        srun=["--container-image=/images/a b.sqsh", "--mpi=pmix"],
        setup=["echo '[]' > setup.json", "export FROM_SETUP=yes"],
    )
    begin = "srun --kill-on-bad-exit=1 --cpus-per-task=4 '--container-image=/images/a b.sqsh'"
    assert f"{begin} --mpi=pmix bash -c" in text
    plain = script(processes=1, setup=["echo '[]' > setup.json"])
    assert run_script(tmp_path, plain)  # once for each machine of the stand-in
    assert (tmp_path / "setup.json").read_text() == "[]\n"
    with pytest.raises(ValidationError):
        slurm(processes=1, srun=["no option"])


def run_script(tmp_path, text, shown=None, check=True):
    """Run it with a srun that shows each machine's command."""
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "scontrol").write_text("#!/bin/sh\necho head\nsleep 0.2\necho second\n")
    (tools / "srun").write_text(
        '#!/bin/bash\nshift\nfor SLURM_NODEID in 0 1; do export SLURM_NODEID; "$@"; done\n'
    )
    python = tools / "python"
    python.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    done = subprocess.run(
        ["bash"],
        input=text.replace(sys.executable, str(python)),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PATH": f"{tools}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "x"}
        | ({} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}),
    )
    if not check:
        return done
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def cards(words, shown, monkeypatch):
    """What the launcher that these words start gives its processes, where slurm shows so much."""
    options = {
        key: words[words.index(f"--{key}") + 1].split(",")
        for key in ("gpus", "engine-gpus")
        if f"--{key}" in words
    }
    config = ProcessConfig(**{key.replace("-", "_"): value for key, value in options.items()})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    plan = process_plan("core/local", config, replace(REQUEST, engine_apart=True), Nodes())
    return plan.details["environment"]


def test_every_machine_starts_its_part_of_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = run_script(tmp_path, script(gpus=2, nodes=2), shown="2,5")
    assert first[:3] == ["-m", "rlvr_core.cli.main", "launch"]
    assert first[3:6] == ["my config.yaml", "--set", "a.b=it's"]
    # those that slurm shows the job, whichever these are on each machine
    assert cards(first, "2,5", monkeypatch) == {"CUDA_VISIBLE_DEVICES": "2,5"}
    assert cards(second, "1,0", monkeypatch) == {"CUDA_VISIBLE_DEVICES": "1,0"}
    assert first[first.index("--main-address") + 1] == "head"
    assert first[first.index("--node-rank") + 1] == "0"
    assert second[second.index("--node-rank") + 1] == "1"
    assert first[first.index("run.dir=runs/slurm-7") - 1] == "--set"
    assert "--resume" not in first


def test_gpus_are_those_that_slurm_shows_and_never_others(tmp_path, monkeypatch):
    """T31: where a machine is shared, 0 and 1 may be somebody else's."""
    monkeypatch.chdir(tmp_path)
    apart = replace(REQUEST, engine_apart=True)
    text = script(apart, gpus=2, engine_gpus=1)
    assert "#SBATCH --gpus-per-node=3" in text
    assert "export CUDA_VISIBLE_DEVICES" not in text
    words = run_script(tmp_path, text, shown="7,3,4")[0]
    assert cards(words, "7,3,4", monkeypatch) == {
        "CUDA_VISIBLE_DEVICES": "7,3",
        "RLVR_ENGINE_GPUS": "4",
    }
    assert words[words.index("--processes") + 1] == "2"
    for shown in (None, "7,3"):
        done = run_script(tmp_path, text, shown=shown, check=False)
        assert done.returncode == 4
        assert "3 GPUs were asked for on each machine, and slurm shows" in done.stderr
        assert done.stdout == ""
    with pytest.raises(ConfigError, match="engine works inside"):
        script(gpus=2, engine_gpus=1)
    with pytest.raises(ConfigError, match="3 processes on 2 GPUs"):
        script(gpus=2, processes=3)


def test_which_gpus_is_not_for_us_to_say(tmp_path, monkeypatch):
    with pytest.raises(ValidationError, match="give their number, as in 2"):
        slurm(gpus=["0", "1"])
    with pytest.raises(ValidationError, match="greater than 0"):
        slurm(gpus=["0"])
    one = slurm(gpus=["8"])
    assert one._config.gpus == 8
    again = SlurmLauncher.Config(**one._config.model_dump(mode="json"))  # from the book of jobs
    assert again.gpus == 8


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing_in_the_script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = script(replace(REQUEST, engine_apart=True), gpus=2, engine_gpus=1, nodes=2)
    inner = shlex.split(text.split("srun --kill-on-bad-exit=1 bash -c ")[1])[0]
    for one in (text, "#!/bin/bash\n" + inner):
        done = subprocess.run(
            ["shellcheck", "--exclude=SC2016,SC2086", "-"],
            input=one,
            capture_output=True,
            text=True,
        )  # $RLVR_RESUME is two words or none; what is in '' is expanded on each machine
        assert done.returncode == 0, done.stdout


def test_a_job_put_back_into_the_queue_goes_on_with_its_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = script(processes=1)
    begun = tmp_path / "runs" / "slurm-7" / "demo-20250101-000000"
    begun.mkdir(parents=True)
    (begun / "run.json").write_text("{}")
    first = run_script(tmp_path, text)[0]
    assert first[first.index("--resume") + 1] == "last"
    # one that was submitted with --resume has its run already
    resumed = LaunchRequest(("run", "--resume", "/runs/x"), "demo")
    assert run_script(tmp_path, script(resumed, processes=1))[0].count("--resume") == 1


def test_submitted_and_written_down(scheduler, capsys, tmp_path):
    launcher = slurm(processes=2, partition="long")
    assert launcher.submit(launcher.plan(REQUEST)) == 0
    assert capsys.readouterr().out == "4711\n"
    ((name, words, text),) = scheduler.asked()
    assert (name, words) == ("sbatch", ["--parsable"])
    assert "#SBATCH --partition=long" in text
    job = JobBook().find("last")
    assert (job.job, job.launcher, job.name) == ("4711", "cluster/slurm", "demo")
    assert job.options["processes"] == 2
    assert job.runs == str(tmp_path / "runs" / "slurm-4711")


@pytest.mark.parametrize(
    ("queue", "accounting", "state"),
    [
        ("PENDING", "", "waiting"),
        ("RUNNING", "", "running"),
        ("", "COMPLETED", "finished"),
        ("", "CANCELLED by 1000", "stopped"),
        ("", "OUT_OF_MEMORY", "failed"),
        ("", "", "unknown"),
        ("", "SOMETHING_NEW", "unknown"),
    ],
)
def test_states(scheduler, queue, accounting, state):
    scheduler.says(squeue=queue, sacct=accounting)
    assert slurm(processes=1).status("4711").state == state


def test_stop_asks_the_run_and_logs_are_read(scheduler, tmp_path):
    launcher = slurm(processes=1)
    launcher.submit(launcher.plan(REQUEST))
    scheduler.says(squeue="RUNNING")
    launcher.stop("4711")
    assert scheduler.asked()[-1][:2] == ["scancel", ["--signal=TERM", "4711"]]
    scheduler.says(squeue="PENDING")
    launcher.stop("4711")
    assert scheduler.asked()[-1][:2] == ["scancel", ["4711"]]
    with pytest.raises(MachineError, match="no log yet"):
        list(launcher.logs("4711"))
    (tmp_path / "slurm-4711.log").write_bytes(b"one\nt\xffwo\n")
    assert list(launcher.logs("4711")) == ["one", "t\ufffdwo"]


def test_what_the_scheduler_refuses_is_told(scheduler, monkeypatch, tmp_path):
    launcher = slurm(processes=1)
    scheduler.says(**{"sbatch:code": 1})
    with pytest.raises(MachineError, match=r"sbatch failed \(1\)"):
        launcher.submit(launcher.plan(REQUEST))
    scheduler.says(sbatch="no job")
    with pytest.raises(MachineError, match="no job's number"):
        launcher.submit(launcher.plan(REQUEST))
    assert JobBook().jobs() == []
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(MachineError, match="cannot be run"):
        launcher.status("1")


def test_options_cannot_add_lines(scheduler):
    with pytest.raises(ConfigError, match="one line"):
        slurm(processes=1, partition="a\n#SBATCH --exclusive").plan(REQUEST)
