"""Registers the components and commands of rlvr-cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr_core.api import Registrar, hookimpl

if TYPE_CHECKING:  # ``rlvr --help`` reads the commands below, and must not wait for torch
    from collections.abc import Callable
    from pathlib import Path

    from rlvr_core.api import Store
    from rlvr_core.api.forward import RowSplit
    from rlvr_core.api.launching import RunMirror
    from rlvr_core.config.model import RunConfig


@hookimpl
def register_engines(registrar: Registrar) -> None:
    """Add the engines."""
    registrar.add(
        "ray",
        "rlvr_cluster.ray.engine:RayEngine",
        summary="Another engine in actors on the nodes of a Ray cluster; lost actors are replaced.",
    )


@hookimpl
def register_launchers(registrar: Registrar) -> None:
    """Add the launchers."""
    registrar.add(
        "slurm",
        "rlvr_cluster.jobs.slurm:SlurmLauncher",
        summary="A batch job on a Slurm cluster; the command does not wait for it.",
    )
    registrar.add(
        "ray",
        "rlvr_cluster.jobs.ray:RayLauncher",
        summary="A job on a Ray cluster, submitted to its job server.",
    )


@hookimpl
def register_verifier_pools(registrar: Registrar) -> None:
    """Add the verifier pools."""
    registrar.add(
        "ray-pool",
        "rlvr_cluster.ray.verifier_pool:RayVerifierPool",
        summary="Verifiers in actors on the nodes of a Ray cluster.",
    )


@hookimpl
def register_forward_paths(registrar: Registrar) -> None:
    """Add the forward paths."""
    registrar.add(
        "context-parallel",
        "rlvr_cluster.context.parallel:find_context",
        summary="Packed rows split over processes; train.context_parallel takes it by itself.",
    )


@hookimpl
def register_commands(registrar: Registrar) -> None:
    """Add the commands."""
    registrar.add(
        "sweep",
        "rlvr_cluster.sweeps.command:sweep",
        summary="Run one config with different values, and compare the runs.",
    )
    registrar.add(
        "jobs",
        "rlvr_cluster.jobs.command:jobs",
        summary="Watch, stop and fetch what was launched elsewhere.",
    )


@hookimpl
def split_rows(config: RunConfig) -> RowSplit:
    """Create what splits rows over processes."""
    from rlvr_cluster.context.parallel import ContextParallel

    return ContextParallel(config)


@hookimpl
def mirror_run(
    uri: str, open_store: Callable[[str], Store], keep: int, say: Callable[[str], None]
) -> RunMirror:
    """Create the copy of the run's folder in a store."""
    from rlvr_cluster.stores.mirror import FolderMirror

    return FolderMirror(uri, open_store, keep, say)


@hookimpl
def open_store(uri: str) -> Store | None:
    """Open ``file://…`` as a store."""
    if uri[:7].lower() != "file://":
        return None
    from rlvr_cluster.stores.folder_store import folder_store

    return folder_store(uri)


@hookimpl
def locate_model(reference: str) -> Path | None:
    """Fetch a checkpoint of a run that is kept in a store."""
    if "://" not in reference or "/checkpoints/step" not in reference:
        return None
    from rlvr_cluster.stores.fetch import fetch_model

    return fetch_model(reference)
