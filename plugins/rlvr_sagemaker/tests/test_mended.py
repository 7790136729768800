"""What moto cannot show: answers of the real services, by botocore's Stubber."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from botocore.stub import Stubber
from click.testing import CliRunner

from rlvr_cluster.jobs.job_book import Job, JobBook
from rlvr_cluster.jobs.protocol import JobStatus
from rlvr_core.api import ConfigError, MachineError
from rlvr_core.cli.main import cli
from rlvr_sagemaker import aws, image, launcher
from rlvr_sagemaker import job as job_module
from rlvr_sagemaker.launcher import SageMakerLauncher
from rlvr_sagemaker.options import Options
from rlvr_sagemaker.place import Place
from rlvr_sagemaker.store import S3Store

ROLE = "arn:aws:iam::123456789012:role/rlvr-job"
IMAGE = "123456789012.dkr.ecr.eu-north-1.amazonaws.com/rlvr:1"
LISTED = {"Key": "here/a", "Size": 1, "ETag": '"x"'}


@pytest.mark.parametrize("there", [False, True])
def test_what_is_not_there_is_not_taken_for_forbidden(cloud, tmp_path, there):
    """S3 says 403 for a missing object to whoever may not list the whole bucket."""
    store = S3Store(Place(cloud.bucket, "here"))
    pages = {"Contents": [LISTED] if there else [], "IsTruncated": False}
    asked = {"Bucket": cloud.bucket, "Prefix": "here/a"}
    with Stubber(aws.client("s3")) as stub:
        stub.add_client_error("head_object", "403", http_status_code=403)
        stub.add_response("list_objects_v2", pages, asked)
        if there:
            with pytest.raises(MachineError, match="lacks a permission"):
                store.head("a")
        else:
            assert store.head("a") is None
        stub.add_client_error("get_object", "AccessDenied", http_status_code=403)
        stub.add_response("list_objects_v2", pages, asked)
        with pytest.raises(MachineError if there else FileNotFoundError):
            store.get("a", tmp_path / "a")


def test_bytes_are_counted_as_they_go(cloud, store, tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 1000)
    store.put(tmp_path / "a", "a")
    assert store.moved >= 2000  # read once, sent once


def attempt(root, monkeypatch, **said):
    """The job's entry point with a description of the test's."""
    code = root / "input" / "data" / "code"
    code.mkdir(parents=True)
    said = {"install": [], "secrets": {}, "arguments": ["run", "c.yaml"], "runs": None} | said
    (code / "rlvr-job.json").write_text(json.dumps(said))
    monkeypatch.setenv("SM_HOSTS", '["a"]')
    monkeypatch.setenv("SM_CURRENT_HOST", "a")
    return job_module.Attempt(root)


@pytest.mark.parametrize("works", [True, False])
def test_t87_what_the_run_could_not_send_is_sent_again_or_fails_the_job(
    cloud, tmp_path, monkeypatch, works
):
    from rlvr_cluster.stores.mirror import BEHIND, Mirror

    runs = f"s3://{cloud.bucket}/runs"
    one = attempt(tmp_path, monkeypatch, runs=runs)
    run = tmp_path / "checkpoints" / "demo-20250101-000000"
    run.mkdir(parents=True)
    (run / "run.json").write_text('{"outcome": "finished"}')
    assert one._all_sent()  # no mirror, nothing to send
    (run / BEHIND).touch()

    def push(command, **_):
        assert command[-4:] == ["jobs", "push", str(run), runs]
        if works:
            Mirror(S3Store(Place.parse(f"{runs}/{run.name}")), run, keep=1).once()
        return job_module.subprocess.CompletedProcess(command, 0 if works else 4)

    monkeypatch.setattr(job_module.subprocess, "run", push)
    assert one._all_sent() is works
    assert (run / BEHIND).exists() is not works


# -- launching -----------------------------------------------------------------------------------


@pytest.fixture
def project(write_project):
    data = "{use: core/jsonl, with: {path: rows.jsonl, prompt: q, verifier: core/exact}}"
    return write_project(
        {
            "base.yaml": "train: {steps: 2, lr: 1.0e-3}\n",
            "configs/train.yaml": "extends: ../base.yaml\nrun: {name: demo}\n"
            f"model: {{path: 'tiny:math/arithmetic'}}\ndata: {{sources: [{data}]}}\n",
            "rows.jsonl": '{"q": "1+1", "answer": "2"}\n',
        }
    )


def launch(*more, store="s3://some-bucket/rlvr", config="configs/train.yaml", image=IMAGE):
    words = ["launch", *([config] if config else []), "--backend", "sagemaker", "--store", store]
    words += ["--role", ROLE, "--instance-type", "ml.t", *(["--image", image] if image else [])]
    return CliRunner().invoke(cli, [*words, *map(str, more)])


def plan(*more, **options):
    done = launch(*more, "--dry-run", "--json", **options)
    assert done.exit_code == 0, f"{done.output} {done.exception}"
    return json.loads(done.stdout)["plan"]


def test_a_name_that_is_taken_leaves_the_other_jobs_files_alone(cloud, project, monkeypatch):
    store, job = f"s3://{cloud.bucket}/team", f"job-{cloud.bucket}"
    assert launch("--job-name", job, store=store).exit_code == 0
    sagemaker = aws.client("sagemaker")
    where = sagemaker.describe_training_job(TrainingJobName=job)["InputDataConfig"][0]
    first = S3Store(Place.parse(where["DataSource"]["S3DataSource"]["S3Uri"]))
    before = first.list()
    assert {"rlvr-job.json", "configs/train.yaml", "base.yaml", "rows.jsonl"} == set(before)

    def refuse(*_):
        raise ConfigError("there is already a job named so")

    monkeypatch.setattr(SageMakerLauncher, "_create", refuse)
    Path("rows.jsonl").write_text("another job's rows\n")
    again = launch("--job-name", job, "--set", "train.steps=9", store=store)
    assert "already a job" in str(again.exception)
    assert first.list() == before


def test_a_stopped_job_is_gone_on_with_by_a_new_one(cloud, project, monkeypatch):
    store, job = f"s3://{cloud.bucket}/team", f"job-{cloud.bucket}"
    words = ("--job-name", job, "--set", "train.steps=3", "--set", "run.seed=4")
    assert launch(*words, store=store).exit_code == 0
    runs = f"{store}/jobs/{job}/runs"
    found = plan("--resume", job, "--set", "train.steps=7", store=store, config=None)
    assert found["job"] != job
    assert found["runs"] == found["description"]["runs"] == runs
    given = found["description"]["arguments"]
    assert given[:2] == ["run", "configs/train.yaml"]
    assert given[2:] == [
        "--set", "train.steps=3", "--set", "run.seed=4", "--set", "train.steps=7",
    ]  # fmt: skip
    states = ["running", "stopped"]
    monkeypatch.setattr(SageMakerLauncher, "status", lambda *_: JobStatus(states.pop(0)))
    resume = ("--resume", "last", "--job-name", f"{job}-2")
    busy = launch(*resume, store=store, config=None)
    assert f"{job} is still at work on that run" in str(busy.exception)
    assert launch(*resume, store=store, config=None).exit_code == 0
    assert [one.runs for one in JobBook().jobs()] == [runs, runs]
    JobBook().add(Job("7", "cluster/slurm", "demo", "c"))
    assert "one of cluster/slurm" in str(launch("--resume", "7", config=None).exception)
    assert "no job" in str(launch("--resume", "none-such", config=None).exception)


def test_t80_a_watcher_waits_until_the_run_that_was_fetched_runs_again(tmp_path, monkeypatch):
    one = attempt(tmp_path, monkeypatch)
    run = tmp_path / "checkpoints" / "demo-20250101-000000"
    run.mkdir(parents=True)

    class Training:
        code = None

        def poll(self):
            return self.code

    training = Training()
    assert one._at_work(training) is None
    (run / "run.json").write_text('{"outcome": "interrupted"}')
    assert one._at_work(training) is None
    (run / "run.json").write_text('{"outcome": "running"}')
    assert one._at_work(training) == run
    (run / "run.json").write_text('{"outcome": "finished"}')
    assert one._at_work(training) is None
    training.code = 0  # over before anybody looked: its checkpoints are evaluated all the same
    assert one._at_work(training) == run


def test_either_name_of_the_region_counts_and_the_book_keeps_it(cloud, project, monkeypatch):
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    aws.client.cache_clear()
    assert aws.client("logs").meta.region_name == "eu-west-3"
    there = {"store": f"s3://{cloud.bucket}/x", "image": IMAGE.replace("eu-north-1", "eu-west-3")}
    assert launch("--job-name", f"j-{cloud.bucket}", **there).exit_code == 0
    assert JobBook().jobs()[0].options["region"] == "eu-west-3"
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-south-1")
    aws.client.cache_clear()
    assert aws.client("logs").meta.region_name == "eu-south-1"
    assert aws.client("logs", "eu-west-1").meta.region_name == "eu-west-1"


def test_a_secret_is_asked_for_in_its_own_region(cloud, tmp_path, monkeypatch):
    elsewhere = aws.client("secretsmanager", "ap-south-1")
    name = f"n-{cloud.bucket}"
    arn = elsewhere.create_secret(Name=name, SecretString="far")["ARN"]
    aws.client("secretsmanager").create_secret(Name=name, SecretString="near")
    one = attempt(tmp_path, monkeypatch, secrets={"FAR": arn, "NEAR": name})
    assert one._secrets() == {"FAR": "far", "NEAR": "near"}


def test_t92_an_image_that_is_built_needs_no_name(project, monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    built = ("--build", "--job-name", "one", "--region", "eu-west-3")
    found = plan(*built, image=None)["request"]["AlgorithmSpecification"]["TrainingImage"]
    assert found == "123456789012.dkr.ecr.eu-west-3.amazonaws.com/rlvr:one"
    assert image._ECR.match(found)
    mine = IMAGE.replace("eu-north-1", "eu-west-3")
    named = plan(*built, image=mine)["request"]["AlgorithmSpecification"]["TrainingImage"]
    assert named == mine
    assert "needs a region" in str(launch("--build", image=None).exception)
    assert "--image is missing" in str(launch("--dry-run", image=None).exception)


def test_t89_t95_caches_and_temporary_files_are_outside_of_what_is_uploaded(tmp_path, monkeypatch):
    names = ("TMPDIR", "XDG_CACHE_HOME", "HF_HOME")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RLVR_SCRATCH", str(tmp_path / "scratch"))
    found = attempt(tmp_path, monkeypatch)._environment()
    assert all(Path(found[name]).is_relative_to(tmp_path / "scratch") for name in names)
    assert Path(found["TMPDIR"]).is_dir()


def test_a_machine_with_fewer_gpus_than_processes_is_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(job_module, "_all_gpus", lambda kept: [0, 1, 2, 3])
    given = {"engine_gpus": [], "train_gpus": []}
    words = attempt(tmp_path / "two", monkeypatch, processes=2, **given)._words(None)
    assert words[-4:] == ["--gpus", "0,1", "--processes", "2"]
    with pytest.raises(MachineError, match="8 processes were asked for, and this machine has 4"):
        attempt(tmp_path / "eight", monkeypatch, processes=8, **given)._words(None)


def test_an_empty_page_is_not_the_end_of_a_log(cloud):
    logs = aws.client("logs")
    pages = [(["one"], "f/1"), ([], "f/2"), (["two"], "f/3"), ([], "f/3")]
    with Stubber(logs) as stub:
        before = None
        for messages, token in pages:
            asked = {
                "logGroupName": "/aws/sagemaker/TrainingJobs",
                "logStreamName": "s",
                "startFromHead": True,
            } | ({"nextToken": before} if before else {})
            events = [{"timestamp": 1, "message": text, "ingestionTime": 1} for text in messages]
            stub.add_response(
                "get_log_events", {"events": events, "nextForwardToken": token}, asked
            )
            before = token
        assert list(launcher._events(logs, "s")) == ["one", "two"]


def test_waiting_goes_on_through_an_outage(cloud, monkeypatch):
    answers = [JobStatus("running", "a"), None, None, JobStatus("finished", "Completed")]

    def status(*_):
        found = answers.pop(0)
        if found is None:
            raise MachineError("looking at x: no network")
        return found

    monkeypatch.setattr(SageMakerLauncher, "status", status)
    said = []
    one = SageMakerLauncher(Options(poll=0.01))
    assert one._wait("x", said.append) == 0
    assert said == ["x: a", "x: looking at x: no network", "x: Completed"]
    monkeypatch.setattr(launcher, "QUIET", 0.0)
    answers.append(None)
    with pytest.raises(MachineError, match="no network"):
        one._wait("x", said.append)


def test_stopping_asks_sagemaker_once(cloud):
    """StopTrainingJob for a job that runs, and nothing for one that has ended."""
    sagemaker = aws.client("sagemaker", None)
    for status in ("InProgress", "Completed"):
        with Stubber(sagemaker) as stub:
            there = {
                "TrainingJobName": "x", "TrainingJobArn": "arn:aws:sagemaker:x:training-job/x",
                "ModelArtifacts": {"S3ModelArtifacts": "s3://b/x"},
                "TrainingJobStatus": status, "SecondaryStatus": "Training",
                "AlgorithmSpecification": {"TrainingInputMode": "File"},
                "ResourceConfig": {"VolumeSizeInGB": 1}, "StoppingCondition": {},
                "CreationTime": datetime.now(UTC),
            }  # fmt: skip
            stub.add_response("describe_training_job", there, {"TrainingJobName": "x"})
            if status == "InProgress":
                stub.add_response("stop_training_job", {}, {"TrainingJobName": "x"})
            SageMakerLauncher(Options()).stop("x")
            stub.assert_no_pending_responses()
