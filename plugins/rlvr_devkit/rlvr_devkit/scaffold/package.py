"""Writes the package of a plugin from its templates: wholly or not at all."""

from __future__ import annotations

import shutil
import tempfile
from importlib import resources
from pathlib import Path
from string import Template as Text

from rlvr_core.api import ConfigError
from rlvr_core.toolkit import __version__, kind_words
from rlvr_devkit.scaffold.kinds import TEMPLATES
from rlvr_devkit.scaffold.names import Names

_COMMON = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "gitignore": ".gitignore",
    "test.yml": ".github/workflows/test.yml",
}
_OF_KIND = {
    "module.py": "{module}.py",
    "test.py": "tests/test_{module}.py",
    "config.yaml": "config.yaml",
}
"""Target path of each template."""


def render(kind: str, names: Names) -> dict[str, str]:
    """Return the files of a package: their text by their path."""
    home = resources.files("rlvr_devkit.scaffold") / "templates"
    templates = {path: home / "common" / f"{name}.tmpl" for name, path in _COMMON.items()}
    for name, path in _OF_KIND.items():
        file = home / kind / f"{name}.tmpl"
        if file.is_file():
            templates[path.format(module=names.module)] = file
    texts = {path: file.read_text(encoding="utf-8") for path, file in templates.items()}
    words = _words(kind, names, texts)
    return {path: Text(text).substitute(words) for path, text in texts.items()}


def _words(kind: str, names: Names, texts: dict[str, str]) -> dict[str, str]:
    """Return the value of each placeholder."""
    template = TEMPLATES[kind]
    major, minor, _ = __version__.split(".", 2)
    core = f"rlvr-core>={major}.{minor},<{major}.{int(minor) + 1}"
    words = {
        "name": names.name,
        "module": names.module,
        "distribution": names.distribution,
        "cls": names.cls(texts[f"{names.module}.py"], kind),
        "kind": kind_words(kind),
        "noun": template.noun,
        "Noun": template.noun[0].upper() + template.noun[1:],
        "does": template.does,
        "change": template.change,
        "page": template.page,
        "dependencies": ", ".join(
            f'"{requirement}"' for requirement in sorted([core, *template.needs])
        ),
    }
    if "config.yaml" in texts:
        words["use"] = f"```yaml\n{Text(texts['config.yaml']).substitute(words).strip()}\n```"
    else:
        words["use"] = f"```\n{Text(template.shell).substitute(words)}\n```"
    return words


def write(files: dict[str, str], folder: Path) -> None:
    """Write files into a new folder, which is there only when all of them are.

    Args:
        files: Text by path below the folder.
        folder: A folder that is empty, or is not there.

    Raises:
        ConfigError: If something is there, or the folder cannot be written.
    """
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise ConfigError(
            "there is something already, which is left as it is",
            where=str(folder),
            remedy="move it away, or choose another place: --into FOLDER",
        )
    temporary = None
    try:
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
        temporary.chmod(0o755)
        for path, text in files.items():
            file = temporary / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        temporary.rename(folder)
    except OSError as error:
        raise ConfigError(
            f"the package cannot be written: {error.strerror or error}",
            where=str(folder),
            remedy="choose a folder that is there and takes files: --into FOLDER",
        ) from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
