"""What a run's folder lacks for the run to be repeated from it alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlvr_core.api import Json, RunView
from rlvr_core.builtin.provenance.compare import SHOWN, flat

_FROM_ENVIRONMENT = re.compile(r"\$\{env:(\w+)\}")
REDACTED = "<redacted>"


def reproduction(view: RunView) -> dict[str, list[Json]]:
    """Say what repeating a run takes, from its folder alone.

    ``rlvr diff RUN`` looks whether it is there on this machine.

    Returns:
        ``needs``: what stands elsewhere, with the hash that it must have; ``missing``: what no
        record has, so that the run cannot be repeated with certainty.
    """
    identity = view.manifest.get("identity") or {}
    needs = [*_data(view), *_model(view, identity), *_code(view, identity), *_variables(view)]
    return {"needs": needs, "missing": list(_missing(view, identity))}


def _data(view: RunView) -> Iterator[str]:
    for name, one in (view.manifest.get("data") or {}).items():
        if isinstance(one, Mapping):
            yield f"data {name}: {one.get('problems')} problems, SHA-256 {_short(one)}"


def _model(view: RunView, identity: Mapping[str, Any]) -> Iterator[str]:
    section, model = view.config.get("model") or {}, identity.get("model") or {}
    path = section.get("path")
    if path is None:
        return
    commit = f" at commit {model['commit']}" if "commit" in model else ""
    digest = f", SHA-256 {_short(model)}" if "sha256" in model else ""
    yield f"model {path}{commit}{digest}"


def _code(view: RunView, identity: Mapping[str, Any]) -> Iterator[str]:
    code = identity.get("code") or {}
    patches = code.get("patches", {})
    for name, one in code.get("packages", {}).items():
        text = f"{name} {one['version']}, SHA-256 {_short(one)}"
        if one["git"]:
            text += f": commit {one['git']['commit'][:12]}"
            if one["git"]["changed"] and one["git"]["root"] in patches:
                text += f" with patches/{patches[one['git']['root']]}"
        yield text
    for use, one in (view.manifest.get("sources") or {}).items():
        yield f"{use}: patches/{one['copy']}"


def _variables(view: RunView) -> Iterator[str]:
    names: dict[str, None] = {}
    for value in flat(view.config).values():
        names.update(dict.fromkeys(_FROM_ENVIRONMENT.findall(str(value))))
    for name in names:
        yield f"environment variable {name}"


def _missing(view: RunView, identity: Mapping[str, Any]) -> Iterator[str]:
    if not view.config:
        yield "resolved.yaml is missing or cannot be read"
    if not identity:
        yield "the identity of model, tokenizer, prompts and code was not recorded (run.identity)"
    model = identity.get("model") or {}
    if identity and "sha256" not in model:
        yield f"the files of model {model.get('path')} were not on this machine: no hash of them"
    for key, value in flat(view.config).items():
        if value == REDACTED:
            yield f"{key} was a secret, and is not recorded"
    code = identity.get("code") or {}
    for name, one in code.get("packages", {}).items():
        untracked = (one["git"] or {}).get("untracked", [])
        if untracked:
            more = f" and {len(untracked) - SHOWN} more" if len(untracked) > SHOWN else ""
            named = ", ".join(untracked[:SHOWN]) + more
            yield f"{name}: files that git does not track are not kept: {named}"
    for patch in code.get("patches", {}).values():
        try:
            text = (view.folder.patches / patch).read_text(encoding="utf-8")
        except OSError:
            yield f"patches/{patch} is gone"
            continue
        if REDACTED in text or "[cut: longer than" in text:
            yield f"patches/{patch} is not whole: secrets, or more than is kept, were left out"
    for use, one in (view.manifest.get("sources") or {}).items():
        if one["beside"]:
            yield f"{use}: files that it imports are not kept: {', '.join(one['beside'])}"
        if not (view.folder.patches / one["copy"]).is_file():
            yield f"patches/{one['copy']} is gone"
    for one in view.manifest.get("resumed_over") or ():
        yield f"it was resumed with other parts: {'; '.join(one['differences'])}"


def _short(record: Mapping[str, Any]) -> str:
    return str(record.get("sha256"))[:16]
