"""Collects the wheels that a machine with a GPU, but no network, lacks for ``make gpu``.

    python tools/gpu_wheels.py --has machine.txt     # machine.txt: `pip list` there
    python tools/gpu_wheels.py --python 3.13 --platform manylinux_2_28_x86_64

Starting from what the project's metadata asks for, each wheel is fetched by pip at its pin, and
what its own metadata asks for on that machine comes next, unless the machine brings it. torch and
what comes with it are never fetched: a machine that is to compute on its GPU has its own build.
"""

from __future__ import annotations

import argparse
import email
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECTS = (ROOT, ROOT / "plugins" / "rlvr_math")  # the kit trains on math/arithmetic
MIB = 2**20
# imported where a run reads parquet files or the Hub alone, which neither the kit nor the tests
# marked gpu do; with pandas they are 65 MiB
LEFT_OUT = ("datasets", "pyarrow")
NEVER = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)$")
# the options of the tests ask for it
TESTS_NEED = ("pytest-timeout",)


class RefusedError(Exception):
    """There is no set of wheels, and why."""


@dataclass(frozen=True, slots=True)
class Target:
    """The machine that the wheels are for.

    Attributes:
        python: Its Python, as in "3.12".
        platforms: Tags of its platform, of wheels that it takes.
        has: What it brings: version by name, None for one that is not known.
    """

    python: str
    platforms: tuple[str, ...]
    has: Mapping[str, str | None]

    def asks(self, requirement: Requirement, extras: Iterable[str] = ()) -> bool:
        """Whether the requirement's marker holds there, for these extras of who asks."""
        if requirement.marker is None:
            return True
        environment = {
            **default_environment(),
            "python_version": self.python,
            "python_full_version": f"{self.python}.3",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "os_name": "posix",
            "sys_platform": "linux",
            "platform_system": "Linux",
            "platform_machine": re.sub(r"^(manylinux_\d+_\d+|[^_]+)_", "", self.platforms[0]),
        }
        marker = requirement.marker
        return any(marker.evaluate({**environment, "extra": extra}) for extra in ("", *extras))

    def brings(self, requirement: Requirement) -> bool:
        """Whether it has the package in a version that will do; one without a version does."""
        name = canonicalize_name(requirement.name)
        if name not in self.has:
            return False
        version = self.has[name]
        return version is None or requirement.specifier.contains(version, prereleases=True)


def packages_of(text: str) -> dict[str, str | None]:
    """The packages of ``pip list``, ``pip freeze`` or a list of names: version by name."""
    found: dict[str, str | None] = {}
    for line in text.splitlines():
        words = line.split("#")[0].replace("==", " ").split()
        if not words or words[0] == "Package" or set(words[0]) == {"-"} or words[0][0] == "-":
            continue
        version = words[1] if len(words) > 1 and words[1][0].isdigit() else None
        found[canonicalize_name(words[0])] = version
    return found


def asked_for(folders: Iterable[Path]) -> list[Requirement]:
    """What the projects ask for: to be built, to run, and of ``testing`` to be tested."""
    found: list[str] = list(TESTS_NEED)
    own = set()
    for folder in folders:
        settings = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        project = settings["project"]
        own.add(canonicalize_name(project["name"]))
        found += settings["build-system"]["requires"] + project["dependencies"]
        found += project.get("optional-dependencies", {}).get("testing", [])
    requirements = [Requirement(text) for text in found]
    return [one for one in requirements if canonicalize_name(one.name) not in own]


def collect(
    requirements: Iterable[Requirement],
    target: Target,
    left_out: Iterable[str],
    fetch: Callable[[str], Path],
) -> dict[str, Path]:
    """Every wheel that the machine lacks, by name.

    Args:
        requirements: To begin with.
        target: The machine.
        left_out: Names that are not fetched, nor what they alone ask for.
        fetch: Gets the wheel of a name at its pin.

    Raises:
        RefusedError: If the machine has to bring a package, or a pin does not fulfil what is asked.
    """
    wheels: dict[str, Path] = {}
    waiting = [(one, (), "the project") for one in requirements if target.asks(one)]
    seen = set()
    while waiting:
        requirement, extras, asker = waiting.pop(0)
        name = canonicalize_name(requirement.name)
        extras = tuple(sorted(requirement.extras))
        if name in left_out or target.brings(requirement):
            continue
        if NEVER.fullmatch(name):
            found = target.has.get(name) or "nothing of it"
            raise RefusedError(
                f"{asker} asks for {requirement}, the machine has {found}, and it is not fetched: "
                "a GPU needs a build of its own. Install it there, and name it in --has"
            )
        if name not in wheels:
            wheels[name] = fetch(name)
        version = wheels[name].name.split("-")[1]
        if not requirement.specifier.contains(version, prereleases=True):
            raise RefusedError(f"{asker} asks for {requirement}, and {version} is what is pinned")
        if (name, extras) not in seen:
            seen.add((name, extras))
            waiting += [
                (one, (), name) for one in needs_of(wheels[name]) if target.asks(one, extras)
            ]
    return wheels


