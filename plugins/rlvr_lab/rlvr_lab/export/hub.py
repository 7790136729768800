"""``rlvr export --push``: an export, with a card, as a repository of the Hugging Face Hub."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rlvr_core.api import ConfigError, Json, MachineError
from rlvr_core.record.provenance.lineage import lineage_lines, lineage_of
from rlvr_core.record.results import facts
from rlvr_core.record.rundir import RunFolder
from rlvr_core.record.secrets import secrets_in
from rlvr_core.record.view import RunView
from rlvr_core.terminal import output

CARD = "README.md"
_TOKENS = ("tokenizer.json", "vocab.json", "merges.txt")
"""Lists of words, among which some look like keys."""
_READ = (".json", ".md", ".jinja", ".txt", ".yaml", ".py")


def check_push(repo: str, *, dry_run: bool) -> None:
    """Refuse what cannot be pushed, before anything is made.

    Raises:
        ConfigError: If the repository's name is none.
        MachineError: If there is no token, or the Hub is switched off.
    """
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise ConfigError(f"'{repo}' is no repository: {error}", where="--push") from error
    if dry_run:
        return
    if constants.HF_HUB_OFFLINE:
        raise MachineError(
            "HF_HUB_OFFLINE is set", where="--push", remedy="unset it, or try --dry-run"
        )
    if not get_token():
        raise MachineError(
            "there is no token of the Hugging Face Hub here",
            where="--push",
            remedy="hf auth login, or HF_TOKEN=...; --dry-run needs none",
        )


def push(made: Path, checkpoint: Path, repo: str, run: RunFolder | None, *, private: bool) -> None:
    """Upload an export and its card in one commit.

    Raises:
        ConfigError: If something in it looks like a secret.
        MachineError: If the Hub refuses it, or cannot be reached.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    card = card_of(made, checkpoint, repo, run)
    files = _files(made)
    check_secrets(files, card)
    adds: list[Any] = [CommitOperationAdd(name, path) for name, path in files if name != CARD]
    adds.append(CommitOperationAdd(CARD, card.encode()))
    api = HfApi(library_name="rlvr")
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        done = api.create_commit(repo, adds, commit_message="Model trained with rlvr")
    except (OSError, ValueError) as error:  # its HTTP errors are OSErrors
        raise MachineError(
            f"the Hub did not take it: {' '.join(str(error).split())[:500]}",
            where=f"--push {repo}",
            remedy=f"what was exported is complete: {made}",
        ) from error
    output.print_line(f"pushed: {done.commit_url}")


def show(made: Path, checkpoint: Path, repo: str, run: RunFolder | None) -> None:
    """Print what ``push`` would upload.

    Raises:
        ConfigError: If something in it looks like a secret.
    """
    card = card_of(made, checkpoint, repo, run)
    files = _files(made)
    check_secrets(files, card)
    sizes = {name: path.stat().st_size for name, path in files} | {CARD: len(card.encode())}
    output.print_line(f"would be pushed to {repo}; nothing was sent, nothing is kept:")
    for name, size in sorted(sizes.items()):
        output.print_line(f"{size:>14,}  {name}")
    output.print_line(f"{sum(sizes.values()):>14,}  in all")
    output.print_line(f"\n{CARD}:\n\n{card}")


def card_of(made: Path, checkpoint: Path, repo: str, run: RunFolder | None) -> str:
    """Return the model card: where the model came from, how its run went, its config.

    Args:
        made: The export: a folder or a GGUF file.
        checkpoint: What it was made of.
        repo: Where it goes.
        run: The run it is a checkpoint of; None of an earlier export.
    """
    lineage = lineage_of(checkpoint)
    model = (lineage or {}).get("model") or {}
    adapter = made.is_dir() and (made / "adapter_config.json").is_file()
    head: dict[str, Json] = {
        "library_name": "peft" if adapter else "transformers" if made.is_dir() else "gguf",
        "license": "unknown",
        "pipeline_tag": "text-generation",
        "tags": ["rlvr", "reinforcement-learning"],
    }
    base = str(model.get("path") or "")
    if re.fullmatch(r"[\w.-]+/[\w.-]+", base) and not Path(base).exists() and base[0] not in ".~":
        head["base_model"] = base
        head["base_model_relation"] = "adapter" if adapter else "finetune"
    kind = "LoRA adapter" if adapter else "model" if made.is_dir() else "model in GGUF"
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---",
        f"# {repo.rpartition('/')[2]}",
        f"A {kind} trained by reinforcement learning with verifiable rewards, with rlvr.",
        "The licence is not known to the program that wrote this card: that of the base model and "
        "of the data apply.",
    ]
    if lineage is not None:
        parts += ["## Origin", _table(lineage_lines(lineage))]
    if run is not None:
        view = RunView(run)
        summary = view.summary()
        text = yaml.safe_dump(view.config, sort_keys=False, allow_unicode=True)
        parts += ["## The run", _table(facts(summary))]
        parts += _evaluations(summary["curve"]["evals"])
        parts += ["## Config", f"```yaml\n{text}```"]
    return "\n\n".join(parts) + "\n"


def check_secrets(files: Sequence[tuple[str, Path]], card: str) -> None:
    """Refuse to upload what looks like a secret.

    Raises:
        ConfigError: If there is something; names file and line.
    """
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, CARD)
        written.write_text(card, encoding="utf-8")
        complaints = [
            complaint
            for name, path in [*files, (CARD, written)]
            if path.suffix in _READ and name not in _TOKENS
            for complaint in secrets_in(path, name)
        ]
    if complaints:
        raise ConfigError.collect(complaints)


def _files(made: Path) -> list[tuple[str, Path]]:
    if made.is_file():
        return [(made.name, made)]
    return [(str(p.relative_to(made)), p) for p in sorted(made.rglob("*")) if p.is_file()]


def _evaluations(curves: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        (f"{curve['task']}, {curve['metric']}, step {step}", f"{value:.4g}")
        for curve in curves
        for step, value in zip(curve["step"], curve["value"], strict=True)
        if value is not None
    ]
    return ["## Held-out problems", _table(rows)] if rows else []


def _table(rows: Sequence[tuple[str, str]]) -> str:
    cells = [tuple(text.replace("|", "\\|").replace("\n", " ") for text in row) for row in rows]
    return "\n".join(["| | |", "|---|---|", *(f"| {label} | {value} |" for label, value in cells)])
