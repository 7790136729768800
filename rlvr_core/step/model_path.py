"""Whether a model is where a configuration says, without loading anything."""

from __future__ import annotations

from pathlib import Path

from rlvr_core.api import MachineError

_OTHER = "give an existing folder or a hub id (org/name)"
_TINY = "; tiny:math/arithmetic is a tiny model made on the spot"


def check_model_path(path: str, where: str = "model.path") -> None:
    """Refuse early a path that looks like a folder and is not one.

    Args:
        path: Folder or hub id.
        where: Where the user named it.

    Raises:
        MachineError: If the folder is missing, or is no Hugging Face model folder.
    """
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            if (folder / "adapter_config.json").is_file():
                raise MachineError(
                    f"'{path}' is a LoRA adapter, not a model",
                    where=where,
                    remedy=f"rlvr export {path} OUT --merge makes the model that it stands for",
                )
            raise MachineError(
                f"'{path}' has no config.json: it is not a model folder",
                where=where,
                remedy="name a folder that transformers can load, or fetch its files again",
            )
        return
    parts = path.split("/")
    if path.startswith(("/", ".", "~")) or len(parts) != 2 or not all(parts):
        raise MachineError(
            f"model folder '{path}' does not exist",
            where=where,
            remedy=(f"looked in {folder.absolute()}", _OTHER + _TINY * (where == "model.path")),
        )
