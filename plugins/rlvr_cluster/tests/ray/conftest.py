"""The laboratory, and clusters with a job server."""

import contextlib
import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from rlvr_core.testing.run_lab import lab, make_lab, model_dir, toy_site

__all__ = ["lab", "make_lab", "model_dir", "toy_site"]


@pytest.fixture(scope="session")
def free_port():
    """Returns a port that nobody listens at."""

    def find():
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            return listener.getsockname()[1]

    return find


@pytest.fixture(scope="session")
def ray_jobs(free_port):
    """A cluster with a job server at ``server``, by the options of its head."""

    @contextlib.contextmanager
    def start(**head):
        cluster_utils = pytest.importorskip("ray.cluster_utils")
        port = free_port()
        # jobs find their cluster by a file there, which another cluster of this machine would
        # write; names of sockets are short
        place = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        options = {
            "temp_dir": place,
            "include_dashboard": True,
            "dashboard_port": port,
            "dashboard_agent_listen_port": free_port(),
            "object_store_memory": 100 * 2**20,
        }
        cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=options | head)
        Path(place, "ray_current_cluster").write_text(cluster.address)
        cluster.server = f"http://127.0.0.1:{port}"
        try:
            yield cluster
        finally:
            cluster.shutdown()
            shutil.rmtree(place, ignore_errors=True)

    return start
