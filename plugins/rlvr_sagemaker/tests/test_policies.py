"""The policies against the calls that are really made, by an evaluator of this test's own."""

from __future__ import annotations

import fnmatch
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import boto3
import pytest
from botocore.stub import Stubber
from click.testing import CliRunner

from rlvr_core.api import ConfigError
from rlvr_core.cli.main import cli
from rlvr_sagemaker import aws, image
from rlvr_sagemaker import job as job_module
from rlvr_sagemaker import store as store_module
from rlvr_sagemaker.cache import Cache
from rlvr_sagemaker.iam import Account, policies
from rlvr_sagemaker.place import Place
from rlvr_sagemaker.store import S3Store

NUMBER, REGION = "123456789012", "eu-north-1"
ROLE = f"arn:aws:iam::{NUMBER}:role/rlvr-job"
EC2 = f"arn:aws:ec2:{REGION}:{NUMBER}"
ELSEWHERE = f"arn:aws:sagemaker:us-east-1:{NUMBER}"
TO_SAGEMAKER = {"iam:PassedToService": "sagemaker.amazonaws.com"}
OBJECTS = {
    "HeadObject": "GetObject",
    "GetObject": "GetObject",
    "PutObject": "PutObject",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "CompleteMultipartUpload": "PutObject",
    "AbortMultipartUpload": "AbortMultipartUpload",
}


def needs(service, operation, asked):
    """What IAM asks of a call, from the service's reference: (action, ARN, context) each."""
    if service == "s3":
        bucket = f"arn:aws:s3:::{asked['Bucket']}"
        if operation == "ListObjectsV2":
            return [("s3:ListBucket", bucket, {"s3:prefix": asked["Prefix"]})]
        if operation == "DeleteObjects":
            keys = [one["Key"] for one in asked["Delete"]["Objects"]]
            return [("s3:DeleteObject", f"{bucket}/{key}", {}) for key in keys]
        return [(f"s3:{OBJECTS[operation]}", f"{bucket}/{asked['Key']}", {})]
    here = f"arn:aws:{service}:{REGION}:{NUMBER}"
    action = f"{service}:{operation}"
    if service == "sagemaker" and operation != "ListTrainingJobs":
        found = [(action, f"{here}:training-job/{asked['TrainingJobName']}", {})]
        if operation == "CreateTrainingJob":
            found.append(("iam:PassRole", asked["RoleArn"], TO_SAGEMAKER))
            if asked.get("Tags"):
                found.append(("sagemaker:AddTags", found[0][1], {}))
        return found
    if service == "logs":
        group = f"{here}:log-group:{asked['logGroupName']}"
        stream = asked.get("logStreamName")
        return [(action, group + (f":log-stream:{stream}" if stream else ""), {})]
    if operation == "CreateRepository":
        return [(action, f"{here}:repository/{asked['repositoryName']}", {})]
    if service == "secretsmanager":
        return [(action, asked["SecretId"], {})]
    return [(action, "*", {})]


def holds(condition, context):
    """Whether a statement's conditions are fulfilled; what the request does not have fails them."""
    tests = {
        "StringEquals": lambda given, wanted: given == wanted,
        "StringLike": fnmatch.fnmatchcase,
        "ArnEquals": fnmatch.fnmatchcase,
    }
    for operator, pairs in condition.items():
        for key, wanted in pairs.items():
            met = [tests[operator](context.get(key, ""), one) for one in listed(wanted)]
            if key not in context or not any(met):
                return False
    return True


def listed(value):
    return [value] if isinstance(value, str) else value


def allowing(document, action, resource, context):
    """The statements of a policy that allow something."""
    return [
        one["Sid"]
        for one in document["Statement"]
        if action in one["Action"]
        and any(fnmatch.fnmatchcase(resource, pattern) for pattern in listed(one["Resource"]))
        and holds(one.get("Condition", {}), context)
    ]


