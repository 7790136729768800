"""What an account needs: policies, a template, an image."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlvr_core.cli.main import cli
from rlvr_core.errors import ConfigError, MachineError
from rlvr_sagemaker import aws, image, launcher, local
from rlvr_sagemaker.iam import policies
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
    found = policies(**ASKED)
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
    assert stars == {"ListJobs", "LogInToImages", "WriteMetrics"}
    assert not any(
        "*" in action for one in (submitter, job) for s in one.values() for action in s["Action"]
    )


def test_what_is_called_is_allowed():
    """Every call that the code makes is in one of the policies."""
    allowed = set(re.findall(r'"([a-z0-9]+:[A-Za-z]+)"', json.dumps(policies(**ASKED))))
    assert {
        "sagemaker:CreateTrainingJob",
        "sagemaker:AddTags",
        "sagemaker:DescribeTrainingJob",
        "sagemaker:StopTrainingJob",
        "logs:DescribeLogStreams",
        "logs:GetLogEvents",
        "ecr:GetAuthorizationToken",
        "ecr:CreateRepository",
        "s3:ListBucket",
        "s3:GetObject",
        "s3:PutObject",
        "s3:DeleteObject",
        "iam:PassRole",
    } <= allowed


def test_wrong_values_are_told_together():
    with pytest.raises(ConfigError) as caught:
        policies(account="1", region="north", store="s3://b", role="a b")
    assert len(caught.value.complaints) == 3


def test_moto_takes_the_documents(cloud):
    client = aws.client("iam")
    found = policies(**ASKED)
    role = f"r-{cloud.bucket}"
    client.create_role(RoleName=role, AssumeRolePolicyDocument=json.dumps(found["trust"]))
    client.put_role_policy(
        RoleName=role, PolicyName="rlvr", PolicyDocument=json.dumps(found["job"])
    )
    client.create_policy(
        PolicyName=f"p-{cloud.bucket}", PolicyDocument=json.dumps(found["submitter"])
    )


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
import json, sys
with open({log!r}, "a") as file:
    json.dump([sys.argv[1:], "" if sys.stdin.isatty() else sys.stdin.read()], file)
    file.write("\\n")
sys.exit({code})
"""


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """A docker that writes down what it is asked."""
    log = tmp_path / "docker.jsonl"

    def install(code=0):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / "docker"
        program.write_text(FAKE.format(python=sys.executable, log=str(log), code=code))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        return lambda: [json.loads(line) for line in log.read_text().splitlines()]

    return install


def test_t92_one_pinned_base_and_harnesses_apart(tmp_path, monkeypatch):
    source = tmp_path / "pkg"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "rlvr-core"\nversion = "0.1.0"\n[tool.setuptools]\npackages = []\n'
    )
    monkeypatch.setattr(
        image, "_ours", lambda: [("rlvr-core", "0.1.0", source), ("rlvr-x", "2.0", None)]
    )
    folder = tmp_path / "context"
    assert image.context(folder, vllm=False) == ["rlvr-core==0.1.0", "rlvr-x==2.0"]
    text = (folder / "Dockerfile").read_text()
    bases = re.findall(r"^FROM (.*)$", text, re.MULTILINE)
    assert bases == [image.BASE]
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-bookworm", image.BASE)
    assert "LD_LIBRARY_PATH" not in text
    assert "/opt/harness/bin/pip install lm_eval" in text
    assert text.index("install -c /opt/rlvr/constraints.txt torch") < text.index(
        "requirements.txt wheels/"
    )
    assert 'ENTRYPOINT ["python", "-m", "rlvr_sagemaker.job"]' in text
    (wheel,) = (folder / "wheels").glob("*.whl")
    assert zipfile.ZipFile(wheel).testzip() is None
    pins = (folder / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[a-z0-9.-]+==[^+\s]+", pin) for pin in pins)
    assert any(pin.startswith("torch==") for pin in pins)
    assert not any(pin.startswith(("rlvr", "pip==")) for pin in pins)


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
    monkeypatch.setattr(image, "context", lambda folder, base, vllm: ["rlvr-core==0.1.0"])
    said = []
    for _ in range(2):
        image.build(IMAGE, push=True, say=said.append, folder=tmp_path / "c")
    calls = asked()
    assert [words[0] for words, _ in calls] == ["build", "login", "push"] * 2
    assert calls[0][0] == [
        "build",
        "--platform",
        "linux/amd64",
        "--tag",
        IMAGE,
        str(tmp_path / "c"),
    ]
    assert "--password-stdin" in calls[1][0]
    assert calls[1][1]
    assert calls[1][1] not in calls[1][0]
    assert said.count("made the repository team/rlvr") <= 1
    names = [
        one["repositoryName"] for one in aws.client("ecr").describe_repositories()["repositories"]
    ]
    assert names.count("team/rlvr") == 1


def test_what_docker_says_is_passed_on(docker, monkeypatch, tmp_path):
    docker(code=3)
    monkeypatch.setattr(image, "context", lambda folder, base, vllm: [])
    with pytest.raises(MachineError, match="docker build failed with 3"):
        image.build("rlvr:1", push=False, say=lambda _: None, folder=tmp_path)
    with pytest.raises(ConfigError, match="no image of ECR"):
        image.build("rlvr:1", push=True, say=lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="docker is not installed"):
        image.docker("build")


def test_the_same_image_runs_here(docker, tmp_path, monkeypatch):
    asked = docker()
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text("model: {path: tiny:math/arithmetic}\n")
    monkeypatch.setattr(local, "lay_out", lambda root, details: None)
    config = Options(image="rlvr:1", local=True, gpus=[0, 1], env=["A=b"])
    from rlvr_core.protocols import LaunchRequest

    one = launcher.SageMakerLauncher(config)
    request = LaunchRequest(("run", "config.yaml"), "demo", files=(Path("config.yaml"),))
    plan = one.plan(request)
    assert plan.details["description"]["runs"] is None
    assert one.submit(plan) == 0
    ((words, _),) = asked()
    assert words[:2] == ["run", "--rm"]
    assert words[words.index("--gpus") + 1] == '"device=0,1"'
    assert f"{tmp_path / 'runs' / plan.details['job']}:/opt/ml/checkpoints" in words
    assert "A=b" in words
    assert words[-2:] == ["rlvr:1", "train"]


def test_folders_of_a_local_job(tmp_path):
    source = tmp_path / "config.yaml"
    source.write_text("x")
    details = {
        "files": [{"path": str(source), "key": "a/config.yaml", "size": 1}],
        "description": {"directory": "a", "arguments": []},
    }
    local.lay_out(tmp_path / "ml", details)
    from rlvr_sagemaker.job import Machine

    assert Machine.read(tmp_path / "ml", {}) == Machine(("algo-1",), 0, "eth0")
    assert (tmp_path / "ml/input/data/code/a/config.yaml").read_text() == "x"
