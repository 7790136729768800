"""``--request KEY=VALUE``, and what an account says before a launch."""

import json

import boto3
import pytest
from botocore.stub import Stubber

from rlvr_core.api import ConfigError, LaunchRequest
from rlvr_sagemaker import ahead, aws
from rlvr_sagemaker.launcher import SageMakerLauncher
from rlvr_sagemaker.more import with_more
from rlvr_sagemaker.names import LONGEST
from rlvr_sagemaker.options import Options
from rlvr_sagemaker.place import Place
from rlvr_sagemaker.request import training_job

ACCOUNT = {
    "role": "arn:aws:iam::123456789012:role/rlvr-job",
    "image": "123456789012.dkr.ecr.eu-north-1.amazonaws.com/rlvr:1",
    "instance_type": "ml.p4de.24xlarge",
}
PLAN = "arn:aws:sagemaker:eu-north-1:123456789012:training-plan/mine"


def request(*words, **options):
    config = Options(store="s3://some-bucket/x", request=list(words), **(ACCOUNT | options))
    return training_job(config, "job", Place("some-bucket", "x/jobs/job"))


def test_what_the_service_takes_is_put_into_the_request():
    plain = request()
    found = request(
        "ResourceConfig.KeepAlivePeriodInSeconds=1800",
        f"ResourceConfig.TrainingPlanArn={PLAN}",
        "EnableInterContainerTrafficEncryption=true",
        "InfraCheckConfig={EnableInfraCheck: true}",
    )
    resources = {
        **plain["ResourceConfig"],
        "KeepAlivePeriodInSeconds": 1800,
        "TrainingPlanArn": PLAN,
    }
    assert found == plain | {
        "ResourceConfig": resources,
        "EnableInterContainerTrafficEncryption": True,
        "InfraCheckConfig": {"EnableInfraCheck": True},
    }


def test_groups_of_machines_take_the_place_of_one_kind():
    groups = '[{InstanceType: ml.p4d.24xlarge, InstanceCount: 2, InstanceGroupName: "a"}]'
    resources = request(f"ResourceConfig.InstanceGroups={groups}")["ResourceConfig"]
    assert set(resources) == {"VolumeSizeInGB", "InstanceGroups"}
    assert resources["InstanceGroups"][0]["InstanceCount"] == 2


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("ResourceConfig.KeepAlivePeriod=60", "KeepAlivePeriodInSeconds"),
        ("EnableInterContainerEncryption=true", "EnableInterContainerTrafficEncryption"),
        ("ResourceConfig.KeepAlivePeriodInSeconds=21601", "0 to 21600, not 21601"),
        ("ResourceConfig.KeepAlivePeriodInSeconds=soon", "type integer, not 'soon'"),
        ("EnableNetworkIsolation=1", "type boolean, not 1"),
        ("ResourceConfig.InstanceGroups=[{InstanceType: ml.p4d.24xlarg}]", "ml.p4d.24xlarge"),
        ("RoleArn=arn:aws:iam::1:role/x", "--role"),
        ("Environment.A=b", "--env"),
        ("CheckpointConfig.S3Uri=s3://a/b", "--store"),
        ("InfraCheckConfig=true", "type structure"),
        ("nonsense", "nonsense"),
    ],
)
def test_what_the_service_does_not_take_is_said_before_it_is_asked(word, said):
    with pytest.raises(ConfigError) as refused:
        request(word)
    assert said in str(refused.value)
    assert "--request" in str(refused.value)


def test_without_it_a_kind_of_machine_newer_than_botocore_is_not_refused():
    found = request(instance_type="ml.p9.48xlarge")
    assert found["ResourceConfig"]["InstanceType"] == "ml.p9.48xlarge"


def test_every_fault_is_said_at_once():
    with pytest.raises(ConfigError) as refused:
        with_more(
            request(),
            ["RoleArn=arn:aws:iam::123456789012:role/x", "A=1", "EnableNetworkIsolation=no way"],
        )
    assert len(refused.value.complaints) == 3


def test_waiting_for_spare_machines_stays_within_what_aws_takes():
    stop = request(spot=True, max_runtime=20 * 86400)["StoppingCondition"]
    assert stop["MaxWaitTimeInSeconds"] == LONGEST == 28 * 86400
    stop = request(spot=True, max_runtime=86400)["StoppingCondition"]
    assert stop["MaxWaitTimeInSeconds"] == 2 * 86400


def plan(tmp_path, **options):
    config = tmp_path / "train.yaml"
    config.write_text("train: {steps: 2}\n")
    launcher = SageMakerLauncher(Options(store="s3://some-bucket/x", **ACCOUNT | options))
    return launcher.plan(LaunchRequest(("run", str(config)), "demo", files=(config,)))


