"""Prevents downloads from the hub during checks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

VARIABLE = "HF_HUB_OFFLINE"
_READERS = ("huggingface_hub.constants", "datasets.config")
"""Modules that copy the variable to a constant when they are imported."""


@contextmanager
def without_hub() -> Iterator[None]:
    """Prevent downloads from the hub, unless ``HF_HUB_OFFLINE=0`` is set."""
    with ExitStack() as changes:
        if os.environ.get(VARIABLE) != "0":
            changes.enter_context(mock.patch.dict(os.environ, {VARIABLE: "1"}))
            for module in (sys.modules[name] for name in _READERS if name in sys.modules):
                changes.enter_context(mock.patch.object(module, VARIABLE, True))
        yield
