"""Run pytest with no plugin of the project installed: ``python tools/core_only.py tests/record``.

The tests of the core must pass there. Without a path it runs all of ``tests/`` but the folder
``tests/together``. The environment is this one's with links to all that is installed in it, the
first-party plugins left out, so commands that tests start see none either.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE = Path(sysconfig.get_path("purelib"))


def plugin_packages() -> set[str]:
    """Return the import packages of the project's plugins."""
    return {folder.name for folder in (ROOT / "plugins").iterdir() if folder.is_dir()}


def make_environment(folder: Path) -> Path:
    """Make a virtual environment without the plugins in a folder; the path of its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = folder / SITE.relative_to(sys.prefix)
    plugins = plugin_packages()
    for entry in SITE.iterdir():
        package = entry.name.removeprefix("__editable__").strip("._").partition("-")[0]
        if not any(package == name or package.startswith(f"{name}_0") for name in plugins):
            (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def main(arguments: list[str]) -> int:
    """Run pytest with these arguments; its exit code."""
    if not any(Path(argument.partition("::")[0]).exists() for argument in arguments):
        arguments = ["tests", "--ignore=tests/together", *arguments]
    with tempfile.TemporaryDirectory(prefix="rlvr-core-only-") as name:
        python = make_environment(Path(name))
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        hidden = "import importlib.util as u; assert not [n for n in %r if u.find_spec(n)]"
        subprocess.run(
            [python, "-c", hidden % sorted(plugin_packages())], cwd=name, env=env, check=True
        )
        return subprocess.call([python, "-m", "pytest", *arguments], cwd=ROOT, env=env)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
