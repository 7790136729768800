"""Twenty-fifth set, written without reading the guards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaos.registry import Patch, fault


def set_25(cls: str, *more_words: str, **options: Any) -> Callable[[Callable[[Patch], None]], None]:
    """Declare a fault of the twenty-fifth set, like ``fault``."""
    return fault(cls, *more_words, set=25, **options)
