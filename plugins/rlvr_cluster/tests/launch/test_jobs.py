"""``rlvr jobs`` against a launcher and a store of this test's own."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from rlvr_cluster.jobs import command as jobs_module
from rlvr_cluster.jobs.command import jobs
from rlvr_cluster.jobs.job_book import Job, JobBook
from rlvr_cluster.jobs.protocol import JobStatus
from rlvr_cluster.stores.again import fetch_newest
from rlvr_core.api import ConfigError, MachineError, StoredFile


class Store:
    """Files of a folder, read only."""

    def __init__(self, root):
        self.root = root

    def list(self, prefix=""):
        files = [path for path in self.root.rglob("*") if path.is_file()]
        keys = {path.relative_to(self.root).as_posix(): path.stat() for path in files}
        return {key: StoredFile(s.st_size, str(s.st_mtime_ns)) for key, s in keys.items()}

    def get(self, key, path, told=None):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.root / key, path)
        if told is not None:
            told(path.stat().st_size)

    def folders(self):
        return sorted({key.partition("/")[0] for key in self.list() if "/" in key})

    def put(self, path, key, size=None, expect=None):
        raise AssertionError("nothing is written here")

    def delete(self, keys):
        raise AssertionError("nothing is deleted here")


class Launcher:
    """Knows jobs by what is in this dictionary."""

    states: dict = {}

    def status(self, job):
        if job not in self.states:
            raise MachineError(f"no job {job}")
        return JobStatus(self.states[job], "said so")

    def logs(self, job):
        yield "one \x1b[2J"

    def stop(self, job):
        self.states[job] = "stopped"


@pytest.fixture
def there(tmp_path, monkeypatch):
    """Where runs are mirrored to."""
    root = tmp_path / "there"

    class Host:
        @staticmethod
        def ask_store(uri):
            return Store(root / uri.removeprefix("toy://runs").strip("/"))

    monkeypatch.setattr("rlvr_cluster.jobs.command.load_host", Host)
    monkeypatch.setattr("rlvr_cluster.stores.again.load_host", Host)
    monkeypatch.setattr(jobs_module, "_launcher", lambda job: Launcher())
    monkeypatch.setattr(Launcher, "states", {})
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.chdir(tmp_path)
    return root


def begin(there, name="demo-20250101-000000"):
    run = there / name
    run.mkdir(parents=True)
    (run / "run.json").write_text('{"outcome": "running"}')
    (run / "resolved.yaml").write_text("x: 1\n")
    (run / "metrics.jsonl").write_text('{"step": 0}\n')
    return run


def call(*words, fails=None):
    done = CliRunner().invoke(jobs, [str(word) for word in words])
    if fails is None:
        assert done.exception is None or done.exit_code == 0, done.exception
        return done.stdout
    assert isinstance(done.exception, fails), done.output
    return str(done.exception)


def test_t90_what_was_submitted_is_listed_newest_first(there):
    assert "no job was submitted" in call("list")
    book = JobBook()
    for number in range(3):
        book.add(Job(f"job-{number}", "x/y", f"run-{number}", "c.yaml", submitted=float(number)))
    Launcher.states = {"job-2": "running", "job-1": "finished"}
    assert [load["job"] for load in json.loads(call("list", "--json"))] == [
        "job-2",
        "job-1",
        "job-0",
    ]
    table = call("list", "--states").splitlines()
    assert [line.split()[2] for line in table[1:]] == ["running", "finished", "unknown"]
    assert len(call("list", "--limit", 1).splitlines()) == 2
    assert json.loads(call("list", "--json"))[1]["config"] == "c.yaml"
    assert call("status", "job-2") == "job-2: running (said so)\n"
    assert call("logs", "job-2") == "one \\x1b[2J\n"
    call("stop", "job-2")
    assert json.loads(call("status", "job-2", "--json"))["state"] == "stopped"


def test_fetch_and_what_is_wrong_with_it(there):
    book = JobBook()
    book.add(Job("job", "x/y", "demo", "c.yaml", runs="toy://runs"))
    book.add(Job("4711", "cluster/slurm", "other", "c.yaml", runs="/shared/runs/slurm-4711"))
    assert "written nothing" in call("fetch", "job", fails=ConfigError)
    begin(there)
    assert call("fetch", "job", "--to", "home").strip() == "home/demo-20250101-000000"
    assert "share their files" in call("fetch", "4711", fails=ConfigError)
    assert "there is no job 'nob'" in call("fetch", "nob", fails=ConfigError)


def test_t94_a_machine_goes_on_with_the_newest_run_that_has_begun(there, tmp_path):
    said = []
    assert fetch_newest("toy://runs", tmp_path / "here", said.append) is None
    (there / "demo-20250102-000000").mkdir(parents=True)
    (there / "demo-20250102-000000" / "config.yaml").write_text("x: 1\n")
    assert fetch_newest("toy://runs", tmp_path / "here", said.append) is None
    begin(there, "demo-20241231-000000")
    begin(there, "demo-20250101-000000")
    folder = fetch_newest("toy://runs", tmp_path / "here", said.append)
    assert folder == tmp_path / "here" / "demo-20250101-000000"
    assert (folder / "run.json").is_file()
    assert "going on with demo-20250101-000000: 3 files" in said[0]


def test_a_machine_goes_on_with_what_a_later_attempt_made_and_keeps_its_own(there, tmp_path):
    name = "demo-20250101-000000-abcdef"
    begin(there, name)
    folder = fetch_newest("toy://runs", tmp_path / "here", print)
    for place, line in ((there / name, "later"), (folder, "earlier")):
        with (place / "metrics.jsonl").open("a") as file:
            file.write(f'{{"by": "{line}"}}\n')
    begin(there, f"{name}-apart-01ab9f")  # what the earlier one has copied beside the place
    said = []
    assert fetch_newest("toy://runs", tmp_path / "here", said.append) == folder
    assert "later" in (folder / "metrics.jsonl").read_text()
    (aside,) = (tmp_path / "here").glob(f"{name}-apart-*")
    assert "earlier" in (aside / "metrics.jsonl").read_text()
    assert str(aside) in said[0]


FULL = """
import resource, sys
from pathlib import Path
from rlvr_core.api.errors import MachineError
from rlvr_cluster.jobs.job_book import Job, JobBook
book = JobBook(Path(sys.argv[1]))
room = book.path.stat().st_size + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
try:
    book.add(Job("two", "l", "r", "c", submitted=2.0, runs="s3://b/runs"))
