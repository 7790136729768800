"""Plans, what goes along, and jobs at a SageMaker over real sockets."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from botocore.stub import Stubber
from click.testing import CliRunner

from rlvr_cluster.jobs.job_book import Job, JobBook
from rlvr_core.api import ConfigError, LaunchRequest, MachineError, RlvrError
from rlvr_core.cli.main import cli
from rlvr_sagemaker import aws
from rlvr_sagemaker.launcher import SageMakerLauncher
from rlvr_sagemaker.options import Options, gpu_list, name_faults
from tests.support.tables import table

GOLDEN = Path(__file__).with_name("golden")
ROLE = "arn:aws:iam::123456789012:role/rlvr-job"
IMAGE = "123456789012.dkr.ecr.eu-north-1.amazonaws.com/rlvr:1"
ACCOUNT = {"role": ROLE, "image": IMAGE, "instance_type": "ml.p4de.24xlarge"}


@pytest.fixture
def project(write_project):
    """A folder as a user has it: configs, data, a package of theirs, and rubbish."""
    return write_project(dict(table(__file__, "project")))


def rlvr(*words, code=0):
    """What a command prints, stdout and stderr apart, with its errors as the user sees them."""
    result = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=True)
    if isinstance(result.exception, RlvrError):
        assert code == result.exception.exit_code, str(result.exception)
        return str(result.exception)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def launch_words(*more, store="s3://some-bucket/rlvr"):
    words = ["launch", "configs/train.yaml", "--backend", "sagemaker", "--store", store]
    for name, value in ACCOUNT.items():
        words += [f"--{name.replace('_', '-')}", value]
    return [*words, *more]


GOLDEN_WORDS = [
    *("--job-name", "rlvr-golden", "--instance-count", "2", "--spot", "--max-wait", "500000"),
    *("--eval-config", "configs/eval.yaml", "--train-gpus", "0-5", "--eval-gpus", "6,7"),
    *("--include", "mine", "--env", "A=b", "--region", "eu-north-1", "--tags", "team=maths"),
    *("--set", "train.steps=3", "--dry-run"),
]


@pytest.mark.parametrize(("name", "more"), [("plan.json", ["--json"]), ("plan.txt", [])])
def test_a_dry_run_is_a_golden_file(project, monkeypatch, name, more):
    """The exact request, the files, what the job is told; regenerate: RLVR_GOLDEN=1 pytest."""
    monkeypatch.delattr(aws, "client")  # a plan asks nobody
    found = rlvr(*launch_words(*GOLDEN_WORDS, *more)).replace(str(project), "<project>")
    path = GOLDEN / name
    if os.environ.get("RLVR_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found)
    assert found == path.read_text()


@pytest.mark.parametrize(("name", "good"), table(__file__, "job names"))
def test_t91_job_names_are_checked_here(name, good):
    assert (name_faults(name) == []) is good


def test_t90_names_say_nothing_and_are_not_met_twice(project):
    launcher = SageMakerLauncher(Options(store="s3://some-bucket/p", **ACCOUNT))
    request = LaunchRequest(("run", "base.yaml"), "secret-project", files=(Path("base.yaml"),))
    job = launcher.plan(request).details["job"]
    assert job.startswith("rlvr-adhoc-")
    assert "secret-project" not in job
    assert name_faults(job) == []


def test_every_fault_of_the_options_at_once(project):
    words = launch_words("--job-name", "a_b", "--train-gpus", "0-3", "--engine-gpus", "3,4")
    words += ["--max-wait", "5", "--env", "X", "--subnets", "subnet-1", "--dry-run"]
    words[words.index(ROLE)] = "admin"
    told = rlvr(*words, code=2)
    for part in ("job name 'a_b'", "GPU 3 is named twice", "goes with --spot", "NAME=VALUE"):
        assert part in told
    assert "not a role ARN" in told
    assert "a VPC needs both" in told


def test_t31_gpus_of_an_engine_that_has_no_use_for_them_are_refused(project):
    told = rlvr(*launch_words("--engine-gpus", "7", "--dry-run"), code=2)
    assert "inside the training processes" in told


ELSEWHERE = [
    "123456789012.dkr.ecr.us-west-2.amazonaws.com/rlvr:1",
    "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.8@sha256:" + "0" * 64,
    "123456789012.dkr.ecr-fips.us-west-2.amazonaws.com/rlvr:1",
    "123456789012.dkr-ecr.us-west-2.on.aws/rlvr:1",
]
HERE = [
    "999999999999.dkr.ecr.eu-north-1.amazonaws.com/rlvr:1",  # another account's
    "public.ecr.aws/team/rlvr:1",
    "registry.team.com/rlvr:1",
    "registry.team.com/123456789012.dkr.ecr.us-west-2.amazonaws.com/rlvr:1",
]


@pytest.mark.parametrize("image", ELSEWHERE)
def test_t91_an_image_of_another_region_is_refused(project, monkeypatch, image):
    """SageMaker: 'Cross region ECR image pulls are not allowed'."""
    words = launch_words("--image", image, "--dry-run")
    told = rlvr(*words, "--region", "eu-north-1", code=2)
    assert "the image is in us-west-2 and the job in eu-north-1" in told
    assert "--image" in told
    assert "--region us-west-2" in told
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert "the image is in us-west-2" in rlvr(*words, code=2)
    rlvr(*words, "--region", "us-west-2")


@pytest.mark.parametrize("image", HERE)
def test_an_image_of_the_same_region_or_of_none_is_not(project, image):
    rlvr(*launch_words("--image", image, "--region", "eu-north-1", "--dry-run"))


@pytest.mark.parametrize(
    ("text", "found"), [("0-2,5", [0, 1, 2, 5]), ("7", [7]), (None, []), ("", [])]
)
def test_lists_of_gpus(text, found):
    assert gpu_list(text) == found


@pytest.mark.parametrize("text", ["a", "3-1", "0,0", "0-2,1", "-1", "1,,2"])
def test_lists_that_are_none(text):
    with pytest.raises(ValueError, match="GPU"):
        gpu_list(text)


# -- what goes along ------------------------------------------------------------------------------


def plan(*more, **options):
    words = launch_words(*more, "--job-name", "x", "--dry-run", "--json", **options)
    return json.loads(rlvr(*words))["plan"]


def keys(found):
    return [one["key"] for one in found["files"]]


def test_t98_gitignored_data_goes_along_and_is_listed(project):
    found = plan("--include", "mine")
    assert keys(found) == [
        "base.yaml",
        "configs/train.yaml",
        "data/order.txt",
        "data/rows.jsonl",
        "mine/mine.py",
        "mine/notes.txt",
        "mine/pyproject.toml",
    ]
    assert found["description"]["install"] == ["mine"]
    assert found["description"]["directory"] == "."
    listed = rlvr(*launch_words("--include", "mine", "--dry-run"))
    assert re.search(r"^  mine/notes.txt +5 B$", listed, re.M)
    assert "7 files go to" in listed


def test_t93_what_is_elsewhere_is_told_relative_to_the_jobs_folder(project, monkeypatch):
    monkeypatch.chdir(project / "configs")
    words = [word.replace("configs/train.yaml", "train.yaml") for word in launch_words()]
    Path("data").symlink_to(project / "data")
    found = json.loads(rlvr(*words, "--job-name", "x", "--dry-run", "--json"))["plan"]
    assert found["description"]["directory"] == "configs"
    assert found["description"]["arguments"] == ["run", "train.yaml"]
    assert keys(found) == [
        "base.yaml",
        "configs/data/order.txt",
        "configs/data/rows.jsonl",
        "configs/train.yaml",
    ]


def test_a_file_that_is_not_there_is_told_now(project):
    Path("data/rows.jsonl").unlink()
    told = rlvr(*launch_words("--dry-run"), code=2)
    assert "no file 'data/rows.jsonl' to take along" in told
    assert "data.sources.0.with.path" in told
    Path("data/rows.jsonl").touch()
    assert "no file or folder 'none'" in rlvr(*launch_words("--include", "none"), code=2)


def test_t99_no_account_bucket_address_or_machine_in_the_code():
    root = Path(aws.__file__).parent
    files = [path for path in root.rglob("*") if path.suffix in (".py", ".yaml")]
    text = "\n".join(path.read_text() for path in files)
    without_ranges = re.sub(r"(0\.0\.0\.0/0|10\.42\.\d+\.\d+/\d+|203\.0\.113\.7/32)", "", text)
    assert not re.search(r"\b\d{12}\b", text)
    assert not re.search(r"s3://(?!bucket|…)[a-z0-9]", text)
    assert not re.search(r"\b\d{1,3}(\.\d{1,3}){3}\b", without_ranges)
    options = Options()
    for name in ("store", "role", "image", "instance_type", "region"):
        assert getattr(options, name) is None


# -- jobs -----------------------------------------------------------------------------------------


@pytest.fixture
def submitted(cloud, project):
    """Words of a launch in the account, and the name of its job."""
    store = f"s3://{cloud.bucket}/team"
    job = f"job-{cloud.bucket}"
    return launch_words("--job-name", job, store=store), job


def described(job):
    return aws.client("sagemaker").describe_training_job(TrainingJobName=job)


def test_submit_status_show_and_stop(cloud, project, submitted):
    words, job = submitted
    assert rlvr(*words, "--include", "mine") == f"{job}\n"
    found = described(job)
    assert found["RoleArn"] == ROLE
    assert found["ResourceConfig"]["InstanceType"] == "ml.p4de.24xlarge"
    uri = found["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"]
    assert re.fullmatch(rf"s3://{cloud.bucket}/team/jobs/{job}/code/[0-9a-f]{{32}}/", uri)
    there = {
        one["Key"].removeprefix(uri.removeprefix(f"s3://{cloud.bucket}/")): one["Size"]
        for one in aws.client("s3").list_objects_v2(Bucket=cloud.bucket)["Contents"]
    }
    assert there.pop("rlvr-job.json") > 100
    assert there["data/rows.jsonl"] == 28
    assert len(there) == 7
    listed = json.loads(rlvr("jobs", "list", "--json"))
    assert [(one["job"], one["name"], one["launcher"]) for one in listed] == [
        (job, "demo", "sagemaker/sagemaker")
    ]
    assert listed[0]["config"] == str(project / "configs" / "train.yaml")
    assert listed[0]["runs"] == f"s3://{cloud.bucket}/team/jobs/{job}/runs"
    state = json.loads(rlvr("jobs", "status", "last", "--json"))
    assert state["state"] in ("running", "waiting", "finished")
    JobBook().add(Job("gone-before", "sagemaker/sagemaker", "old", "c", submitted=1.0))
    asked = json.loads(rlvr("jobs", "list", "--states", "--json"))
    assert [one["state"] for one in asked] == [state["state"], "unknown"]
    assert len(json.loads(rlvr("jobs", "list", "--limit", "1", "--json"))) == 1
    rlvr("jobs", "stop", job)


def test_a_job_is_created_once_whatever_happens_to_the_answer(cloud, project, submitted):
    words, job = submitted
    cloud.kinds, cloud.rate = ("lost",), 0.3
    rlvr(*words)
    cloud.calm()
    names = [
        one["TrainingJobName"]
        for one in aws.client("sagemaker").list_training_jobs()["TrainingJobSummaries"]
    ]
    assert names.count(job) == 1
    assert len(JobBook().jobs()) == 1


def test_a_name_that_is_taken_is_told(cloud, project, submitted):
    words, job = submitted
    rlvr(*words)
    request = json.loads(rlvr(*words, "--dry-run", "--json"))["plan"]["request"]
    there = described(job)
    launcher = SageMakerLauncher(Options())
    for ours in (False, True):
        parameters = there["HyperParameters"] if ours else {"submission": "of somebody else"}
        with Stubber(aws.client("sagemaker", None)) as stub:
            stub.add_client_error("create_training_job", "ResourceInUse", http_status_code=400)
            answer = {key: value for key, value in there.items() if key != "ResponseMetadata"}
            stub.add_response("describe_training_job", answer)
            if ours:  # made by a request whose answer was lost
                launcher._create(request | {"HyperParameters": parameters})
            else:
                with pytest.raises(ConfigError, match="already a job named"):
                    launcher._create(request | {"HyperParameters": parameters})


def test_logs_of_several_machines(cloud, project, submitted):
    words, job = submitted
    rlvr(*words)
    with pytest.raises(MachineError, match="printed nothing"):
        list(SageMakerLauncher(Options()).logs(job))
    logs = aws.client("logs")
    group = "/aws/sagemaker/TrainingJobs"
    if not logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"]:
        logs.create_log_group(logGroupName=group)
    now = int(datetime.now(UTC).timestamp() * 1000)
    for machine in ("algo-1-1", "algo-2-1"):
        stream = f"{job}/{machine}"
        logs.create_log_stream(logGroupName=group, logStreamName=stream)
        events = [{"timestamp": now + n, "message": f"step {n} \x1b[2J"} for n in range(3)]
        logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)
    printed = rlvr("jobs", "logs", job).splitlines()
    assert printed[0] == "[algo-1-1] step 0 \\x1b[2J"
    assert len(printed) == 6
