"""The job's image: a Dockerfile for this environment, built and pushed.

One base, known by its content, whose own torch is kept, so that there is one set of libraries for
the GPU; our packages as wheels; every version said; other harnesses in an environment apart.
"""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from rlvr_core.api import ConfigError
from rlvr_sagemaker import pins
from rlvr_sagemaker.aws import call, client, code_of
from rlvr_sagemaker.containers import ask, by_content, do, engine

BASE = "python:3.11.13-slim-bookworm"
"""Base image; ``--base`` names another one."""

_INSIDE = "/opt/rlvr"

_DOCKERFILE = """\
# Written by rlvr: rlvr sagemaker image FOLDER
# {named}
FROM {base}

# a compiler, which triton and torch.compile call at run time
RUN apt-get update \\
 && apt-get install --yes --no-install-recommends build-essential git libnuma1 \\
 && rm -rf /var/lib/apt/lists/*

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \\
    PIP_BREAK_SYSTEM_PACKAGES=1 PYTHONUNBUFFERED=1

# what the base has of its own, torch and vLLM say, no version of ours may change
COPY keep.py constraints.txt /opt/rlvr/
RUN python3 /opt/rlvr/keep.py /opt/rlvr/constraints.txt > /opt/rlvr/pins.txt

# torch first and alone, so that no later requirement can choose another build of it
RUN python3 -m pip install -c /opt/rlvr/pins.txt torch
COPY requirements.txt /opt/rlvr/
COPY wheels /opt/rlvr/wheels
RUN python3 -m pip install -c /opt/rlvr/pins.txt --find-links /opt/rlvr/wheels \\
    -r /opt/rlvr/requirements.txt && python3 -m pip check

# other evaluation harnesses, with the torch above; what they bring besides stays out of the runs
COPY harness.txt /opt/rlvr/
RUN python3 /opt/rlvr/keep.py /opt/rlvr/harness.txt > /opt/rlvr/harness-pins.txt \\
 && python3 -m venv --system-site-packages /opt/harness \\
 && /opt/harness/bin/python -m pip install -c /opt/rlvr/harness-pins.txt lm_eval

# what was chosen, and that our packages work
RUN python3 -m pip freeze --all > /opt/rlvr/installed.txt \\
 && /opt/harness/bin/python -m pip freeze --all --local > /opt/rlvr/harness-installed.txt \\
 && dpkg-query --show > /opt/rlvr/debian.txt \\
 && python3 -m rlvr_core.cli.main plugins list

ENTRYPOINT ["python3", "-m", "rlvr_sagemaker.job"]
"""

_ECR = re.compile(
    r"^(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/"
    r"(?P<name>[a-z0-9._/-]+)(?::(?P<tag>[\w.-]+))?$"
)


def context(folder: Path, base: str = BASE, vllm: bool = True, named: str = "") -> list[str]:
    """Write everything ``docker build`` needs.

    Args:
        folder: Where; made if missing.
        base: Image to begin with.
        vllm: Whether the image is to have vLLM of its own.
        named: The name that ``base`` had before it was looked up.

    Returns:
        The requirements that go into it.

    Raises:
        MachineError: If a package of ours cannot be built.
        ConfigError: If nothing here says which vLLM.
    """
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for old in wheels.glob("*.whl"):
        old.unlink()
    requirements = pins.requirements(wheels, f"{_INSIDE}/wheels", vllm)
    (wheels / ".keep").touch()  # a folder without files is none to git and docker
    versions = sorted(pins.constraints(vllm).items())
    texts = {
        "Dockerfile": _DOCKERFILE.format(base=base, named=named or base),
        "requirements.txt": "".join(f"{requirement}\n" for requirement in requirements),
        "constraints.txt": "".join(f"{name}=={version}\n" for name, version in versions),
        "harness.txt": pins.text_of("harness.txt"),
        "keep.py": pins.text_of("keep.py"),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return requirements


def build(
    image: str,
    *,
    push: bool,
    say: Callable[[str], None],
    base: str = BASE,
    vllm: bool = True,
    folder: Path | None = None,
) -> None:
    """Build an image from this environment, and push it.

    Raises:
        MachineError: If docker or podman fails.
        ConfigError: If it is to be pushed and is not an image of ECR, or if vLLM is wanted and not
            installed here.
    """
    if push and not _ECR.match(image):
        raise ConfigError(
            f"'{image}' is not an image of ECR",
            where="--image",
            remedy="it looks like <account>.dkr.ecr.<region>.amazonaws.com/<name>:<tag>",
        )
    if vllm:
        pins.vllm_here()  # refused before a base is fetched
    tool = engine()
    with tempfile.TemporaryDirectory() as temporary:
        where = folder or Path(temporary)
        known = _known(tool, base, say)
        requirements = context(where, known, vllm, base)
        say(f"building {image} from {known} with {', '.join(requirements)}")
        do(tool, "build", "--platform", "linux/amd64", "--tag", image, str(where))
    if push:
        _push(tool, image, say)


def _known(tool: str, base: str, say: Callable[[str], None]) -> str:
    """The base by its content: a tag may name another image tomorrow."""
    if ask(tool, "image", "inspect", base) is None:
        do(tool, "pull", "--platform", "linux/amd64", base)
    content = by_content(tool, base)
    if content is None:
        say(f"'{base}' was made on this machine and pushed nowhere: no other can build this image")
    return content or base


def _push(tool: str, image: str, say: Callable[[str], None]) -> None:
    match = _ECR.match(image)
    assert match is not None
    ecr = client("ecr", match["region"])

    def make() -> None:
        try:
            ecr.create_repository(
                repositoryName=match["name"],
                imageScanningConfiguration={"scanOnPush": True},
            )
        except Exception as error:
            if code_of(error) != "RepositoryAlreadyExistsException":
                raise
        else:
            say(f"made the repository {match['name']}")

    call(f"making the repository {match['name']}", make)
    answer = call("logging in to ECR", lambda: ecr.get_authorization_token())
    token = answer["authorizationData"][0]["authorizationToken"]
    user, _, password = base64.b64decode(token).decode().partition(":")
    registry = image.partition("/")[0]
    do(tool, "login", "--username", user, "--password-stdin", registry, text=password)
    do(tool, "push", image)
    content = by_content(tool, image)
    if content is not None:
        say(f"pushed; by its content it is {content}")
