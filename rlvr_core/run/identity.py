"""Hashes of a run's code, data and model: recorded at its start, compared when it is resumed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Complaint, ConfigError, Json, Problem
from rlvr_core.data.prompts import Renderer
from rlvr_core.plugins import files
from rlvr_core.record.manifest import Manifest, versions
from rlvr_core.record.provenance.code import code_hash, packages
from rlvr_core.record.provenance.environment import environment, threads
from rlvr_core.record.provenance.lineage import of_run
from rlvr_core.record.provenance.model import model_identity, tokenizer_identity
from rlvr_core.record.rundir import RunFolder

if TYPE_CHECKING:
    from rlvr_core.record.provenance.compare import Difference
    from rlvr_core.run.inputs import Inputs

REFUSED = ("model", "tokenizer", "prompts", "verifiers")
"""Parts that a run must be resumed with; of the others it is said that they are not the same."""


def identify(
    inputs: Inputs, manifest: Manifest, say: Callable[[str], None], *, fresh: bool
) -> None:
    """Record what a run is made of; when it is resumed, compare it with what it was made of.

    Args:
        inputs: What the run begins with.
        manifest: The run's ``run.json``; its ``identity`` is written.
        say: Called with each difference that does not stop the run.
        fresh: Whether the run is new.

    Raises:
        ConfigError: If a resumed run has another model, tokenizer or verifier, or other prompts.
    """
    identity = identity_of(inputs)
    recorded = None if fresh else manifest.fields.get("identity")
    if recorded is not None:
        lines = _check(inputs, manifest, identity)
        if not lines:
            return
        for line in lines:
            say(f"warning: not as when the run began: {line}")
        now = {"time": datetime.now(UTC).isoformat(), "differences": lines}
        manifest.update(resumed_over=[*manifest.fields.get("resumed_over", []), now])
    elif not fresh:
        say("note: what the run was made of when it began is not recorded, and not compared")
    manifest.update(identity=identity | {"lineage": of_run(inputs, manifest.folder)})


def identity_of(inputs: Inputs) -> dict[str, Json]:
    """Return what a run is made of."""
    config, specs = inputs.config, inputs.judge.plan.specs
    return {
        "model": model_identity(str(inputs.model_path), config.model.revision),
        "tokenizer": tokenizer_identity(inputs.tokenizer),
        "prompts": {
            "text_as_chat": inputs.renderer.text_as_chat,
            "description": inputs.renderer.describe(),
            "sha256": inputs.data.prompts,
            "evaluations": {
                name: _rendered(inputs.renderer, problems)
                for name, problems in inputs.evaluations.held_out.items()
            },
        },
        "verifiers": {
            name: code_hash(name.partition("#")[0], spec.target) for name, spec in specs.items()
        },
        "code": packages(inputs.resolved.host),
        "threads": threads(),
        "environment": environment(),
    }


def _rendered(renderer: Renderer, problems: Iterable[Problem]) -> str:
    """Return the hash of the token ids of an evaluation's prompts, in order."""
    digest = hashlib.sha256()
    for problem in problems:
        digest.update(repr(renderer.render(problem)).encode())
    return digest.hexdigest()


def _check(inputs: Inputs, manifest: Manifest, identity: Mapping[str, Any]) -> list[str]:
    """Return allowed differences between a resumed run and its record; refuse the others."""
    from rlvr_core.record.provenance.compare import differences

    recorded = manifest.fields["identity"]
    accepted = tuple(inputs.config.run.accept_changed)
    differ = differences(recorded, identity)
    before = {"versions": manifest.fields.get("versions")}
    differ += differences(before, {"versions": versions(inputs.resolved.host.plugin_versions())})
    refused = [difference for difference in differ if _stops(difference, accepted)]
    if refused:
        raise ConfigError.collect(_complaints(refused, manifest.folder, accepted))
    return [f"{difference.part}: {difference.words}" for difference in differ]


def _stops(difference: Difference, accepted: Sequence[str]) -> bool:
    if difference.part not in REFUSED:
        return False
    if difference.part == "verifiers":
        if (
            files.parse(difference.key.partition("#")[0]) is not None
            or difference.values[0] is None
        ):
            return False  # a file is compared with its copy; a new verifier has none before it
        return not str(difference.values[1]).startswith(tuple(accepted) or ("-",))
    return difference.key in ("sha256", "chat_template", "text_as_chat")


_CHANGED = {
    "model": "the model is not the one the run began with",
    "tokenizer": "the tokenizer is not the one the run began with",
    "prompts": "the prompts are not rendered as when the run began",
    "verifiers": "the code of verifier {key} is not that the run began with",
}


def _complaints(
    refused: Sequence[Difference], folder: RunFolder, accepted: Sequence[str]
) -> list[Complaint]:
    digests = [str(each.values[1])[:8] for each in refused if each.part == "verifiers"]
    listed = ", ".join([*accepted, *digests])
    of_verifiers = (
        "install the version the run began with",
        f"to go on with the code that is here: --set 'run.accept_changed=[{listed}]'",
    )
    of_others = ("put it back as it was to go on, or start a new run",)
    return [
        Complaint(
            f"{_CHANGED[each.part].format(key=each.key)} ({each.key})",
            str(folder.path),
            of_verifiers if each.part == "verifiers" else of_others,
        )
        for each in refused
    ]
