"""``rlvr sagemaker …``: what an account needs once."""

from __future__ import annotations

import json
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import click

from rlvr_core.api import ConfigError


@click.command()
@click.option("--account", required=True, metavar="NUMBER", help="The account's number.")
@click.option("--region", required=True, help="Region of jobs and images.")
@click.option("--store", required=True, metavar="s3://…", help="Where jobs keep their things.")
@click.option("--role", required=True, metavar="NAME", help="Name of the role that jobs run as.")
@click.option("--repository", default="rlvr", show_default=True, help="Of the images, in ECR.")
@click.option("--secret", "secrets", multiple=True, metavar="ARN", help="One that jobs fetch.")
@click.option("--subnet", "subnets", multiple=True, metavar="ID", help="Of the jobs' VPC.")
@click.option("--security-group", "security_groups", multiple=True, metavar="ID", help="Of it.")
@click.option("--kms-key", metavar="ARN", help="Key of the bucket and the secrets.")
@click.option(
    "--part",
    type=click.Choice(["submitter", "trust", "job"]),
    help="Print only this document, as `aws iam` takes it.",
)
def iam(part: str | None, **given: Any) -> None:
    """Print the IAM policies: of who submits, who may take on the job's role, and what it may."""
    from rlvr_sagemaker.iam import Account, policies

    documents = policies(Account(**given))
    click.echo(json.dumps(documents[part] if part else documents, indent=2))


@click.command()
def cluster() -> None:
    """Print a CloudFormation template: some machines with GPUs, close together, one file system."""
    text = resources.files("rlvr_sagemaker").joinpath("cluster.yaml").read_text("utf-8")
    click.echo(text, nl=False)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--base", metavar="IMAGE", help="What it begins with, as NAME@sha256:…; else our own."
)
@click.option("--no-vllm", is_flag=True, help="Leave vLLM to the base, or out.")
@click.option("--build", "tag", metavar="IMAGE", help="Build it under this name.")
@click.option("--push", is_flag=True, help="Push it to ECR; its repository is made if need be.")
def image(folder: Path, base: str | None, no_vllm: bool, tag: str | None, push: bool) -> None:
    """Write Dockerfile, wheels and pins of this environment to FOLDER; build and push on demand."""
    from rlvr_sagemaker.image import BASE, build, context

    if push and tag is None:
        raise ConfigError("push what?", remedy="name the image: --build IMAGE")

    def say(text: str) -> None:
        click.echo(text, err=True)

    if tag is None:
        context(folder, base or BASE, not no_vllm)
    else:
        build(
            tag,
            push=push,
            say=say,
            base=base or BASE,
            vllm=not no_vllm,
            folder=folder,
        )
    click.echo(str(folder))


@click.command()
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.argument("uri")
def put(source: Path, uri: str) -> None:
    """Copy a file to URI, or what is in a folder to below it; what is there already stays.

    For models and data that many jobs use: name them in configs by the URI.
    """
    from concurrent.futures import ThreadPoolExecutor

    from rlvr_cluster.jobs.staging import walk
    from rlvr_sagemaker.place import Place
    from rlvr_sagemaker.store import S3Store, differs

    place = Place.parse(uri)
    if source.is_file():
        store, files = S3Store(Place(place.bucket, "")), {place.key: source}
    else:
        store = S3Store(place)
        files = {path.relative_to(source).as_posix(): path for path in walk(source)}

    def copy(key: str) -> bool:
        changed = differs(store, key, files[key])
        if changed:
            store.put(files[key], key)
        return changed

    with ThreadPoolExecutor(8) as pool:
        done = sum(pool.map(copy, files))
    sys.stderr.write(f"{done} of {len(files)} files copied, the others were there\n")
    click.echo(str(place))
