"""What moto cannot show: answers of the real services, by botocore's Stubber."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from botocore.stub import Stubber

from rlvr_core.errors import MachineError
from rlvr_sagemaker import aws
from rlvr_sagemaker import job as job_module
from rlvr_sagemaker.iam import policies
from rlvr_sagemaker.place import Place
from rlvr_sagemaker.store import S3Store

GUIDE = (Path(__file__).parents[3] / "docs" / "sagemaker.md").read_text(encoding="utf-8")
LISTED = {"Key": "here/a", "Size": 1, "ETag": '"x"'}


def test_every_place_of_the_guide_is_one_that_the_policies_open():
    found = policies(
        account="123456789012", region="eu-north-1", store="s3://my-bucket/rlvr", role="r"
    )
    (opened,) = [one["Resource"] for one in found["job"]["Statement"] if one["Sid"] == "UseStore"]
    inside = opened.removeprefix("arn:aws:s3:::").rstrip("*")
    places = re.findall(r"s3://(?:\$BUCKET|my-bucket)/([\w./-]*)", GUIDE)
    assert len(places) > 8
    for place in places:
        assert f"my-bucket/{place}/".startswith(inside), place


@pytest.mark.parametrize("there", [False, True])
def test_what_is_not_there_is_not_taken_for_forbidden(cloud, tmp_path, there):
    """S3 says 403 for a missing object to whoever may not list the whole bucket."""
    store = S3Store(Place(cloud.bucket, "here"))
    pages = {"Contents": [LISTED] if there else [], "IsTruncated": False}
    asked = {"Bucket": cloud.bucket, "Prefix": "here/a"}
    with Stubber(aws.client("s3")) as stub:
        stub.add_client_error("head_object", "403", http_status_code=403)
        stub.add_response("list_objects_v2", pages, asked)
        if there:
            with pytest.raises(MachineError, match="lacks a permission"):
                store.head("a")
        else:
            assert store.head("a") is None
        stub.add_client_error("get_object", "AccessDenied", http_status_code=403)
        stub.add_response("list_objects_v2", pages, asked)
        with pytest.raises(MachineError if there else FileNotFoundError):
            store.get("a", tmp_path / "a")


def test_bytes_are_counted_as_they_go(cloud, store, tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 1000)
    store.put(tmp_path / "a", "a")
    assert store.moved >= 2000  # read once, sent once


def attempt(root, monkeypatch, **said):
    """The job's entry point with a description of the test's."""
    code = root / "input" / "data" / "code"
    code.mkdir(parents=True)
    said = {"install": [], "secrets": {}, "arguments": ["run", "c.yaml"], "runs": None} | said
    (code / "rlvr-job.json").write_text(json.dumps(said))
    monkeypatch.setenv("SM_HOSTS", '["a"]')
    monkeypatch.setenv("SM_CURRENT_HOST", "a")
    return job_module.Attempt(root)


@pytest.mark.parametrize("works", [True, False])
def test_t87_what_the_run_could_not_send_is_sent_again_or_fails_the_job(
    cloud, tmp_path, monkeypatch, works
):
    from rlvr_core.record.mirror import BEHIND, Mirror

    runs = f"s3://{cloud.bucket}/runs"
    one = attempt(tmp_path, monkeypatch, runs=runs)
    run = tmp_path / "checkpoints" / "demo-20250101-000000"
    run.mkdir(parents=True)
    (run / "run.json").write_text('{"outcome": "finished"}')
    assert one._all_sent()  # no mirror, nothing to send
    (run / BEHIND).touch()

    def push(command, **_):
        assert command[-4:] == ["jobs", "push", str(run), runs]
        if works:
            Mirror(S3Store(Place.parse(f"{runs}/{run.name}")), run, keep=1).once()
        return job_module.subprocess.CompletedProcess(command, 0 if works else 4)

    monkeypatch.setattr(job_module.subprocess, "run", push)
    assert one._all_sent() is works
    assert (run / BEHIND).exists() is not works