@pytest.fixture
def calls(cloud, monkeypatch):
    """Every call that is made, as (service, operation, parameters)."""
    monkeypatch.setenv(aws.TIMEOUT, "30")
    made = []
    real = boto3.session.Session.client

    def watched(self, service, *words, **options):
        client = real(self, service, *words, **options)

        def note(params, model, **_):
            made.append((service, model.name, dict(params)))

        client.meta.events.register("provide-client-params.*.*", note)
        return client

    monkeypatch.setattr(boto3.session.Session, "client", watched)
    aws.client.cache_clear()
    return made


def for_bucket(cloud, **more):
    store = f"s3://{cloud.bucket}/team/rlvr"
    return Account(account=NUMBER, region=REGION, store=store, role="rlvr-job", **more)


def rlvr(*words):
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == 0, f"{words} {done.output} {done.exception!r}"


def everything_a_submitter_does(cloud, tmp_path, monkeypatch):
    """Each command of the guide that reaches AWS."""
    monkeypatch.chdir(tmp_path)
    store = for_bucket(cloud).store
    job = f"job-{cloud.bucket}"
    Path("rows.jsonl").write_text('{"q": "1+1", "answer": "2"}\n')
    monkeypatch.setattr(store_module, "PART", 5 << 20)
    Path("big.bin").write_bytes(b"x" * ((5 << 20) + 1))  # in parts
    Path("train.yaml").write_text(
        "run: {name: demo}\nmodel: {path: 'tiny:math/arithmetic'}\ntrain: {steps: 2}\ndata: {"
        "sources: [{use: core/jsonl, with: {path: rows.jsonl, prompt: q, verifier: core/exact}}]}\n"
    )
    rlvr("sagemaker", "put", "big.bin", f"{store}/data/big.bin")
    rlvr("sagemaker", "put", "big.bin", f"{store}/data/big.bin")
    rlvr(
        "launch", "train.yaml", "--backend", "sagemaker", "--store", store, "--role", ROLE,
        "--instance-type", "ml.t", "--image", "x:1", "--job-name", job, "--tags", "team=a",
    )  # fmt: skip
    rlvr("jobs", "status", job)
    rlvr("sagemaker", "list", "--contains", job)
    with Stubber(aws.client("logs", REGION)) as stub:
        stub.add_response("describe_log_streams", {"logStreams": [{"logStreamName": f"{job}/a"}]})
        for _ in range(2):
            stub.add_response("get_log_events", {"events": [], "nextForwardToken": "f/1"})
        rlvr("jobs", "logs", job)
    run = tmp_path / "far" / "demo-20250101-000000"
    run.mkdir(parents=True)
    for name in ("run.json", "resolved.yaml", "metrics.jsonl"):
        (run / name).write_text("{}\n")
    rlvr("sagemaker", "put", tmp_path / "far", f"{store}/jobs/{job}/runs")
    rlvr("jobs", "fetch", job)
    with Stubber(aws.client("sagemaker", REGION)) as stub:  # moto has no StopTrainingJob
        there = {
            "TrainingJobName": job, "TrainingJobArn": "arn:aws:sagemaker:x:training-job/x",
            "ModelArtifacts": {"S3ModelArtifacts": "s3://b/x"}, "CreationTime": datetime.now(UTC),
            "TrainingJobStatus": "InProgress", "SecondaryStatus": "Training",
            "AlgorithmSpecification": {"TrainingInputMode": "File"},
            "ResourceConfig": {"VolumeSizeInGB": 1}, "StoppingCondition": {},
        }  # fmt: skip
        stub.add_response("describe_training_job", there)
        stub.add_response("stop_training_job", {})
        rlvr("jobs", "stop", job)


