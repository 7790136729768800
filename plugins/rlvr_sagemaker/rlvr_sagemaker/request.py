"""The request that creates a training job, as plain data."""

from __future__ import annotations

from typing import Any

from rlvr_sagemaker.checks import LONGEST
from rlvr_sagemaker.options import Options, pairs
from rlvr_sagemaker.place import Place
from rlvr_sagemaker.request_options import with_options

CHANNEL = "code"
"""Name of the input that has the job's files: ``/opt/ml/input/data/code``."""

DESCRIPTION = "rlvr-job.json"
"""File in it that says what to do."""


def training_job(config: Options, job: str, place: Place) -> dict[str, Any]:
    """Arguments of ``CreateTrainingJob``.

    Args:
        config: The options, checked.
        job: Its name.
        place: Where on S3 it keeps its things.

    Raises:
        ConfigError: If SageMaker would not take it.
    """
    request: dict[str, Any] = {
        "TrainingJobName": job,
        "AlgorithmSpecification": {
            "TrainingImage": config.image_uri(job),
            "TrainingInputMode": "File",
        },
        "RoleArn": config.needed("role"),
        "InputDataConfig": [
            {
                "ChannelName": CHANNEL,
                "InputMode": "File",
                "DataSource": {
                    "S3DataSource": {
                        "S3DataType": "S3Prefix",
                        "S3Uri": f"{place / CHANNEL}/",
                        "S3DataDistributionType": "FullyReplicated",
                    }
                },
            }
        ],
        "OutputDataConfig": {"S3OutputPath": f"{place / 'output'}/"},
        "ResourceConfig": {
            "InstanceType": config.needed("instance_type"),
            "InstanceCount": config.instance_count,
            "VolumeSizeInGB": config.volume_gb,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": config.max_runtime},
        "RetryStrategy": {"MaximumRetryAttempts": 3},
        "HyperParameters": {"description": DESCRIPTION},
        "Environment": {"PYTHONUNBUFFERED": "1", **pairs(config.env)},
    }
    if config.kms_key:
        request["OutputDataConfig"]["KmsKeyId"] = config.kms_key
    if config.spot:
        request["EnableManagedSpotTraining"] = True
        longest = config.max_wait or min(2 * config.max_runtime, LONGEST)
        request["StoppingCondition"]["MaxWaitTimeInSeconds"] = longest
    if config.subnets:
        request["VpcConfig"] = {
            "Subnets": config.subnets,
            "SecurityGroupIds": config.security_groups,
        }
    if config.tags:
        named = pairs(config.tags)
        request["Tags"] = [{"Key": name, "Value": value} for name, value in named.items()]
    return with_options(request, config.request)
