"""``--request KEY=VALUE``, and what an account says before a launch."""

import pytest

from rlvr_core.api import ConfigError, LaunchRequest
from rlvr_sagemaker.checks import LONGEST
from rlvr_sagemaker.launcher import SageMakerLauncher
from rlvr_sagemaker.options import Options
from rlvr_sagemaker.place import Place
from rlvr_sagemaker.request import training_job
from rlvr_sagemaker.request_options import with_options
from tests.support.tables import table

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


@pytest.mark.parametrize(("word", "said"), table(__file__, "refused"))
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
        with_options(
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
    found = plan(
        tmp_path, region="eu-north-1", request=[f"ResourceConfig.TrainingPlanArn={PLAN}"]
    ).details
    assert found["request"]["ResourceConfig"]["TrainingPlanArn"] == PLAN
    create = {"who": "submitter", "actions": ["sagemaker:CreateTrainingJob"], "resources": [PLAN]}
    assert create in found["permissions"]
