"""Whether a model is where a configuration says, without loading anything."""

from __future__ import annotations

from pathlib import Path

from rlvr_core.errors import MachineError


def check_model_path(path: str) -> None:
    """Refuse early a path that looks like a folder and is not one.

    Raises:
        MachineError: If the folder is missing, or is no Hugging Face model folder.
    """
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            if (folder / "adapter_config.json").is_file():
                raise MachineError(
                    f"'{path}' is a LoRA adapter, not a model",
                    where="model.path",
                    remedy=f"rlvr export {path} OUT --merge makes the model that it stands for",
                )
            raise MachineError(
                f"'{path}' has no config.json: it is not a model folder",
                where="model.path",
                remedy="point model.path at a folder that transformers can load",
            )
        return
    parts = path.split("/")
    if path.startswith(("/", ".", "~")) or len(parts) != 2 or not all(parts):
        raise MachineError(
            f"model folder '{path}' does not exist",
            where="model.path",
            remedy=(
                f"looked in {folder.absolute()}",
                "give an existing folder, a hub id (org/name), or tiny:math/arithmetic for a "
                "tiny model made on the spot",
            ),
        )
