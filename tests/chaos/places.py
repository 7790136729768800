"""Print the faults whose place in the code is no longer there: they would break nothing."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos import lab, process
from chaos.registry import Patch, load


class Looking(Patch):
    """Changes nothing, and looks each place up."""

    def wrap(self, place: str, make: Callable[[Any], Callable[..., Any]]) -> None:
        """See ``Patch.wrap``."""
        module, _, path = place.partition(":")
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)

    def set(self, place: str, value: Any) -> None:
        """See ``Patch.set``."""
        self.wrap(place, lambda original: original)


def main() -> int:
    """Look at every fault."""
    process.warm()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lab.install(folder / "site")
        lab.write(folder, {}, lab.rows())
        patch = Looking(folder)
        for fault in load():
            try:
                if fault.install is not None:
                    fault.install(patch)
            except (AttributeError, ImportError) as error:
                print(f"{fault.name}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
