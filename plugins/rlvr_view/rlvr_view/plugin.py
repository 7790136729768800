"""Registers the commands and the guard of rlvr-view."""

from __future__ import annotations

from rlvr_core.api import Registrar, hookimpl


@hookimpl
def register_commands(registrar: Registrar) -> None:
    """Add the commands."""
    registrar.add(
        "report",
        "rlvr_view.report.command:report",
        summary="Write a page about one run, or compare several.",
    )
    registrar.add(
        "view",
        "rlvr_view.viewer.command:view",
        summary="Browse runs and rollouts in a web browser.",
    )
    registrar.add(
        "chat",
        "rlvr_view.chat.command:chat",
        summary="Talk with a model or a run's checkpoint in the terminal.",
    )
    registrar.add(
        "diff",
        "rlvr_view.diff:diff",
        summary="Say in what two runs differ.",
    )


@hookimpl
def register_guards(registrar: Registrar) -> None:
    """Add the guard that records for the viewer."""
    registrar.add(
        "gaps",
        "rlvr_view.gaps_guard:Gaps",
        summary="Record by how much trainer and engine differ on each token, for rlvr view.",
    )
