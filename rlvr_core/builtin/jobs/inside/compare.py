"""What the facts of all processes say together: findings, each with its machines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlvr_core.api import Complaint
from rlvr_core.builtin.jobs.inside.facts import Facts
from rlvr_core.builtin.jobs.inside.wheels import runs_on, too_old

GIB = 2**30
_SMALL = GIB
_NAMED = 4
"""Machines, or differing keys, that a line names; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Found:
    """One finding.

    Attributes:
        check: What was looked at.
        what: What was found.
        good: Whether it is in order; None for a warning.
        where: Machines or processes; empty for all of them.
        remedy: What to do, one line a step.
    """

    check: str
    what: str
    good: bool | None = True
    where: str = ""
    remedy: tuple[str, ...] = ()

    def complaint(self) -> Complaint:
        """Return it as a part of an error."""
        return Complaint(self.what, self.where, self.remedy)

    def line(self) -> str:
        """Return it as one line for people."""
        more = "" if self.good else "; ".join(("", *self.remedy))
        begin = "warning: " if self.good is None else ""
        return f"{begin}{self.where}{': ' if self.where else ''}{self.what}{more}"


def judge(facts: Sequence[Facts]) -> list[Found]:
    """Compare the facts of all processes, in the order of their ranks."""
    first = [one for one in facts if one.first]
    return [
        _summary(facts, first),
        *_grouped(facts, _of_card),
        *_cards(facts),
        *_grouped(first, _of_vllm),
        *_grouped(first, _of_places),
        *_alike("versions", "versions:", first, lambda one: one.versions),
        *_alike("code", "the files of", first, lambda one: one.code),
        *_alike("config", "the values of", first, lambda one: one.config),
    ]


def _summary(facts: Sequence[Facts], first: Sequence[Facts]) -> Found:
    one = facts[0]
    many = f"{len(first)} machine{'s' * (len(first) > 1)}"
    many += f", {len(facts)} process{'es' * (len(facts) > 1)}"
    wheels = f"{one.torch}, " + (f"CUDA {one.cuda}" if one.cuda else "built for CPUs")
    if not one.driver:
        return Found("machines", f"{many}; {wheels}; no GPU driver")
    card = one.gpu or "no GPU to be used"
    number = f"{one.driver_number}, " if one.driver_number else ""
    return Found("machines", f"{many}; {wheels}; driver {number}CUDA {_dotted(one.driver)}; {card}")


def _of_card(one: Facts) -> Iterator[Found]:
    """The driver and the card of a process against torch."""
    if not one.cuda:
        return
    fault = too_old(one.driver or None, one.torch, one.cuda)
    if fault:
        number = f" (its number is {one.driver_number})" if one.driver_number else ""
        yield Found("driver", fault[0] + number, False, remedy=fault[1:])
    elif one.capability and not runs_on(one.capability, one.archs):
        yield Found(
            "card",
            f"{one.gpu} has compute capability {_dotted(one.capability)}, and {one.torch} is built "
            f"for {' '.join(one.archs)}",
            False,
            remedy=(
                "install a torch that is built for it: https://pytorch.org/get-started",
                "or take machines with other cards",
            ),
        )
    elif one.driver and _numbers(one.cuda) > one.driver:
        yield Found(
            "driver",
            f"the driver's CUDA, {_dotted(one.driver)}, is older than that of {one.torch}, "
            f"{one.cuda}: within one major version that works, but not for code that is compiled "
            "on the card",
            None,
            remedy=("if a kernel says 'unsupported toolchain', take a newer driver",),
        )


def _cards(facts: Sequence[Facts]) -> Iterator[Found]:
    """Whether all processes have a GPU, or none, and all the same."""
    names = Counter(one.gpu for one in facts)
    if len(names) > 1 and names[""]:
        yield Found(
            "card",
            f"{names['']} of {len(facts)} processes have no GPU, and the others have one",
            False,
            _machines([one for one in facts if not one.gpu]),
            ("see why: rlvr doctor --gpu, there", "or hide all: CUDA_VISIBLE_DEVICES=''"),
        )
    elif len(names) > 1:
        listed = ", ".join(f"{count} x {name}" for name, count in sorted(names.items()))
        yield Found(
            "card",
            f"cards differ: {listed}",
            None,
            remedy=("the slowest sets the pace, and the smallest what fits",),
        )


