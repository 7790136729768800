"""Registers what rlvr-sagemaker offers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_core.api import Registrar, hookimpl

if TYPE_CHECKING:
    from rlvr_core.api import Store


@hookimpl
def open_uri(uri: str, cache: Path) -> Path | None:
    """``s3://…`` as a local path."""
    from rlvr_sagemaker.place import is_s3

    if not is_s3(uri):
        return None
    from rlvr_sagemaker.cache import Cache

    return Cache(cache / "s3").path(uri)


@hookimpl
def open_store(uri: str) -> Store | None:
    """``s3://…`` as a store."""
    from rlvr_sagemaker.place import Place, is_s3

    if not is_s3(uri):
        return None
    from rlvr_sagemaker.store import S3Store

    return S3Store(Place.parse(uri))


@hookimpl
def register_launchers(registrar: Registrar) -> None:
    """Add the launcher."""
    add = registrar.add
    launcher = "rlvr_sagemaker.launcher:SageMakerLauncher"
    add("sagemaker", launcher, summary="A training job on Amazon SageMaker.")


@hookimpl
def register_commands(registrar: Registrar) -> None:
    """Add ``rlvr sagemaker …``."""
    add = registrar.add
    add("iam", "rlvr_sagemaker.commands:iam", summary="Print the IAM policies it needs.")
    add("cluster", "rlvr_sagemaker.commands:cluster", summary="Print a template for a cluster.")
    add("image", "rlvr_sagemaker.commands:image", summary="Write, build, push the job image.")
    add("put", "rlvr_sagemaker.commands:put", summary="Copy a file or folder to S3.")
