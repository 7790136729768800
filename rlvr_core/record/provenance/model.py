"""Identifies a model and a tokenizer by hashes of their files."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from rlvr_core.api import Json
from rlvr_core.record.provenance.code import digest_of
from rlvr_core.record.provenance.lineage import LINEAGE

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_TEXTS = (".json", ".jinja", ".model", ".txt")
_SAMPLED = 64
_BLOCK = 1 << 16
_ETAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def model_identity(path: str, revision: str | None = None) -> dict[str, Json]:
    """Return what a model is, beside its name.

    A file's hash is, in this order: its etag, where it is a link into the cache of the hub (the
    SHA-256 of weights, as the hub gives it); that of its content, up to 4 MiB; else of its size,
    its ends and 64 blocks between them, so that large weights cost no time.

    Args:
        path: Folder or hub id.
        revision: Revision of the hub.

    Returns:
        ``path``, and of files on this machine ``sha256`` of all of them, and ``weights`` and
        ``config`` of those of either kind. Of a model in the hub's cache also ``revision`` and
        ``commit``; its ``sha256`` is that of the commit, whichever of its files are here.
    """
    folder = Path(path).expanduser()
    identity: dict[str, Json] = {"path": path}
    commit = None
    if not folder.is_dir():
        identity["revision"] = revision
        cached = _in_cache(path, revision)
        if cached is None:
            return identity
        folder, commit = cached, cached.name
        identity["commit"] = commit
    hashes = {
        file: f"{file.name} {_hash(file)}"
        for file in sorted(folder.iterdir())
        if file.suffix in (*_WEIGHTS, *_TEXTS) and file.name != LINEAGE
    }
    weights = [line for file, line in hashes.items() if file.suffix in _WEIGHTS]
    config = [line for file, line in hashes.items() if file.suffix in _TEXTS]
    identity["sha256"] = _digest([commit] if commit else [*weights, *config])
    if weights:
        identity["weights"] = _digest(weights)
    if commit is None:
        identity["config"] = _digest(config)
    return identity


def tokenizer_identity(tokenizer: Any) -> dict[str, Json]:
    """Return hashes of a tokenizer as it is loaded: of its vocabulary and rules, and its template.

    A tokenizer that was saved again has the same, although its files differ.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        rules: Any = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    else:
        rules = json.loads(backend.to_str())
        for state in ("truncation", "padding"):  # of the last call
            rules.pop(state, None)
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
    text = json.dumps([rules, special], sort_keys=True, ensure_ascii=True)
    template = json.dumps(getattr(tokenizer, "chat_template", None), sort_keys=True)
    return {
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "chat_template": hashlib.sha256(template.encode()).hexdigest(),
        "tokens": len(tokenizer),
    }


def _digest(lines: list[str]) -> str:
    return digest_of(line.encode() for line in lines)


def _in_cache(repository: str, revision: str | None) -> Path | None:
    """Return the folder in the hub's cache that holds a model; None if there is none."""
    from huggingface_hub import try_to_load_from_cache

    for name in ("config.json", "tokenizer_config.json"):
        try:
            cached = try_to_load_from_cache(repository, name, revision=revision)
        except ValueError:  # no name of a repository
            return None
        if isinstance(cached, str):
            return Path(cached).parent
    return None


def _hash(file: Path) -> str:
    if file.is_symlink() and _ETAG.fullmatch(blob := file.resolve().name):
        return blob
    size = file.stat().st_size
    if size <= (_SAMPLED + 2) * _BLOCK:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    digest = hashlib.sha256(str(size).encode())
    with file.open("rb") as opened:
        for index in range(_SAMPLED + 2):
            opened.seek((size - _BLOCK) * index // (_SAMPLED + 1))
            digest.update(opened.read(_BLOCK))
    return digest.hexdigest()