def test_t99_every_call_of_a_submitter_is_allowed_and_nothing_is_allowed_in_vain(
    calls, cloud, tmp_path, monkeypatch
):
    everything_a_submitter_does(cloud, tmp_path, monkeypatch)
    monkeypatch.setattr(image, "do", lambda *words, **_: None)
    monkeypatch.setattr(image, "by_content", lambda tool, name: None)
    image._push("docker", f"{NUMBER}.dkr.ecr.{REGION}.amazonaws.com/rlvr:1", lambda _: None)
    client = aws.client("s3")
    client.delete_objects(
        Bucket=cloud.bucket, Delete={"Objects": [{"Key": "team/rlvr/data/big.bin"}]}
    )
    document = policies(for_bucket(cloud))["submitter"]
    used = set()
    for service, operation, asked in calls:
        for action, resource, context in needs(service, operation, asked):
            assert allowing(document, action, resource, context), (action, resource, context)
            used.add(action)
    granted = {action for one in document["Statement"] for action in one["Action"]}
    by_docker = {
        "ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:CompleteLayerUpload",
        "ecr:GetDownloadUrlForLayer", "ecr:InitiateLayerUpload", "ecr:PutImage",
        "ecr:UploadLayerPart",
    }  # fmt: skip
    # parts are given up where an upload fails, which a loaded machine may have it do
    assert (granted - used) - {"s3:AbortMultipartUpload"} == by_docker


def test_t99_every_call_of_a_job_is_allowed(calls, cloud, tmp_path, monkeypatch):
    """Data through the cache, a mirror that rotates checkpoints, and a secret of its own."""
    arn = aws.client("secretsmanager").create_secret(
        Name=f"n-{cloud.bucket}", SecretString="hidden"
    )["ARN"]
    calls.clear()
    given = for_bucket(cloud, secrets=[arn])
    one = object.__new__(job_module.Attempt)
    one._said = {"secrets": {"TOKEN": arn}}
    assert one._secrets() == {"TOKEN": "hidden"}
    source = tmp_path / "f"
    source.write_text("{}")
    store = S3Store(Place.parse(given.store))
    store.put(source, "jobs/j/runs/r/run.json")
    assert Cache(tmp_path / "kept").path(f"{given.store}/jobs/j/runs").is_dir()
    store.delete(["jobs/j/runs/r/run.json"])
    document = policies(given)["job"]
    used = set()
    for service, operation, asked in calls:
        for action, resource, context in needs(service, operation, asked):
            assert allowing(document, action, resource, context), (action, resource, context)
            used.add(action)
    assert {"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"} < used
    assert "secretsmanager:GetSecretValue" in used
    assert not allowing(document, "secretsmanager:GetSecretValue", arn + "x", {})
    without = policies(for_bucket(cloud))["job"]
    assert not allowing(without, "secretsmanager:GetSecretValue", arn, {})


def via(service):
    return {"kms:ViaService": f"{service}.{REGION}.amazonaws.com"}


FULL = Account(
    account=NUMBER, region=REGION, store="s3://some-bucket/team/rlvr", role="rlvr-job",
    secrets=[f"arn:aws:secretsmanager:{REGION}:{NUMBER}:secret:hf-AbCdEf"],
    subnets=["subnet-0a", "subnet-0b"], security_groups=["sg-0c"],
    kms_key=f"arn:aws:kms:{REGION}:{NUMBER}:key/1-2",
)  # fmt: skip


@pytest.mark.parametrize(
    ("document", "action", "resource", "context"),
    [
        ("submitter", "s3:GetObject", "arn:aws:s3:::some-bucket/team/other/x", {}),
        ("submitter", "s3:GetObject", "arn:aws:s3:::some-bucket/team/rlvr-2/x", {}),
        ("submitter", "s3:ListBucket", "arn:aws:s3:::some-bucket", {"s3:prefix": "team/"}),
        ("submitter", "s3:ListBucket", "arn:aws:s3:::some-bucket", {}),
        ("job", "s3:PutObject", "arn:aws:s3:::other-bucket/team/rlvr/x", {}),
        ("submitter", "iam:PassRole", ROLE, {"iam:PassedToService": "ec2.amazonaws.com"}),
        ("submitter", "iam:PassRole", ROLE + "-admin", TO_SAGEMAKER),
        ("submitter", "sagemaker:CreateTrainingJob", f"{ELSEWHERE}:training-job/x", {}),
        ("submitter", "ecr:PutImage", f"arn:aws:ecr:{REGION}:{NUMBER}:repository/other", {}),
        ("job", "ecr:BatchGetImage", f"arn:aws:ecr:{REGION}:{NUMBER}:repository/other", {}),
        ("submitter", "secretsmanager:GetSecretValue", FULL.secrets[0], {}),
        ("job", "kms:Decrypt", FULL.kms_key, via("ec2")),
        ("job", "kms:Decrypt", FULL.kms_key + "0", via("s3")),
        ("job", "ec2:CreateNetworkInterface", f"{EC2}:subnet/subnet-0c", {}),
        (
            "job", "ec2:DeleteNetworkInterface", f"{EC2}:network-interface/eni-1",
            {"ec2:Subnet": f"{EC2}:subnet/subnet-0c"},
        ),
    ],
)  # fmt: skip
def test_t99_what_is_not_named_is_not_allowed(document, action, resource, context):
    assert not allowing(policies(FULL)[document], action, resource, context)