def test_a_plan_says_how_many_processes_train_and_how_they_meet(tmp_path):
    two = "\n".join(plan(tmp_path, instance_count=2, processes=8).lines)
    assert "16 processes train, 8 on each machine" in two
    assert "NCCL goes over TCP" in two
    one = "\n".join(plan(tmp_path).lines)
    assert "a process trains on each GPU" in one
    assert "NCCL" not in one


def test_the_exact_request_and_its_permissions_are_in_the_plan(tmp_path):
    found = plan(tmp_path, request=[f"ResourceConfig.TrainingPlanArn={PLAN}"]).details
    assert found["request"]["ResourceConfig"]["TrainingPlanArn"] == PLAN
    create = {"who": "submitter", "actions": ["sagemaker:CreateTrainingJob"], "resources": [PLAN]}
    assert create in found["permissions"]


def details(uri="ubuntu:24.04", count=2, **more):
    machines = {"InstanceType": "ml.p4de.24xlarge", "InstanceCount": count}
    asked = {"ResourceConfig": machines, "AlgorithmSpecification": {"TrainingImage": uri}, **more}
    return {"request": asked, "region": "eu-north-1", "options": {}}


def test_a_kind_of_machine_that_there_is_not_is_told(cloud):
    asked = details()
    asked["request"]["ResourceConfig"]["InstanceType"] = "ml.p4de.25xlarge"
    name, good, text = next(iter(ahead.findings(asked)))
    assert (name, good) == ("machines", False)
    assert "did you mean: ml.p4de.24xlarge" in text


def quotas(**values):
    return {"Quotas": [{"QuotaName": name, "Value": value} for name, value in values.items()]}


@pytest.mark.parametrize(
    ("more", "verdict", "said"),
    [
        ({"count": 1}, True, "1, and the job takes 1"),
        ({"count": 2}, False, "1, and the job takes 2"),
        ({"count": 2, "EnableManagedSpotTraining": True}, True, "spot training job usage: 3"),
    ],
)
def test_the_quota_of_a_kind_of_machine_is_looked_up(cloud, monkeypatch, more, verdict, said):
    there = boto3.client("service-quotas", region_name="eu-north-1")
    monkeypatch.setattr(ahead, "client", lambda *_: there)
    pages = [
        quotas(**{"ml.p4d.24xlarge for training job usage": 9.0}) | {"NextToken": "more"},
        quotas(
            **{
                "ml.p4de.24xlarge for endpoint usage": 8.0,
                "ml.p4de.24xlarge for training job usage": 1.0,
                "ml.p4de.24xlarge for spot training job usage": 3.0,
            }
        ),
    ]
    with Stubber(there) as stub:
        stub.add_response("list_service_quotas", pages[0], {"ServiceCode": "sagemaker"})
        stub.add_response(
            "list_service_quotas", pages[1], {"ServiceCode": "sagemaker", "NextToken": "more"}
        )
        name, good, text = next(iter(ahead.findings(details(**more))))
    assert (name, good) == ("quota", verdict)
    assert said in text


def test_a_quota_that_nobody_may_read_is_unknown(cloud, monkeypatch):
    there = boto3.client("service-quotas", region_name="eu-north-1")
    monkeypatch.setattr(ahead, "client", lambda *_: there)
    with Stubber(there) as stub:
        stub.add_client_error("list_service_quotas", "AccessDeniedException", "no", 403)
        name, good, text = next(iter(ahead.findings(details())))
    assert (name, good) == ("quota", None)
    assert "AccessDenied" in text


def test_an_image_is_looked_for_in_ecr(cloud):
    account, there = "123456789012", aws.client("ecr", "eu-north-1")
    there.create_repository(repositoryName=cloud.bucket, registryId=account)
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "size": 7023,
            "digest": "sha256:" + "a" * 64,
        },
        "layers": [],
    }
    there.put_image(
        registryId=account,
        repositoryName=cloud.bucket,
        imageManifest=json.dumps(manifest),
        imageTag="1",
    )
    host = f"{account}.dkr.ecr.eu-north-1.amazonaws.com"

    def verdict(uri):
        return [*ahead.findings(details(uri))][-1]

    assert verdict(f"{host}/{cloud.bucket}:1")[:2] == ("ECR", True)
    assert verdict(f"{host}/{cloud.bucket}:2")[:2] == ("ECR", False)
    assert verdict(f"{host}/other:1")[:2] == ("ECR", False)
    assert verdict("ubuntu:24.04")[:2] == ("ECR", None)