def _of_vllm(one: Facts) -> Iterator[Found]:
    """The installed vLLM against driver and torch."""
    version, cuda, torch = one.vllm or ("", "", "")
    if cuda and (fault := too_old(one.driver or None, f"vllm {version}", cuda)):
        yield Found("vllm", fault[0], False, remedy=fault[1:])
    elif cuda and cuda != one.cuda.partition(".")[0]:
        yield Found(
            "vllm",
            f"vllm {version} is linked with CUDA {cuda}, and {one.torch} is built for CUDA "
            f"{one.cuda}",
            None,
            remedy=("install both for one CUDA: https://docs.vllm.ai has the commands",),
        )
    installed = one.torch.removeprefix("torch ").partition("+")[0]
    if torch and torch.partition("+")[0] != installed:
        yield Found(
            "vllm",
            f"vllm {version} is built for torch {torch}, and torch {installed} is installed",
            None,
            remedy=(f"pip install torch=={torch}",),
        )


def _of_places(one: Facts) -> Iterator[Found]:
    """Folders and the store of a machine."""
    folder, fault = one.scratch
    if fault:
        yield Found(
            "scratch",
            f"nothing can be written to {folder}, the folder for temporary files: {fault}",
            False,
            remedy=("set TMPDIR to a folder that can be written to",),
        )
    elif one.scratch_free < _SMALL:
        yield Found(
            "scratch",
            f"{one.scratch_free / GIB:.2f} GiB are free in {folder}, for temporary files",
            None,
            remedy=("set TMPDIR to a folder with more",),
        )
    if one.gpu and one.shared_memory is not None and one.shared_memory < _SMALL:
        yield Found(
            "shared memory",
            f"{one.shared_memory / GIB:.2f} GiB are free in /dev/shm, and NCCL may fail for want "
            "of it",
            None,
            remedy=("docker: --shm-size 8g or --ipc=host; Kubernetes: an emptyDir of Memory",),
        )
    if one.store:
        yield Found(
            "store",
            f"run.mirror does not work from here: {one.store}",
            None,
            remedy=("give this machine the credentials that machine 0 has",),
        )


def _grouped(facts: Sequence[Facts], ask: Callable[[Facts], Iterator[Found]]) -> Iterator[Found]:
    """Findings of each, equal ones as one with all their machines."""
    found: dict[Found, list[Facts]] = defaultdict(list)
    for one in facts:
        for each in ask(one):
            found[each].append(one)
    for each, having in found.items():
        yield Found(each.check, each.what, each.good, _machines(having, of=facts), each.remedy)


def _alike(
    check: str, what: str, first: Sequence[Facts], of: Callable[[Facts], Mapping[str, str]]
) -> Iterator[Found]:
    """Whether every machine has what machine 0 has."""
    begin = of(first[0])
    if len(first) == 1 or not begin:
        return
    differing: dict[tuple[str, ...], list[Facts]] = defaultdict(list)
    for one in first[1:]:
        theirs = of(one)
        keys = sorted(k for k in {*begin, *theirs} if begin.get(k) != theirs.get(k))
        if keys:
            differing[tuple(keys)].append(one)
    for names, having in differing.items():
        values = check == "versions"
        shown = [_shown(key, begin, of(having[0]), values=values) for key in names]
        yield Found(
            check,
            f"{what} {listed(shown)} differ from those of machine 0",
            False,
            _machines(having),
            (_REMEDIES[check],),
        )
    if not differing:
        yield Found(check, f"{_COUNTED[check].format(len(begin))}, the same on all machines")


_REMEDIES = {
    "versions": "start all machines from one image or environment",
    "code": "start all machines from one image, or from one checkout at one commit",
    "config": "give the same config and the same --set on every machine",
}
_COUNTED = {"versions": "{} versions", "code": "code of {} parts", "config": "{} values"}


def _shown(key: str, ours: Mapping[str, str], theirs: Mapping[str, str], *, values: bool) -> str:
    if not values:
        return key
    here, there = ours.get(key, "not installed"), theirs.get(key, "not installed")
    return f"{key} {there} (there {here})"


def _machines(having: Sequence[Facts], of: Sequence[Facts] = ()) -> str:
    """Name machines: all, or the first few."""
    numbers = {one.machine: one.host for one in having}
    if of and len(numbers) == len({one.machine for one in of}) > 1:
        return f"all {len(numbers)} machines"
    return "machine " + listed([f"{number} ({host})" for number, host in numbers.items()])


def listed(words: Sequence[str]) -> str:
    """Name the first few, and count the rest."""
    more = len(words) - _NAMED
    return ", ".join(words[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
