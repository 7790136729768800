"""Write the generated pages, or check that they are in step: ``--check``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import faces
from commands import page as commands
from components import page as components
from metrics import page as metrics

from rlvr_bs4.table import page as archetypes
from rlvr_core.builtin.configs.reference import loss_options
from rlvr_core.builtin.configs.reference import reference as config_reference

ROOT = Path(__file__).resolve().parent.parent
PAGES: dict[str, Callable[[], str]] = {
    "rlvr_core/api/__init__.pyi": partial(faces.stub, faces.api),
    "rlvr_core/api/services.pyi": partial(faces.stub, faces.services),
    "rlvr_core/testing/__init__.pyi": partial(faces.stub, faces.testing),
    "tests/plugins/public_api.txt": faces.frozen,
    "docs/api.md": faces.page,
    "docs/cli.md": commands,
    "docs/components.md": components,
    "docs/config-reference.md": config_reference,
    "docs/loss-options.md": loss_options,
    "docs/metrics.md": metrics,
    "plugins/rlvr_bs4/ARCHETYPES.md": archetypes,
}


def main() -> int:
    """Write or check every page; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say which pages are stale")
    check = parser.parse_args().check
    stale = []
    for name, render in PAGES.items():
        path, text = ROOT / name, render()
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, encoding="utf-8")
    if check and stale:
        sys.stderr.write(f"out of step: {', '.join(stale)}; run make docs\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
