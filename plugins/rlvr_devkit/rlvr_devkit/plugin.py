"""Registers what rlvr-devkit offers."""

from __future__ import annotations

from rlvr_core.api import Registrar, hookimpl


@hookimpl
def register_commands(registrar: Registrar) -> None:
    """Add the commands."""
    registrar.add(
        "check",
        "rlvr_devkit.conformance.command:check",
        summary="Check what an installed plugin's components promise (rlvr plugins check).",
    )
    registrar.add(
        "new",
        "rlvr_devkit.scaffold.command:new",
        summary="Write the package of a plugin, with tests.",
    )
    registrar.add(
        "schema",
        "rlvr_devkit.schema:schema_command",
        summary="Print the JSON schema of configs, for editors.",
    )
    registrar.add(
        "tiny-model",
        "rlvr_devkit.tiny_command:tiny_model",
        summary="Make a tiny model to try things on.",
    )
