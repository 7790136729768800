"""What goes along with a job: eval configs, links, secrets; and who has to be allowed what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlvr_core.api import ConfigError, LaunchRequest, RlvrError
from rlvr_core.cli.main import cli
from rlvr_sagemaker import aws
from rlvr_sagemaker.iam import Account, policies
from rlvr_sagemaker.launcher import SageMakerLauncher
from rlvr_sagemaker.options import Options
from tests.support.tables import table

ROLE = "arn:aws:iam::123456789012:role/rlvr-job"
IMAGE = "123456789012.dkr.ecr.eu-north-1.amazonaws.com/rlvr:1"
SECRET = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:hf-a1B2c3"
TASK = (
    "tasks: [{{use: core/dataset, with: {{data: {{use: core/jsonl, with: "
    "{{path: {path}, prompt: q, verifier: core/exact}}}}}}}}]\n"
)


@pytest.fixture
def project(write_project):
    data = "{use: core/jsonl, with: {path: rows.jsonl, prompt: q, verifier: core/exact}}"
    return write_project(
        {
            "train.yaml": "run: {name: demo}\nmodel: {path: 'tiny:math/arithmetic'}\n"
            f"train: {{steps: 2, lr: 1.0e-3}}\ndata: {{sources: [{data}]}}\n",
            "rows.jsonl": '{"q": "1+1", "answer": "2"}\n',
            "mine/notes.txt": "kept\n",
        },
        "home/project",
    )


def launch(*more, store="s3://some-bucket/rlvr", config="train.yaml"):
    words = ["launch", config, "--backend", "sagemaker", "--store", store, "--role", ROLE]
    words += ["--image", IMAGE, "--instance-type", "ml.g6e.12xlarge", "--region", "eu-north-1"]
    return CliRunner().invoke(cli, [*words, "--job-name", "job-x", *map(str, more)])


def plan(*more, **options):
    done = launch(*more, "--dry-run", "--json", **options)
    assert done.exit_code == 0, f"{done.output} {done.exception}"
    return json.loads(done.stdout)["plan"]


def refused(*more, **options):
    """What the user is told, all of it."""
    done = launch(*more, "--dry-run", **options)
    assert isinstance(done.exception, RlvrError), f"{done.output} {done.exception!r}"
    return f"{done.output}{done.exception}"


def keys(found):
    return [one["key"] for one in found["files"]]


# -- the eval config ------------------------------------------------------------------------------


def test_t89_an_eval_config_is_resolved_like_the_config(project, tmp_path):
    """Absolute data outside, a relative order of the same name, a base file in another folder."""
    far = tmp_path / "far rows #1.jsonl"
    far.write_text("{}\n")
    (project.parent / "evals").mkdir()
    base = project.parent / "evals" / "base.yaml"
    base.write_text(TASK.format(path=f"'{far}'") + "engine: transformers\n")
    Path("beside.yaml").write_text("extends: ../evals/base.yaml\nlimit: 4\n")
    found = plan("--eval-config", "beside.yaml", "--eval-gpus", "7")
    assert keys(found) == [
        "far rows #1.jsonl",
        "home/evals/base.yaml",
        "home/project/beside.yaml",
        "home/project/rows.jsonl",
        "home/project/train.yaml",
    ]
    told = found["description"]
    assert told["arguments"] == ["run", "train.yaml"]
    assert (told["eval_config"], told["eval_gpus"]) == ("beside.yaml", [7])
    (given,) = told["eval_set"]
    assert given == 'tasks.0.with.data.with.path="../../far rows #1.jsonl"'
    from rlvr_core.eval.config import eval_config, read_eval_config

    draft = read_eval_config(Path("beside.yaml"), told["eval_set"])
    asked = eval_config(draft, {"model": {"path": "x"}})
    assert asked.tasks[0].with_["data"]["with"]["path"] == "../../far rows #1.jsonl"
    page = launch("--eval-config", "beside.yaml", "--dry-run").stdout
    assert f"and beside it: rlvr watch RUN --config beside.yaml --set {given}" in page


# -- links ----------------------------------------------------------------------------------------


def test_a_submission_says_what_came_by_links(cloud, project, tmp_path):
    (tmp_path / "other.txt").write_text("text\n")
    Path("mine/data.txt").symlink_to(tmp_path / "other.txt")
    words = ("--include", "mine", "--job-name", f"j-{cloud.bucket}")
    done = launch(*words, store=f"s3://{cloud.bucket}/x")
    assert done.exit_code == 0, done.exception
    assert f"by a link: mine/data.txt is {tmp_path / 'other.txt'}" in done.stderr


# -- secrets --------------------------------------------------------------------------------------

TOKEN = "hf_" + "a1B2c3D4e5F6g7H8i9J0"


@pytest.mark.parametrize(("option", "value"), table(__file__, "words with secrets"))
def test_t99_no_option_shows_or_sends_a_secret(project, option, value):
    told = refused(option, value.replace("{TOKEN}", TOKEN))
    for secret in (TOKEN, "hunter22", "0123456789abcdef0123"):
        assert secret not in told
    assert "secret" in told


def test_t90_nothing_is_submitted_that_could_not_be_written_down(cloud, project, monkeypatch):
    (project / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(project / "file"))
    job = f"j-{cloud.bucket}"
    done = launch("--job-name", job, store=f"s3://{cloud.bucket}/x")
    assert "nothing was submitted" in str(done.exception)
    assert (
        aws.client("sagemaker").list_training_jobs(NameContains=job)["TrainingJobSummaries"] == []
    )
    assert not aws.client("s3").list_objects_v2(Bucket=cloud.bucket).get("Contents")


# -- permissions ----------------------------------------------------------------------------------


def test_what_a_plan_needs_is_what_the_policies_give(project):
    key = "arn:aws:kms:eu-north-1:123456789012:key/0a-1b"
    found = plan(
        "--tags", "team=maths", "--set", "model.path=s3://some-bucket/rlvr/m",
        "--secrets", f"HF_TOKEN={SECRET}", "--kms-key", key,
    )  # fmt: skip
    given = policies(
        Account(
            account="123456789012", region="eu-north-1", store="s3://some-bucket/rlvr",
            role="rlvr-job", secrets=[SECRET], kms_key=key,
        )
    )  # fmt: skip
    for who in ("submitter", "job"):
        wanted = [need["actions"] for need in found["permissions"] if need["who"] == who]
        assert wanted == [statement["Action"] for statement in given[who]["Statement"]]


PARTIAL = SECRET.rpartition("-")[0]


@pytest.mark.parametrize("arn", [PARTIAL, PARTIAL + "-a1B2c", f"{PARTIAL}/x-a1B2c3d"])
def test_t91_a_secrets_arn_without_its_six_characters_would_open_nothing(project, arn):
    """GetSecretValue finds it, and IAM, which compares whole ARNs, refuses it to the role."""
    told = refused("--secrets", f"HF_TOKEN={arn}")
    name = arn.rpartition(":")[2]
    assert "--secrets HF_TOKEN=…" in told
    assert "lacks the hyphen and six characters" in told
    assert f"describe-secret --region eu-west-1 --secret-id {name} --query ARN" in told
    given = {"account": "123456789012", "region": "eu-west-1", "store": "s3://b-1/x", "role": "r"}
    with pytest.raises(ConfigError, match="lacks the hyphen and six characters"):
        policies(Account(**given, secrets=[arn]))
    for pattern in (SECRET, PARTIAL + "-??????", PARTIAL + "-*"):
        assert policies(Account(**given, secrets=[pattern]))


@pytest.mark.parametrize(("options", "told"), table(__file__, "refused by AWS"))
def test_t91_what_aws_would_refuse_is_told_here(options, told):
    given = {"store": "s3://some-bucket/x", "role": ROLE, "image": IMAGE, "instance_type": "ml.x"}
    Options(**given).check()
    with pytest.raises(ConfigError) as caught:
        Options(**(given | options)).check()
    assert told in str(caught.value)


def test_a_plan_without_a_region_says_so(project, monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    launcher = SageMakerLauncher(
        Options(store="s3://some-bucket/x", role=ROLE, image=IMAGE, instance_type="ml.x")
    )
    found = launcher.plan(LaunchRequest(("run", "train.yaml"), "demo", files=(Path("train.yaml"),)))
    assert "  in no region yet: give --region, or set AWS_REGION" in found.lines
    assert found.details["region"] is None
    assert found.details["permissions"] == []
