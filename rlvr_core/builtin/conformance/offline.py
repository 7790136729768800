"""Prevents downloads from the hub during checks."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

VARIABLE = "HF_HUB_OFFLINE"
_READERS = ("huggingface_hub.constants", "datasets.config")
"""Modules that copy the variable to a module constant when they are imported."""


@contextlib.contextmanager
def without_hub() -> Iterator[None]:
    """Prevent downloads from the hub, unless ``HF_HUB_OFFLINE=0`` is set.

    Constants of modules that are already imported are set, too, and restored afterwards.
    """
    before = os.environ.get(VARIABLE)
    if before == "0":
        yield
        return
    known = {name: vars(sys.modules[name])[VARIABLE] for name in _READERS if name in sys.modules}
    os.environ[VARIABLE] = "1"
    for name in known:
        setattr(sys.modules[name], VARIABLE, True)
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
        for name in _READERS:
            if name in sys.modules:
                setattr(sys.modules[name], VARIABLE, known.get(name, before is not None))
