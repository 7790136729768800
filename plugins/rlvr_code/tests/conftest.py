"""One sandbox of each kind that this machine has."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from plugins.rlvr_code.tests import image as images
from rlvr_code.sandbox import Sandbox
from rlvr_code.sandbox.backends import missing_for
from rlvr_code.sandbox.launch import Plan


def _daemon(tool: str) -> bool:
    """Whether a container tool is there and answers."""
    if shutil.which(tool) is None:
        return False
    return subprocess.run([tool, "info"], capture_output=True, timeout=60).returncode == 0


CONTAINERS = ("podman", "docker")
VARIANTS = ["bwrap", "namespaces", "landlock", *filter(_daemon, CONTAINERS)]


def interpreter(variant: str) -> str | None:
    """Landlock alone needs one that everybody can read; the tests' own may be in root's home."""
    system = Path("/usr/bin/python3")
    own = Plan.make("landlock", None)
    if variant == "landlock" and missing_for(own) and system.exists():
        return str(system)
    return None


@pytest.fixture(scope="session")
def image():
    """Makes the image for a container tool; its name."""
    made = []

    def get(tool):
        if tool not in made:
            made.append(tool)
            if missing := images.make(tool):
                pytest.skip(f"{tool}: {missing}")
        return images.NAME

    yield get
    for tool in made:
        images.remove(tool)


@pytest.fixture(scope="session", params=VARIANTS)
def variant(request, image):
    """The name of a sandbox that works here."""
    rest = {"image": image(request.param)} if request.param in CONTAINERS else {}
    missing = missing_for(Plan.make(request.param, interpreter(request.param), **rest))
    if missing:
        pytest.skip(f"{request.param}: {missing}")
    return request.param


@pytest.fixture(scope="session")
def options(variant):
    """What else a sandbox of that kind is made with."""
    if variant in CONTAINERS:
        return {"image": images.NAME}
    return {"python": interpreter(variant)}


@pytest.fixture(scope="session")
def interpreter_for():
    """The interpreter for a sandbox by its name; None for the tests' own."""
    return interpreter


@pytest.fixture(scope="session")
def box(variant, options):
    """A sandbox of that kind."""
    with Sandbox(variant, **options) as sandbox:
        yield sandbox
