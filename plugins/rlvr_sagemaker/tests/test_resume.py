"""A job that goes on with the run of another is the same job, but for what is said anew."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from rlvr_cluster.jobs.job_book import JobBook
from rlvr_cluster.jobs.protocol import JobStatus
from rlvr_core.cli.main import cli
from rlvr_sagemaker import aws
from rlvr_sagemaker.launcher import SageMakerLauncher

ROLE = "arn:aws:iam::123456789012:role/rlvr-job"
IMAGE = "123456789012.dkr.ecr.eu-north-1.amazonaws.com/rlvr:1"
KEY = "arn:aws:kms:eu-north-1:123456789012:key/0a-1b"
SECRET = "arn:aws:secretsmanager:eu-north-1:123456789012:secret:hf-a1B2c3"
EVERYTHING = [
    *("--instance-type", "ml.g6e.12xlarge", "--instance-count", "2", "--volume-gb", "77"),
    *("--max-runtime", "7200", "--spot", "--max-wait", "9000", "--kms-key", KEY),
    *("--train-gpus", "0-2", "--eval-config", "evals.yaml", "--eval-gpus", "3"),
    *("--env", "A=b", "--env", "C=d=e", "--secrets", f"HF_TOKEN={SECRET}", "--tags", "team=maths"),
    *("--subnets", "subnet-1", "--security-groups", "sg-1", "--include", "mine"),
    *("--set", "train.steps=3"),
]


@pytest.fixture
def project(write_project, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setattr(SageMakerLauncher, "status", lambda *_: JobStatus("stopped"))
    return write_project(
        {
            "train.yaml": "run: {name: demo}\nmodel: {path: 'tiny:math/arithmetic'}\n"
            "train: {steps: 2, lr: 1.0e-3}\ndata: {sources: [{use: math/arithmetic}]}\n",
            "evals.yaml": "tasks: [math/arithmetic-heldout]\n",
            "mine/notes.txt": "kept\n",
        }
    )


def launch(*words):
    done = CliRunner().invoke(cli, ["launch", *words, "--backend", "sagemaker"])
    assert done.exit_code == 0, f"{done.output} {done.exception}"
    return done


def resumed(*more):
    done = launch("--resume", "last", "--job-name", "second", *more, "--dry-run", "--json")
    return json.loads(done.stdout)["plan"], done.stderr


def same(plan):
    """What has to be the same in both: all but the names of the two jobs."""
    text = json.dumps({key: plan[key] for key in ("request", "description", "permissions")})
    return json.loads(text.replace(plan["job"], "JOB"))


@pytest.fixture
def first(cloud, project, monkeypatch):
    """The plan of a job that was submitted with every option, some of them by the environment."""
    monkeypatch.setenv("RLVR_SAGEMAKER_ROLE", ROLE)
    monkeypatch.setenv("RLVR_SAGEMAKER_IMAGE", IMAGE)
    words = [*EVERYTHING, "--store", f"s3://{cloud.bucket}/x", "--job-name", f"j-{cloud.bucket}"]
    plan = json.loads(launch("train.yaml", *words, "--dry-run", "--json").stdout)["plan"]
    launch("train.yaml", *words)
    monkeypatch.delenv("RLVR_SAGEMAKER_ROLE")  # another shell, on another day
    monkeypatch.setenv("RLVR_SAGEMAKER_IMAGE", "somebody/else:2")
    return plan


def test_a_resumed_job_is_the_same_job(first):
    found, told = resumed()
    was, now = same(first), same(found)
    runs = {was["description"].pop("runs"), now["description"].pop("runs")}
    assert runs == {first["runs"].replace(first["job"], "JOB"), first["runs"]}
    # the second job goes on in the place of the first, and asks to own it
    asks = [one["description"].pop("takes_over") for one in (was, now)]
    assert asks == [False, True]
    for one in (was, now):  # the second one writes where the first did, and so has more to name
        one["permissions"] = [
            need for need in one["permissions"] if not str(need["actions"]).count("s3:")
        ]
    assert now == was
    assert found["runs"] == first["runs"]
    assert [one["key"] for one in found["files"]] == [one["key"] for one in first["files"]]
    assert "of its own it has --job-name\n" in told


def test_what_is_given_again_takes_the_place_of_the_jobs(first):
    request = first["request"]
    found, told = resumed(
        "--instance-type", "ml.p4de.24xlarge", "--no-spot", "--env", "A=x",
        "--eval-config", "evals.yaml", "--set", "train.steps=7",
    )  # fmt: skip
    new = found["request"]
    assert new["ResourceConfig"] == request["ResourceConfig"] | {"InstanceType": "ml.p4de.24xlarge"}
    assert "EnableManagedSpotTraining" not in new
    assert new["StoppingCondition"] == {"MaxRuntimeInSeconds": 7200}
    assert new["Environment"] == {"PYTHONUNBUFFERED": "1", "A": "x"}  # a list as a whole
    assert found["description"]["arguments"][-2:] == ["--set", "train.steps=7"]
    assert "of its own it has --env, --instance-type, --job-name, --spot\n" in told
    built = resumed("--build", "--image", IMAGE.replace(":1", ":9"))[0]
    assert built["request"]["AlgorithmSpecification"]["TrainingImage"].endswith(":9")


def test_the_environment_says_nothing_about_a_job_that_was_launched(first, monkeypatch):
    monkeypatch.setenv("RLVR_SAGEMAKER_INSTANCE_TYPE", "ml.other")
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    aws.client.cache_clear()
    found = resumed()[0]
    assert found["request"]["ResourceConfig"]["InstanceType"] == "ml.g6e.12xlarge"
    assert found["region"] == "eu-north-1"
    assert found["request"]["AlgorithmSpecification"]["TrainingImage"] == IMAGE


def test_t99_the_book_has_arns_of_secrets_and_no_values(first):
    (job,) = JobBook().jobs()
    assert job.details["secret_arns"] == [["HF_TOKEN", SECRET]]
    assert "<redacted>" not in JobBook().path.read_text()
    assert not {"job_name", "wait", "build"} & set(job.details["options"])
