"""A server of somebody else's package, in a process of its own."""

import contextlib
import socket
import subprocess
import time


@contextlib.contextmanager
def serving(command):
    """The port at which a command, which takes it as its last word, serves within the block."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    process = subprocess.Popen([*command, str(port)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    try:
        yield port
    finally:
        process.kill()
        process.wait()
