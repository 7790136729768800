"""Write the generated files; ``--check`` says which of those in git are out of step.

The reference pages of the site (commands, components, keys, metrics) go to ``docs/_generated``,
which git ignores.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from commands import page as commands
from components import page as components
from config_reference import page as config_reference
from metrics import page as metrics

from rlvr_bs4.table import page as archetypes

ROOT = Path(__file__).resolve().parent.parent
KEPT: dict[str, Callable[[], str]] = {"plugins/rlvr_bs4/ARCHETYPES.md": archetypes}
REFERENCE: dict[str, Callable[[], str]] = {
    "docs/_generated/commands.md": commands,
    "docs/_generated/components.md": components,
    "docs/_generated/config-keys.md": config_reference,
    "docs/_generated/metrics.md": metrics,
}


def main() -> int:
    """Write or check the files; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say which files are stale")
    if parser.parse_args().check:
        stale = [path.relative_to(ROOT).as_posix() for path, _ in _stale(KEPT)]
        if stale:
            sys.stderr.write(f"out of step: {', '.join(stale)}; run make docs\n")
        return int(bool(stale))
    for path, text in _stale(KEPT | REFERENCE):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


def _stale(files: dict[str, Callable[[], str]]) -> Iterator[tuple[Path, str]]:
    """Files that are missing or differ from what the code says, each with its new text."""
    for name, render in files.items():
        path, text = ROOT / name, render()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            yield path, text


if __name__ == "__main__":
    raise SystemExit(main())