def needs_of(wheel: Path) -> list[Requirement]:
    """What a wheel's metadata asks for."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()  # a wheel may have others' metadata further down
        (file,) = (one for one in names if re.fullmatch(r"[^/]+\.dist-info/METADATA", one))
        metadata = email.message_from_bytes(archive.read(file))
    return [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]


def fetcher(target: Target, pins: Path, out: Path) -> Callable[[str], Path]:
    """Gets wheels by pip, at the versions of a file of constraints, into a folder."""
    pinned = packages_of(pins.read_text(encoding="utf-8"))

    def fetch(name: str) -> Path:
        version = pinned.get(name)
        if version is None:
            raise RefusedError(f"{name} has no version in {pins}: pin it there")
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        words += ["--only-binary", ":all:", "--python-version", target.python]
        for platform in target.platforms:
            words += ["--platform", platform]
        before = set(out.glob("*.whl"))
        done = subprocess.run(
            [*words, "--dest", str(out), f"{name}=={version}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1:] or ["nothing"]
            raise RefusedError(
                f"there is no wheel of {name}=={version} for it; pip says: {said[0]}"
            )
        (wheel,) = set(out.glob("*.whl")) - before
        return wheel

    return fetch


def main() -> int:
    """Collect them, and say how they are installed there; 1 if they cannot be had."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    words.add_argument("--python", default="3.12", help="Python of the machine")
    words.add_argument(
        "--platform", action="append", help="tag of its platform; again for each older one"
    )
    words.add_argument(
        "--has",
        type=Path,
        default=Path(__file__).with_name("gpu_machine.txt"),
        help="what it brings: `pip list` or `pip freeze` there",
    )
    words.add_argument("--pins", type=Path, default=ROOT / "constraints" / "constraints.txt")
    words.add_argument("--out", type=Path, default=Path("build/gpu-wheels"))
    words.add_argument("--limit", type=float, default=64, help="MiB of all wheels together")
    words.add_argument("--leave-out", action="append", help=f"by default {' '.join(LEFT_OUT)}")
    given = words.parse_args()
    platforms = given.platform or [f"manylinux_2_{n}_x86_64" for n in (28, 24, 17)]
    target = Target(
        given.python, tuple(platforms), packages_of(given.has.read_text(encoding="utf-8"))
    )
    given.out.mkdir(parents=True, exist_ok=True)
    if there := list(given.out.glob("*.whl")):
        return failed(f"{given.out} has {len(there)} wheels already: delete them")
    left_out = LEFT_OUT if given.leave_out is None else tuple(given.leave_out)
    fetch = fetcher(target, given.pins, given.out)
    try:
        wheels = collect(asked_for(PROJECTS), target, left_out, fetch)
        said = summary(wheels, given.limit, given.out)
    except RefusedError as error:
        return failed(str(error))
    sys.stdout.write(f"{said}\nleft out: {', '.join(left_out) or 'nothing'}\n")
    return 0


def failed(why: str) -> int:
    """Say why there are no wheels."""
    sys.stderr.write(f"error: {why}\n")
    return 1


def summary(wheels: Mapping[str, Path], limit: float, out: Path) -> str:
    """What was collected, and the two commands for the machine.

    Raises:
        RefusedError: If the wheels are larger than that.
    """
    size = {name: wheel.stat().st_size / MIB for name, wheel in wheels.items()}
    total = sum(size.values())
    if total > limit:
        largest = sorted(size, key=lambda name: -size[name])[:4]
        raise RefusedError(
            f"{len(wheels)} wheels are {total:.1f} MiB, more than --limit {limit:g}; the largest: "
            + ", ".join(f"{name} {size[name]:.1f}" for name in largest)
            + ". --leave-out NAME leaves one out, --has FILE says what the machine brings"
        )
    own = " ".join(f"-e ./{one.relative_to(ROOT)}".removesuffix("/.") for one in PROJECTS)
    return "\n".join(
        [
            f"{len(wheels)} wheels, {total:.1f} MiB, in {out}. There, in a copy of this folder:",
            f"  python3 -m pip install --no-index --no-deps {out}/*.whl",
            f"  python3 -m pip install --no-index --no-deps --no-build-isolation {own}",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