except MachineError as error:
    print(error)
"""


def test_a_full_disk_takes_nothing_and_tells_what_to_write(tmp_path):
    """The system itself refuses bytes beyond a limit, after it has taken some of the line."""
    book = JobBook(tmp_path / "jobs.jsonl")
    book.add(Job("one", "l", "r", "c", submitted=1.0))
    before = book.path.read_bytes()
    command = [sys.executable, "-c", FULL, str(book.path), "40"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "job two was submitted, and cannot be written down: File too large" in told
    assert book.path.read_bytes() == before
    line = told.strip().splitlines()[-1].strip()
    with book.path.open("a") as file:
        file.write(line + "\n")
    assert [(job.job, job.runs) for job in book.jobs()] == [("two", "s3://b/runs"), ("one", "")]


def test_a_book_that_cannot_be_written_is_told_before_anything_is_submitted(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(MachineError, match="nothing was submitted") as caught:
        JobBook(tmp_path / "file" / "jobs.jsonl").ready()
    assert "XDG_DATA_HOME" in str(caught.value)
    book = JobBook(tmp_path / "new" / "jobs.jsonl")
    book.ready()
    assert book.jobs() == []
    real = os.statvfs(tmp_path)
    full = os.statvfs_result([0 if n in (3, 4) else real[n] for n in range(10)])
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(MachineError, match="disk with the book of jobs is full; nothing was"):
        book.ready()


def test_what_is_no_job_is_told_and_hides_no_other(there):
    book = JobBook()
    book.add(Job("one", "l", "run\u2028of two\x85lines", "c", submitted=1.0))
    strange = [
        b"\xff\xfe",
        b"[]",
        b'{"job": 5}',
        b'{"job": "x"}',
        b"",
        b'{"job": "torn',
        b"[" * 9999,
    ]
    wrong = {"job": "x", "launcher": "l", "name": "r", "config": "c", "submitted": "never"}
    later = wrong | {"job": "of-later", "submitted": 2.0, "invented": {"by": "version 9"}}
    lines = [*strange, json.dumps(wrong).encode(), json.dumps(later).encode()]
    with book.path.open("ab") as file:
        file.write(b"\n".join(lines))
    book.add(Job("last", "l", "r", "c", submitted=3.0))
    read, damaged = book.read()
    assert [job.job for job in read] == ["last", "of-later", "one"]
    assert read[-1].name == "run\u2028of two\x85lines"
    assert damaged == [2, 3, 4, 5, 7, 8, 9]
    done = CliRunner().invoke(jobs, ["list"])
    assert "lines 2, 3, 4, 5, 7, … of" in done.stderr
    assert "cannot be read, and may have been a job" in done.stderr
    assert done.stdout.count("\n") == 4
    assert "lines 2, 3" in call("status", "none-such", fails=ConfigError)


def test_no_name_is_no_job(there):
    JobBook().add(Job("only", "l", "r", "c"))
    assert "which job?" in call("stop", "", fails=ConfigError)


def test_a_book_that_is_no_file_is_told(there):
    JobBook().path.mkdir(parents=True)
    assert "book of jobs cannot be read" in call("list", fails=MachineError)


def test_t99_the_book_has_no_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("TEAM_PASSWORD", "a phrase of words")
    book = JobBook(tmp_path / "jobs.jsonl")
    options = {"extra": ["--export=HF_TOKEN=hunter22", "--comment=a phrase of words"], "nodes": 2}
    details = {"set": ["track.api_key=hunter22", "train.steps=3"], "password": "hunter22"}
    book.add(Job("one", "cluster/slurm", "r", "c", options=options, details=details))
    assert "hunter22" not in book.path.read_text()
    assert "a phrase" not in book.path.read_text()
    (job,) = book.jobs()
    assert job.options["nodes"] == 2
    assert job.details["set"] == ["track.api_key=<redacted>", "train.steps=3"]
