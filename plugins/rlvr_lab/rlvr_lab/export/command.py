"""``rlvr export``: writes a checkpoint as a folder for other programs."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlvr_core.api import ConfigError
from rlvr_core.terminal import output

if TYPE_CHECKING:
    from rlvr_core.eval.model_ref import ModelRef


@click.command("export")
@click.argument("model")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--merge", is_flag=True, help="Merge a LoRA adapter into its base model.")
@click.option("--gguf", is_flag=True, help="Write a GGUF file, an adapter merged.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="Of merged or GGUF weights [default: the run's].",
)
@click.option("--step", type=click.IntRange(0), help="Which checkpoint of a run [newest].")
@click.option("--runs-dir", default="runs", show_default=True, help="Folder of run folders.")
@click.option("--push", metavar="REPO", help="Upload it to the Hugging Face Hub, with a card.")
@click.option("--private", is_flag=True, help="Make a new repository private.")
@click.option("--dry-run", is_flag=True, help="Only say what --push would upload.")
def export_(
    model: str,
    out: Path,
    merge: bool,
    gguf: bool,
    dtype: str | None,
    step: int | None,
    runs_dir: str,
    push: str | None,
    private: bool,
    dry_run: bool,
) -> None:
    """Write MODEL, a run's or a checkpoint's, as the new folder OUT, or file with --gguf.

    MODEL is a run (its name, its folder or 'last': its newest complete checkpoint, or --step), a
    checkpoint, or the folder of a LoRA adapter. Of a run with LoRA, OUT is the adapter as peft
    loads it; with --merge it is a whole model that transformers and vLLM load as it is.
    """
    from rlvr_core.eval.model_ref import find_model
    from rlvr_core.lora.export import is_adapter
    from rlvr_lab.export import hub

    output.quiet_libraries()
    if (private or dry_run) and push is None:
        flag = "--private" if private else "--dry-run"
        raise ConfigError("nothing is pushed", where=flag, remedy="name a repository: --push REPO")
    if push is not None:
        hub.check_push(push, dry_run=dry_run)
    if gguf:
        from rlvr_lab.export.gguf import check_gguf

        check_gguf()
    source = find_model(model, step=step, runs_dir=runs_dir)
    folder = Path(source.path).expanduser()
    if not folder.is_dir():
        raise ConfigError(
            f"there is no run, checkpoint or adapter '{model}'",
            remedy="name a run, its folder, or a folder in its checkpoints/",
        )
    if merge and not is_adapter(folder):
        raise ConfigError(
            f"'{folder}' is a whole model already", where="--merge", remedy="leave --merge out"
        )
    if dtype and not (merge or gguf):
        raise ConfigError("only merged weights are converted", where="--dtype", remedy="--merge")
    if not dry_run:
        output.print_line(_write(source, folder, out, merge=merge, gguf=gguf, dtype=dtype))
        if push is not None:
            from rlvr_core.terminal.live import waiting

            with waiting("uploading"):
                hub.push(out, folder, push, source.run, private=private)
        return
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary, out.name)
        _write(source, folder, made, merge=merge, gguf=gguf, dtype=dtype)
        hub.show(made, folder, str(push), source.run)


def _write(
    model: ModelRef, folder: Path, out: Path, *, merge: bool, gguf: bool, dtype: str | None
) -> str:
    """Write what was asked for; say what it is."""
    from rlvr_core.lora.export import is_adapter, write_merged
    from rlvr_core.step.model import DTYPES
    from rlvr_core.terminal.live import waiting

    section = model.sections().get("model", {})
    name = dtype or section.get("dtype", "float32")
    trust = section.get("trust_remote_code", False)
    adapter = is_adapter(folder)
    if gguf:
        with waiting("writing the GGUF file"), tempfile.TemporaryDirectory() as temporary:
            whole = folder
            if adapter:
                whole = Path(temporary, "merged")
                write_merged(folder, whole, DTYPES["float32"], trust_remote_code=trust)
            from rlvr_lab.export.gguf import write_gguf

            write_gguf(whole, out, name, model.label)
        return f"GGUF ({name}): {out}"
    if merge:
        with waiting("merging the adapter"):
            write_merged(folder, out, DTYPES[name], trust_remote_code=trust)
        return f"merged model ({name}): {out}"
    with waiting("copying the model"):
        _copy_model(folder, out)
    return f"{'adapter' if adapter else 'model'}: {out}"


def _copy_model(checkpoint: Path, out: Path) -> None:
    """Copy a checkpoint without the files that only its run needs."""
    from rlvr_core.lora.export import new_folder
    from rlvr_core.record.provenance.lineage import write_lineage

    with new_folder(out) as folder:
        for file in sorted(checkpoint.iterdir()):
            if file.is_file() and file.name != "COMPLETE":
                shutil.copyfile(file, folder / file.name)
        write_lineage(checkpoint, folder, None)
