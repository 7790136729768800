"""A real S3 and SageMaker for as far as moto goes, over real sockets, with faults in between."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid

import boto3
import pytest

from plugins.rlvr_sagemaker.tests.faulty import Proxy
from rlvr_sagemaker import aws
from rlvr_sagemaker.place import Place
from rlvr_sagemaker.store import S3Store


@pytest.fixture(scope="session")
def server():
    """The port of moto's server, in a process of its own: Flask stays out of this one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            assert process.poll() is None, "moto's server ended"
            assert time.monotonic() < end, "moto's server does not answer"
            time.sleep(0.1)
    yield port
    process.terminate()
    process.wait(30)


@pytest.fixture(scope="session")
def session_proxy(server):
    proxy = Proxy(server)
    yield proxy
    proxy.close()


@pytest.fixture
def cloud(server, session_proxy, monkeypatch, tmp_path):
    """An account with a bucket, reached through a proxy that can be told to spoil requests."""
    session_proxy.calm()
    session_proxy.done.clear()
    session_proxy._random.seed(0)  # no test's faults depend on the tests before it
    session_proxy.requests.clear()
    for name, value in {
        "AWS_ENDPOINT_URL": session_proxy.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test-only-not-real",
        "AWS_DEFAULT_REGION": "eu-north-1",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        "AWS_EC2_METADATA_DISABLED": "true",
        aws.TIMEOUT: "1.5",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_DATA_HOME": str(tmp_path / "share"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    aws.client.cache_clear()
    session_proxy.bucket = f"b-{uuid.uuid4().hex[:12]}"
    # not through the proxy: the first request of all may take the server seconds
    boto3.client("s3", endpoint_url=f"http://127.0.0.1:{server}").create_bucket(
        Bucket=session_proxy.bucket,
        CreateBucketConfiguration={"LocationConstraint": "eu-north-1"},
    )
    yield session_proxy
    session_proxy.calm()
    aws.client.cache_clear()


@pytest.fixture
def store(cloud):
    return S3Store(Place(cloud.bucket, "here"))


@pytest.fixture
def write_project(tmp_path, monkeypatch):
    """Writes a user's project and goes there; no option comes from the environment."""

    def write(files, name="project"):
        folder = tmp_path / name
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        monkeypatch.chdir(folder)
        for variable in list(os.environ):
            if variable.startswith("RLVR_SAGEMAKER"):
                monkeypatch.delenv(variable)
        return folder

    return write
