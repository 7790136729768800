"""What a run is made of, as hashes: recorded at its start, compared when it is resumed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rlvr_core.api import Complaint, ConfigError, Json, Problem
from rlvr_core.api.services import (
    Manifest,
    Redactor,
    Renderer,
    RunFolder,
    files,
    versions,
    write_atomic,
)
from rlvr_core.builtin.provenance.code import code_hash, diff_of, file_tables, location, packages
from rlvr_core.builtin.provenance.compare import Difference, code_differences, differences
from rlvr_core.builtin.provenance.lineage import of_run
from rlvr_core.builtin.provenance.model import model_identity, tokenizer_identity
from rlvr_core.builtin.provenance.surroundings import surroundings

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG")
"""Environment variables that decide in what order numbers are added up."""
VARIABLES = (
    *("OMP_", "MKL_", "KMP_", "OPENBLAS_", "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "NCCL_"),
    *(
        "TORCH_",
        "TORCHINDUCTOR_",
        "TORCHDYNAMO_",
        "PYTORCH_",
        "TRITON_",
        "VLLM_",
        "HF_",
        "TRANSFORMERS_",
        "TOKENIZERS_",
        "RLVR_PLUGINS",
        "RLVR_DATA",
    ),
    *("PYTHONHASHSEED", "TF32_", "NO_TF32", "FLASH_ATTENTION_"),
)
"""How the names of environment variables begin that may change results."""
ELSEWHERE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
"""What says where or for whom a run is, not what it computes."""
_PLACES = ("_HOME", "_CACHE", "_PATH", "_DIR")
_SECRET = re.compile(r"TOKEN(?!IZERS_)|KEY|SECRET|PASS(?:WORD|WD|PHRASE)|AUTH|CREDENTIAL", re.I)
REFUSED = ("model", "tokenizer", "prompts", "verifiers")
"""Parts that a run must be resumed with; of the others it is said that they are not the same."""


def identify(prepared: Any, manifest: Manifest, say: Callable[[str], None], *, fresh: bool) -> None:
    """Record what a run is made of; when it is resumed, compare it with what it was made of.

    Args:
        prepared: The prepared run (``rlvr_core.run.prepare.Prepared``).
        manifest: The run's ``run.json``; its ``identity`` is written.
        say: Called with each difference that does not stop the run.
        fresh: Whether the run is new.

    Raises:
        ConfigError: If a resumed run has another model, tokenizer or verifier, or other prompts.
    """
    code = packages(prepared.resolved.host)
    found = identity_of(prepared) | {"code": code}
    recorded = None if fresh else manifest.fields.get("identity")
    if recorded is not None:
        lines = _check(prepared, manifest, found)
        if not lines:
            return
        for line in lines:
            say(f"warning: not as when the run began: {line}")
        now = {"time": datetime.now(UTC).isoformat(), "differences": lines}
        manifest.update(resumed_over=[*manifest.fields.get("resumed_over", []), now])
    elif not fresh:
        say("note: what the run was made of when it began is not recorded, and not compared")
    found |= {"code": _kept(manifest.folder, code), "lineage": of_run(prepared, manifest.folder)}
    manifest.update(identity=found)


def identity_of(prepared: Any) -> dict[str, Json]:
    """Return what a prepared run is made of, without the code of packages."""
    config, specs = prepared.config, prepared.judge.plan.specs
    return {
        "model": model_identity(str(prepared.model_path), config.model.revision),
        "tokenizer": tokenizer_identity(prepared.tokenizer),
        "prompts": {
            "text_as_chat": prepared.renderer.text_as_chat,
            "description": prepared.renderer.describe(),
            "sha256": prepared.prompts,
            "evaluations": {
                name: _rendered(prepared.renderer, problems)
                for name, problems in prepared.evaluations.held_out.items()
            },
        },
        "verifiers": {
            name: code_hash(name.partition("#")[0], spec.target) for name, spec in specs.items()
        },
        "surroundings": {
            name: surroundings(name.partition("#")[0], spec.target) for name, spec in specs.items()
        },
        "threads": threads(),
        "environment": environment(),
    }


def _rendered(renderer: Renderer, problems: Iterable[Problem]) -> str:
    """Return the hash of the token ids of an evaluation's prompts, in order."""
    digest = hashlib.sha256()
    for problem in problems:
        digest.update(repr(renderer.render(problem)).encode())
    return digest.hexdigest()