@pytest.mark.parametrize(
    ("document", "action", "resource", "context"),
    [
        ("job", "kms:Decrypt", FULL.kms_key, via("s3")),
        ("submitter", "kms:GenerateDataKey", FULL.kms_key, via("s3")),
        ("job", "kms:Decrypt", FULL.kms_key, via("secretsmanager")),
        ("job", "ec2:CreateNetworkInterface", f"{EC2}:subnet/subnet-0b", {}),
        ("job", "ec2:CreateNetworkInterface", f"{EC2}:security-group/sg-0c", {}),
        (
            "job", "ec2:CreateNetworkInterfacePermission", f"{EC2}:network-interface/eni-1",
            {"ec2:Subnet": f"{EC2}:subnet/subnet-0a"},
        ),
        ("job", "ec2:DescribeSubnets", "*", {}),
    ],
)  # fmt: skip
def test_what_a_vpc_a_key_and_secrets_need_is_allowed(document, action, resource, context):
    assert allowing(policies(FULL)[document], action, resource, context)


def test_t99_a_star_stands_only_where_a_service_knows_no_resources():
    found = policies(FULL)
    every = [one for part in ("submitter", "job") for one in found[part]["Statement"]]
    stars = {action for one in every if one["Resource"] == "*" for action in one["Action"]}
    assert {one for one in stars if not one.startswith("ec2:Describe")} == {
        "cloudwatch:PutMetricData", "ecr:GetAuthorizationToken", "sagemaker:ListTrainingJobs",
    }  # fmt: skip
    assert not [action for one in every for action in one["Action"] if "*" in action]
    names = [one["Sid"] for one in found["job"]["Statement"]]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("region", "partition", "suffix"),
    [
        ("eu-north-1", "aws", "amazonaws.com"),
        ("cn-north-1", "aws-cn", "amazonaws.com.cn"),
        ("us-gov-west-1", "aws-us-gov", "amazonaws.com"),
    ],
)
def test_arns_are_those_of_the_regions_partition(region, partition, suffix):
    key = f"arn:{partition}:kms:{region}:{NUMBER}:key/1"
    given = Account(
        account=NUMBER, region=region, store="s3://b/x", role="r", subnets=["subnet-1"],
        security_groups=["sg-1"], kms_key=key,
    )  # fmt: skip
    text = json.dumps(policies(given))
    arns = re.findall(r'"(arn:[^"]*)"', text)
    assert len(arns) > 12
    assert all(arn.startswith(f"arn:{partition}:") for arn in arns), arns
    assert f'"s3.{region}.{suffix}"' in text


def test_faults_of_a_vpc_a_key_and_secrets_are_told_together():
    wrong = Account(
        account=NUMBER, region=REGION, store="s3://b/x", role="r", repository="A b",
        secrets=["hf"], subnets=["x"], kms_key="alias/key",
    )  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        policies(wrong)
    flags = [one.where for one in caught.value.complaints]
    assert flags == [
        "--repository", "--secret", "--subnet", "--kms-key", "--subnet, --security-group",
    ]  # fmt: skip


def test_a_region_of_no_partition_is_refused():
    with pytest.raises(ConfigError, match="'xx-none-1' is no region"):
        policies(Account(account=NUMBER, region="xx-none-1", store="s3://b/x", role="r"))
