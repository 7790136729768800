"""Records of a job in the job book, so that another job can continue its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlvr_sagemaker.options import Options, pairs

if TYPE_CHECKING:
    from rlvr_cluster.jobs.job_book import Job

_OF_THE_COMMAND = {"job_name", "wait", "poll", "build"}
"""Options of one submission only, not of the job."""


def details_to_keep(config: Options, request: Mapping[str, Any]) -> dict[str, Any]:
    """Details of a job in the book.

    What came from the environment is written out, since that may be another one by then. Secrets
    are there by their ARNs alone, apart from the options: the book takes out whatever stands
    beside a name such as HF_TOKEN.

    Args:
        config: Its options, checked.
        request: Arguments of ``CreateTrainingJob``.
    """
    options = config.model_dump(
        mode="json", exclude_none=True, exclude={*_OF_THE_COMMAND, "secrets"}
    )
    options |= {
        "store": config.needed("store"),
        "role": request["RoleArn"],
        "image": request["AlgorithmSpecification"]["TrainingImage"],
        "instance_type": config.needed("instance_type"),
    }
    arns = [list(pair) for pair in pairs(config.secrets).items()]
    return {"options": options, "secret_arns": arns}


def options_of(job: Job, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a job that goes on with the run of ``job``.

    An option that is given takes the place of the job's, a list as a whole. Two follow from
    others: an image that is built anew is not the job's, and without ``spot`` nothing waits.
    """
    details: Mapping[str, Any] = job.details
    options: dict[str, Any] = {**job.options, **details.get("options", {})}
    arns = details.get("secret_arns")
    if arns:
        options["secrets"] = [f"{name}={arn}" for name, arn in arns]
    if given.get("build"):
        options.pop("image", None)
    if given.get("spot") is False:
        options.pop("max_wait", None)
    return options | dict(given)
