"""Whose fault an exception is that nobody expected: a file of the user, a plugin, or rlvr."""

from __future__ import annotations

import os
import traceback
from importlib import metadata

from rlvr_core.api.services import FILE_PREFIX, canonical, find_plugins, of_error


def blame(error: BaseException) -> str:
    """What to say below the traceback of an exception: whose it is, where, and what to do.

    The innermost file or plugin counts. What the core or a library did for it is seldom the fault.
    """
    packages = _packages(error)
    files = [package for package in packages if package.startswith(FILE_PREFIX)]
    if files:
        place = of_error(error, files[-1])
        return f"{type(error).__name__} in your file\n  at {place}\n  mend it there"
    plugins = {canonical(one.distribution): one for one in find_plugins(os.environ)}
    owners = {one.package: one for one in plugins.values()}
    for package, names in metadata.packages_distributions().items():
        for name in names:
            if one := plugins.get(canonical(name)):
                owners.setdefault(package, one)
    named = [package for package in packages if package in owners]
    if not named:
        return (
            "this is a bug in rlvr\n  please report it with the lines above and the output of: "
            "rlvr doctor --json"
        )
    plugin = owners[named[-1]]
    return (
        f"{type(error).__name__} in plugin '{plugin.name}' ({plugin.distribution} "
        f"{plugin.version})\n  at {of_error(error, named[-1])}\n  mend it there, or report it to "
        "its authors with the lines above"
    )


def _packages(error: BaseException) -> list[str]:
    """The top-level package of each frame an error came through, the outermost first."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return [str(frame.f_globals.get("__name__", "")).partition(".")[0] for frame in frames]