def threads() -> dict[str, Json]:
    """Return the numbers of threads of this process, and the variables that set them."""
    found: dict[str, Json] = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    torch = sys.modules.get("torch")
    if torch is not None:
        found |= {"torch": torch.get_num_threads(), "interop": torch.get_num_interop_threads()}
    return found


def environment() -> dict[str, Json]:
    """Return the environment variables that may change results; never one that may be a secret.

    Those of ``threads`` are left out.
    """
    found: dict[str, Json] = {"PYTHONHASHSEED": None}
    return found | {
        name: Redactor().text(value)
        for name, value in sorted(os.environ.items())
        if name.upper().startswith(VARIABLES)
        and name not in (*ELSEWHERE, *THREAD_VARIABLES)
        and not name.endswith(_PLACES)
        and not _SECRET.search(name)
    }


def recorded_tables(folder: RunFolder, identity: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the table of files of each package, as a run recorded it; empty if it is gone."""
    name = identity.get("code", {}).get("files")
    try:
        found = json.loads((folder.patches / str(name)).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _check(prepared: Any, manifest: Manifest, found: Mapping[str, Any]) -> list[str]:
    """Return in what a resumed run differs from what it was; refuse what it may not."""
    recorded = manifest.fields["identity"]
    accepted = tuple(prepared.config.run.accept_changed)
    differ = differences(recorded, found)
    differ += code_differences(
        recorded["code"]["packages"],
        found["code"],
        recorded_tables(manifest.folder, recorded),
        file_tables(found["code"]),
    )
    before = {"versions": manifest.fields.get("versions")}
    differ += differences(before, {"versions": versions(prepared.resolved.host.plugin_versions())})
    refused = [one for one in differ if _stops(one, accepted)]
    if refused:
        raise ConfigError.collect(_complaints(refused, manifest.folder, accepted))
    return [one.line for one in differ]


def _stops(one: Difference, accepted: Sequence[str]) -> bool:
    if one.part not in REFUSED:
        return False
    if one.part == "verifiers":
        if files.parse(one.key.partition("#")[0]) is not None or one.values[0] is None:
            return False  # a file is compared with its copy; a new verifier has none before it
        return not str(one.values[1]).startswith(tuple(accepted) or ("-",))
    return one.key in ("sha256", "chat_template", "text_as_chat")


def _complaints(
    refused: Sequence[Difference], folder: RunFolder, accepted: Sequence[str]
) -> list[Complaint]:
    digests = [str(one.values[1])[:8] for one in refused if one.part == "verifiers"]
    listed = ", ".join([*accepted, *digests])
    found = []
    for one in refused:
        remedy: tuple[str, ...]
        if one.part == "verifiers":
            remedy = (
                "install the version the run began with (rlvr diff RUN names the files)",
                f"to go on with the code that is here: --set 'run.accept_changed=[{listed}]'",
            )
        else:
            remedy = ("put it back as it was to go on, or start a new run",)
        what = {
            "model": "the model is not the one the run began with",
            "tokenizer": "the tokenizer is not the one the run began with",
            "prompts": "the prompts are not rendered as when the run began",
            "verifiers": f"the code of verifier {one.key} is not that the run began with",
        }[one.part]
        found.append(Complaint(f"{what} ({one.key})", str(folder.path), remedy))
    return found


def _kept(folder: RunFolder, code: Mapping[str, dict[str, Json]]) -> dict[str, Json]:
    """Keep tables of files and the changes of checkouts in ``patches/``; return the rest.

    Returns:
        ``packages``; ``files``: the name of the table; ``patches``: the name of the changes of
        each checkout, by its root.
    """
    name = _write(folder, json.dumps(file_tables(code), indent=1), "code", "json")
    roots: dict[str, list[Path]] = {}
    for package, one in code.items():
        place = location(package)
        if one["git"] and one["git"]["changed"] and place is not None:
            roots.setdefault(one["git"]["root"], []).append(place)
    patches = {}
    for root, places in roots.items():
        patches[root] = _write(folder, Redactor().patch(diff_of(places)), "code", "patch")
    rest = {
        package: {key: value for key, value in one.items() if key != "files"}
        for package, one in code.items()
    }
    return {"packages": rest, "files": name, "patches": patches}


def _write(folder: RunFolder, text: str, stem: str, suffix: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    name = f"{stem}-{digest[:8]}.{suffix}"
    folder.patches.mkdir(exist_ok=True)
    write_atomic(folder.patches / name, text)
    return name
