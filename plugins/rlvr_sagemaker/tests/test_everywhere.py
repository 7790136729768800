"""s3:// wherever a path is read, and a run that is mirrored while S3 fails."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import datasets
import pytest
import torch
import yaml
from safetensors.torch import load_file

from rlvr_core.api import DataError, MachineError
from rlvr_core.builtin.datasets.hub import cached_uri, hub_rows
from rlvr_core.builtin.evals.model_ref import find_model
from rlvr_core.builtin.samplers.order import read_order
from rlvr_core.data.rows import read_rows
from rlvr_core.data.uri import cached_at, local_path
from rlvr_core.record.checkpoints import verify
from rlvr_core.testing.random_model import save_random_model
from rlvr_sagemaker import aws
from rlvr_sagemaker.place import Place
from rlvr_sagemaker.store import S3Store


def put(cloud, folder):
    """Copy a folder to the bucket; its URI."""
    store = S3Store(Place(cloud.bucket, folder.name))
    for path in folder.rglob("*"):
        if path.is_file():
            store.put(path, path.relative_to(folder).as_posix())
    return str(store.place)


def test_files_and_order_files(cloud, tmp_path):
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "rows.jsonl").write_text('{"a": 1}\n')
    (folder / "order.txt").write_text("b\na\n")
    uri = put(cloud, folder)
    assert [row for _, row in read_rows(local_path(f"{uri}/rows.jsonl"))] == [{"a": 1}]
    assert read_order(f"{uri}/order.txt", ["a", "b"]) == ["b", "a"]
    with pytest.raises(DataError, match="nothing at"):
        read_order(f"{uri}/none.txt", ["a"])


def test_a_data_set_saved_to_disk(cloud, tmp_path):
    saved = tmp_path / "saved"
    datasets.DatasetDict({"train": datasets.Dataset.from_list([{"x": 1}, {"x": 2}])}).save_to_disk(
        saved
    )
    uri = put(cloud, saved)
    assert list(hub_rows(uri, None, "train")) == [(1, {"x": 1}), (2, {"x": 2})]
    with pytest.raises(DataError, match="no split 'test'"):
        list(hub_rows(uri, None, "test"))
    assert list(hub_rows(str(saved), None, "train"))[1] == (2, {"x": 2})


def test_the_cache_is_asked_before_the_hub(cloud, tmp_path, monkeypatch, caplog):
    leaf = tmp_path / "split"
    datasets.Dataset.from_list([{"x": 7}]).save_to_disk(leaf)
    base = f"s3://{cloud.bucket}/sets"
    uri = cached_uri(base, "org/name", "main", "train", None)
    assert uri == f"{base}/org--name/main/train"
    store = S3Store(Place.parse(uri))
    for path in leaf.iterdir():
        store.put(path, path.name)
    asked = []

    def hub(*words, **_):
        asked.append(words)
        return [{"x": 8}]

    monkeypatch.setattr(datasets, "load_dataset", hub)
    with cached_at(base):
        assert list(hub_rows("org/name", "main", "train")) == [(1, {"x": 7})]
        assert asked == []
        assert list(hub_rows("org/name", "main", "test")) == [(1, {"x": 8})]
        assert "so the hub is asked" in caplog.text
        monkeypatch.setattr(aws, "_ATTEMPTS", 1)
        aws.client.cache_clear()
        caplog.clear()
        cloud.down = True
        assert list(hub_rows("org/name", "main", "train")) == [(1, {"x": 8})]
        assert "cannot be read" in caplog.text
    asked.clear()
    assert list(hub_rows("org/name", "main", "train")) == [(1, {"x": 8})]
    assert len(asked) == 1


def test_a_checkpoint_on_s3_is_asked_as_its_run_did_and_verified(cloud, tmp_path):
    run = tmp_path / "demo-20250101-000000"
    step = run / "checkpoints" / "step000002"
    step.mkdir(parents=True)
    (step / "config.json").write_text("{}")
    sha = hashlib.sha256(b"{}").hexdigest()
    seal = {"step": 2, "files": {"config.json": {"size": 2, "sha256": sha}}}
    (step / "COMPLETE").write_text(json.dumps(seal))
    (run / "run.json").write_text("{}")
    (run / "traces.jsonl").write_text("not wanted\n")
    (run / "resolved.yaml").write_text(
        "model: {path: m, dtype: bfloat16}\ntrain: {steps: 2}\n"
        "data: {sources: [core/jsonl], prompt: {system: Be brief.}}\n"
    )
    uri = f"{put(cloud, run)}/checkpoints/step000002"
    found = find_model(uri, step=None, runs_dir="runs")
    assert found.label == "demo-20250101-000000-step000002"
    assert found.sections()["prompt"]["system"] == "Be brief."
    assert found.sections()["model"]["dtype"] == "bfloat16"
    assert not list(found.run.path.glob("*.jsonl"))
    (step / "config.json").write_text("[]")
    put(cloud, run)
    with pytest.raises(MachineError, match=r"content of config\.json has changed"):
        find_model(uri, step=None, runs_dir="runs")
    with pytest.raises(DataError, match="no complete checkpoint step000004"):
        find_model(uri.replace("000002", "000004"), step=None, runs_dir="runs")


def test_without_credentials_it_is_said_what_to_do(cloud, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    aws.client.cache_clear()
    with pytest.raises(MachineError, match="log in first"):
        local_path(f"s3://{cloud.bucket}/x")


HASTY = """
import sys
from rlvr_core.cli.main import main
from rlvr_core.builtin.jobs import mirror
mirror.PATIENCE = float(sys.argv.pop(1))
sys.exit(main())
"""


def rlvr(*words, check=0, patience=60.0):
    done = subprocess.run(
        [sys.executable, "-c", HASTY, str(patience), *words],
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == check, done.stdout + done.stderr
    return done


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A config of local paths; the names of what it needs."""
    save_random_model(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given").mkdir()
    rows = [{"id": f"p{i}", "question": f"Say {i}.", "answer": "x"} for i in range(40)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "given" / "rows.jsonl").write_text(text)
    (tmp_path / "given" / "order.txt").write_text("".join(f"p{i}\n" for i in range(39, -1, -1)))
    options = {"path": "given/rows.jsonl", "prompt": "question", "id": "id"}
    config = {
        "run": {"name": "far", "seed": 1},
        "model": {"path": "model"},
        "data": {"sources": [{"use": "core/jsonl", "with": options | {"verifier": "core/exact"}}]},
        "sampler": {
            "use": "curriculum",
            "with": {
                "order": "given/order.txt",
                "drop_zero_variance": False,
            },
        },
        "sampling": {"n": 4, "max_tokens": 8},
        "engine": "transformers",
        "loss": {"use": "grpo", "with": {"beta": 0.1}},
        "train": {"steps": 12, "prompts_per_step": 4, "lr": 1e-3, "warmup_steps": 1},
        "checkpoint": {"every": 2, "keep": 2},
        "guards": [{"use": "core/preflight", "off": True}],
    }
    Path("config.yaml").write_text(yaml.safe_dump(config))
    return tmp_path


@pytest.mark.slow
def test_a_run_of_s3_alone_is_the_run_of_local_files(cloud, written):
    """Model, problems and order from S3, the run mirrored there, every tenth request spoilt."""
    rlvr("run", "config.yaml", "--display", "none", "--set", "run.dir=here")
    (plain,) = Path("here").iterdir()
    given, model = put(cloud, written / "given"), put(cloud, written / "model")
    mirror = f"s3://{cloud.bucket}/runs"
    cloud.rate = 0.1
    done = rlvr(
        "run", "config.yaml", "--display", "plain",
        "--set", f"model.path={model}",
        "--set", f"data.sources.0.with.path={given}/rows.jsonl",
        "--set", f"sampler.with.order={given}/order.txt",
        "--set", f"run.mirror={mirror}",
    )  # fmt: skip
    cloud.calm()
    assert "lacks" not in done.stderr
    (far,) = Path("runs").iterdir()
    assert (plain / "metrics.jsonl").read_bytes() == (far / "metrics.jsonl").read_bytes()
    store = S3Store(Place.parse(f"{mirror}/{far.name}"))
    back = written / "back"
    for key in store.list():
        store.get(key, back / key)
    names = {path.relative_to(back) for path in back.rglob("*") if path.is_file()}
    local = {
        path.relative_to(far)
        for path in far.rglob("*")
        if path.is_file() and not path.name.startswith(".") and "latest" not in path.parts
    }
    assert names == local | {Path("checkpoints/latest"), Path(".owner.json")}
    assert json.loads((back / ".owner.json").read_text())["released"] is True
    for name in local:
        assert (back / name).read_bytes() == (far / name).read_bytes(), name
    kept = sorted(path.name for path in (back / "checkpoints").glob("step*"))
    assert kept == ["step000010", "step000012"]
    assert verify(back / "checkpoints" / "step000012") is None
    ours = load_file(plain / "checkpoints/step000012/model.safetensors")
    theirs = load_file(back / "checkpoints/step000012/model.safetensors")
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.slow
def test_a_store_that_stays_away_costs_a_run_nothing_but_its_copy(cloud, written):
    cloud.down = True
    mirror = f"s3://{cloud.bucket}/runs"
    words = ("run", "config.yaml", "--display", "plain", "--set", f"run.mirror={mirror}")
    done = rlvr(*words, patience=1.0, check=5)  # finished, and its store lacks something
    assert "the run goes on" in done.stderr
    assert "rlvr jobs push" in done.stderr
    (run,) = Path("runs").iterdir()
    assert json.loads((run / "run.json").read_text())["outcome"] == "finished"
    cloud.calm()
    rlvr("jobs", "push", str(run))
    done = rlvr("jobs", "fetch", mirror, "--to", "home", "--checkpoints", "all")
    home = Path(done.stdout.strip())
    assert verify(home / "checkpoints" / "step000012") is None
    assert "12" in rlvr("show", str(home)).stdout


@pytest.mark.slow
def test_a_mirror_that_nothing_opens_is_refused_before_the_run(cloud, written):
    done = rlvr("run", "config.yaml", "--set", "run.mirror=gopher://x", check=3)
    assert "no plugin opens 'gopher://'" in done.stderr
    assert not list(Path("runs").glob("*"))
