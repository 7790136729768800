"""Finds the folder of a model on this machine, without the network."""

from __future__ import annotations

from pathlib import Path


def folder_of(reference: str, revision: str | None) -> Path | None:
    """Return a model's folder: its own, or that in the hub's cache; None if there is none."""
    folder = Path(reference).expanduser()
    if folder.is_dir():
        return folder
    from huggingface_hub import try_to_load_from_cache

    for name in ("config.json", "adapter_config.json", "tokenizer_config.json"):
        try:
            path = try_to_load_from_cache(reference, name, revision=revision)
        except ValueError:  # not a valid repository name
            return None
        if isinstance(path, str):
            return Path(path).parent
    return None
