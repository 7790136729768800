"""Clients of Amazon's services, and what their errors mean to a user.

Credentials, region and endpoint come from where every AWS tool takes them: environment, profile,
the role of a machine. Nothing of it is ever an option here.
"""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from rlvr_core.api import MachineError, RefusedError

T = TypeVar("T")

TIMEOUT = "RLVR_AWS_TIMEOUT"
"""Environment variable: seconds to wait for a byte of an answer."""

_ATTEMPTS = 6

_AGAIN_CODES = (
    "429 500 502 503 504 BadDigest ConditionalRequestConflict IncompleteBody InternalError "
    "InternalFailure RequestTimeout RequestTimeTooSkewed ServiceUnavailable SlowDown "
    "Throttling ThrottlingException TooManyRequestsException XAmzContentSHA256Mismatch"
)
_AGAIN = {*_AGAIN_CODES.split()}
"""Codes that may be gone at the next attempt; some say that the upload was altered on its way."""
_UNMET = {"412", "PreconditionFailed", "NoSuchUpload"}
_GONE = {"404", "NoSuchKey", "NotFound"}
_REFUSED = {"403", "AccessDenied", "AccessDeniedException", "Forbidden", "UnauthorizedOperation"}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId"}
_FOR_GOOD_CODES = (
    "AccountProblem AllAccessDisabled AuthorizationHeaderMalformed InvalidAccessKeyId "
    "InvalidBucketName KMS.DisabledException KMS.NotFoundException MethodNotAllowed "
    "NoSuchBucket NotSignedUp PermanentRedirect SignatureDoesNotMatch"
)
_FOR_GOOD = _REFUSED | _EXPIRED | {*_FOR_GOOD_CODES.split()}
"""Codes that mean that no later attempt of this process succeeds."""


class TornError(Exception):
    """The received data differ from the sent data."""


@functools.lru_cache(maxsize=32)
def client(service: str, region: str | None = None) -> Any:
    """A client, which may be used from several threads.

    Args:
        service: Its name.
        region: Where; else what the environment or the profile says.

    Raises:
        MachineError: If no region is known.
    """
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    config = Config(
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        connect_timeout=10,
        read_timeout=float(os.environ.get(TIMEOUT, "60")),
        max_pool_connections=64,
    )
    try:
        session = boto3.session.Session()
        where = region or region_here()
        return session.client(service, region_name=where, config=config)
    except (BotoCoreError, ValueError) as error:
        raise _explained(error, service) from error


def region_here() -> str | None:
    """The region of the environment, by either of its names, or of the profile."""
    import boto3

    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):  # boto3 itself reads the second alone
        if os.environ.get(name):
            return os.environ[name]
    region: str | None = boto3.session.Session().region_name
    return region


def call(what: str, act: Callable[[], T]) -> T:
    """Call a service, again after a passing failure.

    botocore tries every request several times; this is about what it lets through: answers that
    break off, transfers of several requests, and outages that last longer.

    Args:
        what: What is done, for messages.
        act: Does it; may be called several times.

    Raises:
        MachineError: If it does not work.
    """
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

    again = Retrying(
        retry=retry_if_exception(passing),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.25, max=15),
        reraise=True,
    )
    try:
        result: T = again(act)
        return result
    except (MachineError, FileNotFoundError, KeyboardInterrupt):
        raise
    except Exception as error:
        if code_of(error) is None and not passing(error) and not _ours(error):
            raise
        raise _explained(error, what) from error


def passing(error: BaseException) -> bool:
    """Whether an error may be gone at the next attempt."""
    import boto3.exceptions
    import botocore.exceptions as boto
    import urllib3.exceptions
    from botocore.parsers import ResponseParserError

    if isinstance(error, boto3.exceptions.S3UploadFailedError) and error.__context__:
        return passing(error.__context__)
    code = code_of(error)
    if code is not None:
        return code in _AGAIN
    return _unreadable(error) or isinstance(
        error,
        TornError
        | boto.HTTPClientError
        | boto.IncompleteReadError
        | boto.FlexibleChecksumError
        | boto3.exceptions.RetriesExceededError
        | boto3.exceptions.S3UploadFailedError
        | ResponseParserError
        | urllib3.exceptions.HTTPError
        | ConnectionError
        | TimeoutError,
    )


def _unreadable(error: BaseException) -> bool:
    """Whether an answer has a malformed time or number: it was altered on its way.

    botocore's parser names bad XML in an exception of its own, and lets bad values through as
    ``ValueError``.
    """
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return isinstance(error, ValueError) and any(
        frame.f_globals.get("__name__") == "botocore.parsers" for frame in frames
    )


def code_of(error: BaseException) -> str | None:
    """The code a service answered with; None if it did not answer."""
    from botocore.exceptions import ClientError

    if not isinstance(error, ClientError):
        return None
    return str(error.response.get("Error", {}).get("Code", ""))


def is_gone(error: BaseException) -> bool:
    """Whether a service says that there is no such thing."""
    return code_of(error) in _GONE


def is_refused(error: BaseException) -> bool:
    """Whether a service says that this is not allowed."""
    return code_of(error) in _REFUSED


def is_unmet(error: BaseException) -> bool:
    """Whether the condition of a write does not hold, or its upload is over already."""
    return code_of(error) in _UNMET


def _ours(error: BaseException) -> bool:
    import boto3.exceptions
    from botocore.exceptions import BotoCoreError

    return isinstance(error, BotoCoreError | boto3.exceptions.Boto3Error)


def _explained(error: BaseException, what: str) -> MachineError:
    from botocore import exceptions as boto

    first = " ".join(str(error).split()) or type(error).__name__
    remedy: str | tuple[str, ...] = "check the network, and AWS's health page"
    code = code_of(error)
    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError):
        remedy = "log in first: aws configure, aws sso login, or AWS_PROFILE"
    elif isinstance(error, boto.NoRegionError):
        remedy = "say which region: --region, AWS_REGION, or a profile"
    elif code == "RequestTimeTooSkewed":
        remedy = "the clock of this machine is wrong: set it, by NTP for instance"
    elif code in _REFUSED:
        remedy = "the role or user lacks a permission: rlvr sagemaker iam prints what is needed"
    elif code in _EXPIRED:
        remedy = "the credentials have expired: log in again"
    elif code == "ResourceLimitExceeded":
        remedy = "ask for a larger quota of that machine, or take another kind: rlvr docs sagemaker"
    elif code == "NoSuchBucket":
        remedy = "make the bucket first; a bucket's name holds for all regions and accounts"
    elif code is not None and code not in _AGAIN:
        remedy = ""
    unknown = isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError)
    kind = RefusedError if code in _FOR_GOOD or unknown else MachineError
    return kind(f"{what}: {first}", remedy=remedy)
