"""``rlvr export``: writes a checkpoint as a folder for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from rlvr_core.api import ConfigError
from rlvr_core.api.services import output


@click.command("export")
@click.argument("model")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--merge", is_flag=True, help="Merge a LoRA adapter into its base model.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="Of merged weights [default: the run's].",
)
@click.option("--step", type=click.IntRange(0), help="Which checkpoint of a run [newest].")
@click.option("--runs-dir", default="runs", show_default=True, help="Folder of run folders.")
def export_(
    model: str, out: Path, merge: bool, dtype: str | None, step: int | None, runs_dir: str
) -> None:
    """Write MODEL, a run's or a checkpoint's, into the new folder OUT.

    MODEL is a run (its name, its folder or 'last': its newest complete checkpoint, or --step), a
    checkpoint, or the folder of a LoRA adapter. Of a run with LoRA, OUT is the adapter as peft
    loads it; with --merge it is a whole model that transformers and vLLM load as it is.
    """
    from rlvr_core.api.services import DTYPES, find_model, load_host
    from rlvr_core.builtin.lora.export import copy_model, is_adapter, write_merged

    output.quiet_libraries()
    found = find_model(model, step=step, runs_dir=runs_dir)
    folder = Path(found.path).expanduser()
    if not folder.is_dir():
        raise ConfigError(
            f"there is no run, checkpoint or adapter '{model}'",
            remedy="name a run, its folder, or a folder in its checkpoints/",
        )
    adapter = is_adapter(folder)
    if merge and not adapter:
        raise ConfigError(
            f"'{folder}' is a whole model already", where="--merge", remedy="leave --merge out"
        )
    if dtype and not merge:
        raise ConfigError("only merged weights are converted", where="--dtype", remedy="--merge")
    waiting = load_host().service("core/waiting")
    if merge:
        section = found.sections().get("model", {})
        name = dtype or section.get("dtype", "float32")
        trust = section.get("trust_remote_code", False)
        with waiting("merging the adapter"):
            write_merged(folder, out, DTYPES[name], trust_remote_code=trust)
        output.print_line(f"merged model ({name}): {out}")
    else:
        with waiting("copying the model"):
            copy_model(folder, out)
        output.print_line(f"{'adapter' if adapter else 'model'}: {out}")
