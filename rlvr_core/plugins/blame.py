"""Attributes an unexpected exception to a file of the user, a plugin, or rlvr."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from importlib import metadata
from types import FrameType
from typing import Any

from rlvr_core.api import PluginError, RlvrError, RunError
from rlvr_core.plugins.discovery import FILE_PREFIX, canonical, find_plugins, of_error
from rlvr_core.plugins.loader import describe
from rlvr_core.plugins.registry import Entry, loaded


def blame(error: BaseException) -> RlvrError:
    """The error that names whose an exception is and where: a ``PluginError`` unless it is rlvr's.

    The innermost frame counts that runs code of a file or a plugin, or a method that a class of
    theirs inherits. What the core or a library did for it is seldom the fault.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    owners = _owners()
    inside = [frame for frame in frames if _package(frame) in owners]
    inherited = [frame for frame in frames if _top(type(_self(frame)).__module__) in owners]
    if inside:
        package = _package(inside[-1])
        place = str(of_error(error, package))
        entry = _component([frame for frame in inside if _package(frame) == package])
    elif inherited:
        made = type(_self(inherited[-1]))
        package, place = _top(made.__module__), _place(made)
        entry = loaded.get((made.__module__, made.__qualname__))
    elif (entry := _given(frames)) is not None:
        package, place = _top(entry.target.partition(":")[0]), entry.target
        if module := sys.modules.get(place.partition(":")[0]):
            place = str(module.__file__)
    else:
        return RunError(
            "this is a bug in rlvr",
            remedy="please report it with the lines above and the output of: rlvr doctor --json",
        )
    return PluginError(
        f"{entry.owner if entry else owners[package]} failed: {describe(error)}",
        where=place,
        remedy="fix it there"
        + ("" if package.startswith(FILE_PREFIX) else ", or report it to its authors"),
    )


@contextlib.contextmanager
def faults_named() -> Iterator[None]:
    """Turn an exception from a component into a PluginError that names it; let others pass."""
    try:
        yield
    except (RlvrError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a component may even call sys.exit
        fault = blame(error)
        if not isinstance(fault, PluginError):
            raise
        raise fault from error


def _owners() -> dict[str, str]:
    """Owners of the packages that are not part of rlvr, for messages."""
    plugins = {canonical(one.distribution): one for one in find_plugins(os.environ)}
    words = {
        name: f"plugin '{one.name}' ({one.distribution} {one.version})"
        for name, one in plugins.items()
    }
    owners = {one.package: words[name] for name, one in plugins.items()}
    for package, names in metadata.packages_distributions().items():
        for name in names:
            if canonical(name) in words:
                owners.setdefault(package, words[canonical(name)])
    for (module, _), entry in loaded.items():
        owners.setdefault(_top(module), entry.owner)
    owners.pop("rlvr_core", None)
    return owners


_USES = {
    ("rlvr_core.rollout.collect", "Generator._then_judge.<locals>.judge"): "engine",
    ("rlvr_core.step.optim", "Optimizer.backward"): "loss",
    ("rlvr_core.step.optim", "Optimizer.step"): "optimizer",
    ("rlvr_core.step.logprobs", "fused_logprobs"): "forward_path",
    ("rlvr_core.step.forward", "Predicted.unpack"): "forward_path",
    ("rlvr_core.step.forward", "predict"): "forward_path",
}
"""Functions of rlvr that compute with a component's results, and the component's kind."""


def _given(frames: Sequence[FrameType]) -> Entry | None:
    """The only component that is not rlvr's among those whose values were being computed with."""
    kinds = {_USES.get((_module(frame), frame.f_code.co_qualname)) for frame in frames}
    entries = [entry for entry in loaded.values() if entry.kind in kinds]
    return entries[0] if len(entries) == 1 else None


def _component(frames: Sequence[FrameType]) -> Entry | None:
    """The component that was called; None if more than one may have been, or none."""
    for frame in frames:
        key = _module(frame), frame.f_code.co_qualname.partition(".")[0]
        if key in loaded:
            return loaded[key]
    modules = set(map(_module, frames))
    entries = [entry for (module, _), entry in loaded.items() if module in modules]
    return entries[0] if len(entries) == 1 else None


def _place(made: type[Any]) -> str:
    """File and line of a class; its module where there is none."""
    try:
        return f"{inspect.getsourcefile(made)}:{inspect.getsourcelines(made)[1]}"
    except OSError:  # a class made of a function
        return inspect.getfile(made)
    except TypeError:
        return made.__module__


def _self(frame: FrameType) -> object:
    return frame.f_locals.get("self")


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _package(frame: FrameType) -> str:
    return _top(_module(frame))


def _top(module: str) -> str:
    return module.partition(".")[0]
