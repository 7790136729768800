"""``rlvr view``: a local web app over the runs in a folder."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import click

from rlvr_core.toolkit import looks_like_run, print_line

ADDRESS = "127.0.0.1"
PORT = 6806


@click.command()
@click.argument("folder", default="runs", metavar="[DIR]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port on this machine; 0 takes a free one.",
)
def view(folder: str, port: int) -> None:
    """Browse runs and their rollouts in a web browser, live while they are running.

    DIR is a folder of run folders, or the folder of one run. It serves this machine alone, needs
    no network, and ends with Ctrl-C. From elsewhere: ssh -L 6806:127.0.0.1:6806 HOST

    Example: rlvr view runs
    """
    from rlvr_core.api import ConfigError, MachineError

    root = Path(folder)
    if not root.is_dir():
        raise ConfigError(
            f"there is no folder '{folder}'",
            where="DIR",
            remedy="say where runs are: rlvr view DIR, or start one: rlvr run CONFIG",
        )
    inside = [entry for entry in root.iterdir() if not entry.name.startswith(".")]
    if inside and not any(entry.is_dir() for entry in inside) and not looks_like_run(root):
        raise ConfigError(
            f"'{folder}' holds files, and no folder of a run",
            where="DIR",
            remedy="say where runs are: rlvr view DIR; run.dir of their config is 'runs' as a rule",
        )
    try:
        import uvicorn

        from rlvr_view.viewer.app import application
    except ImportError as error:
        raise MachineError(
            f"rlvr view needs starlette and uvicorn, which do not import: {error}",
            remedy='pip install "rlvr-core[view]"',
        ) from error
    from rlvr_view.viewer.index import Cache
    from rlvr_view.viewer.runs import Runs

    app = application(Runs(root), Cache())
    with _listening(port) as bound:
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=1
        )
        print_line(f"http://{ADDRESS}:{bound.getsockname()[1]}/  (Ctrl-C ends it)")
        uvicorn.Server(config).run(sockets=[bound])


def _listening(port: int) -> socket.socket:
    """Return a socket that listens on this machine.

    Raises:
        MachineError: If the port is taken, or may not be used.
    """
    from rlvr_core.api import MachineError

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((ADDRESS, port))
        listener.listen()
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            what = f"port {port} is in use on this machine, perhaps by another rlvr view"
        else:
            what = f"port {port} cannot be used: {error.strerror}"
        raise MachineError(what, remedy="take a free one: rlvr view --port 0") from error
    return listener
