"""``rlvr env``: a server of environments."""

from __future__ import annotations

import asyncio
import contextlib
import os

import click

from rlvr_core.toolkit import print_line

PORT = 6810


@click.group()
def env() -> None:
    """Serve environments to runs."""


@env.command()
@click.argument("what", metavar="NAME|CONFIG")
@click.option("--set", "options", multiple=True, metavar="KEY=VALUE", help="Option of it.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port; 0 takes a free one.",
)
@click.option("--timeout", default=30.0, show_default=True, help="Seconds one answer may take.")
@click.option(
    "--conversations",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    help="Most conversations at a time.",
)
def serve(
    what: str, options: tuple[str, ...], host: str, port: int, timeout: float, conversations: int
) -> int:
    """Serve an environment to runs that use env/remote, until Ctrl-C.

    NAME is an environment of 'rlvr list environments'; of a CONFIG (*.yaml) its environment is
    served. The server needs no key: everyone who can reach its port can use it.

    Example: rlvr env serve env/lookup
    """
    from rlvr_core.api import MachineError

    try:
        from rlvr_env.servers.server import EnvironmentServer
    except ImportError as error:
        raise MachineError(
            f"rlvr env serve needs websockets, which does not import: {error}",
            remedy='pip install "rlvr-core[env-server]"',
        ) from error
    from rlvr_env.servers.served import served

    environment, name = served(what, options)
    server = EnvironmentServer(environment, name, timeout=timeout, most=conversations)

    def ready(bound: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        print_line(f"{name}: ws://{shown}:{bound}  (Ctrl-C ends it)")

    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(server.run(host, port, ready))
    except OSError as error:
        raise MachineError(
            f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}",
            remedy="choose another --port, or --port 0 for a free one",
        ) from error
    return 0
