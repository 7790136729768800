"""Every command of docs/sagemaker.md is one that the command line has, with options it takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import botocore.session
import click
import pytest
from botocore import xform_name
from click.testing import CliRunner

from rlvr_core.api import ConfigError
from rlvr_core.builtin.catalog.plugin_commands import group_of
from rlvr_core.builtin.jobs.commands.jobs import jobs
from rlvr_core.builtin.jobs.jobs import Job, JobBook
from rlvr_core.cli.main import cli
from rlvr_core.host.host import load_host

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "sagemaker.md").read_text(encoding="utf-8")
COMMANDS = [line.strip() for line in GUIDE.splitlines() if re.match(r"^ {4,}rlvr ", line)]
LAUNCHES = [line for line in COMMANDS if line.split()[1] == "launch"]
AWS = [line.strip() for line in GUIDE.splitlines() if re.match(r"^ {4,}aws ", line)]
VALUES = {"ACCOUNT": "123456789012", "REGION": "eu-north-1", "BUCKET": "my-bucket", "GROUP": "team"}


def words_of(line):
    """The words of a command as a shell would give them, without where its output goes."""
    plain = re.sub(r"\$\{?(\w+)\}?", lambda name: VALUES[name[1]], line).partition(" > ")[0]
    return shlex.split(plain)[1:]


def understood(words):
    """Parse a command line as it would be, down to the last option, and do nothing."""
    command, context = cli, None
    name, words = "rlvr", list(words)
    while True:
        context = command.make_context(name, words, parent=context, resilient_parsing=False)
        if not isinstance(command, click.Group):
            return context
        rest = [*context._protected_args, *context.args]
        name, found, words = command.resolve_command(context, rest)
        assert found is not None, name
        command = found


def test_the_guide_has_commands():
    assert len(COMMANDS) > 25
    first = {line.split()[1] for line in COMMANDS}
    assert first == {"sagemaker", "launch", "jobs", "show", "eval"}


@pytest.mark.parametrize("line", COMMANDS)
def test_each_is_understood(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("models/my-model", "data"):
        Path(name).mkdir(parents=True)
    Path("data/problems.jsonl").touch()
    words = words_of(line)
    if words[-1] == "--help":
        with pytest.raises(click.exceptions.Exit, match="0"):
            understood(words)
    else:
        understood(words)


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A folder with the examples, the settings of the guide, and a job to go on with."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    Path(tmp_path, "evals.yaml").write_text("tasks: [math/gsm8k-test]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    for line in GUIDE.splitlines():
        if match := re.match(r"^ {4}export (RLVR_\w+)=(\S+)$", line):
            monkeypatch.setenv(match[1], words_of(f"x {match[2]}")[0])
    monkeypatch.setenv("AWS_REGION", VALUES["REGION"])
    details = {"arguments": ["run", "examples/gsm8k.yaml"], "set": []}
    more = {"runs": "s3://my-bucket/rlvr/jobs/my-first-job/runs", "details": details}
    book, where = JobBook(), ("sagemaker/sagemaker", "gsm8k-1.7b", "examples/gsm8k.yaml")
    book.add(Job("my-first-job", *where, **more))
    return tmp_path


def planned(words):
    done = CliRunner().invoke(cli, [*words, *([] if "--dry-run" in words else ["--dry-run"])])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("line", [one for one in LAUNCHES if "--help" not in one])
def test_each_launch_can_be_planned(line, user):
    """Its config is read, its options fit its launcher, and they are in what would be done."""
    told = planned(words_of(line))
    if "sagemaker" in line:
        for option in ("--job-name", "--instance-type"):
            if option in line and "--local" not in line:
                assert words_of(line)[words_of(line).index(option) + 1] in told


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--instance-count", "0"], "instance_count"),
        (["--max-wait", "5"], "goes with --spot"),
        (["--with", "instance_cuont=2"], "instance_cuont"),
        (["--with", "instance_count=many"], "instance_count"),
    ],
)
def test_an_option_that_does_not_fit_would_be_noticed(user, more, told):
    with pytest.raises(ConfigError) as caught:
        planned([*words_of(LAUNCHES[0]), *more])
    assert told in str(caught.value)


def options_of(command):
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                yield from options_of(command.get_command(context, name))
    else:
        yield from (option for one in command.params for option in one.opts)


def test_every_option_that_the_text_speaks_of_is_one():
    launch = {one for name in ("sagemaker", "slurm") for one in launch_options(name)}
    every = {*options_of(cli), *options_of(group_of(load_host(), "sagemaker")), *launch, "--help"}
    text = "\n".join(line for line in GUIDE.splitlines() if not re.match(r"^ {4,}aws ", line))
    spoken = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert len(spoken) > 25
    assert spoken <= every


def launch_options(backend):
    context = understood(["launch", "--backend", backend])
    every = context.command.get_params(context)
    return {option for one in every for option in (*one.opts, *one.secondary_opts)}


OWN = {"deploy": {"template-file", "stack-name", "capabilities", "parameter-overrides"}}
"""Commands of the command line itself, which no service describes."""
GLOBAL = {"region", "output", "query", "profile"}


@pytest.mark.parametrize("line", AWS)
def test_each_command_of_aws_is_one_of_the_service(line):
    service, action, *rest = words_of(line)
    given = {word[2:].partition("=")[0] for word in rest if word.startswith("--")} - GLOBAL
    if action in OWN:
        assert given <= OWN[action]
        return
    model = botocore.session.get_session().get_service_model(
        {"s3api": "s3", "configure": ""}.get(service, service)
    )
    names = {xform_name(name, "-"): name for name in model.operation_names}
    assert action in names
    shape = model.operation_model(names[action]).input_shape
    members = {xform_name(name, "-"): name for name in (shape.members if shape else {})}
    assert given <= set(members)
    required = {xform_name(name, "-") for name in (shape.required_members if shape else ())}
    assert required <= given


def test_the_documents_of_aws_commands_are_made_before():
    made = set(re.findall(r" > (\S+)$", GUIDE, re.M))
    used = set(re.findall(r"file://(\S+)", GUIDE)) | set(
        re.findall(r"--template-file (\S+)", GUIDE)
    )
    assert used
    assert used <= made


def test_every_command_of_the_plugin_is_in_the_guide():
    for name in group_of(load_host(), "sagemaker").entries:
        assert f"rlvr sagemaker {name} " in GUIDE
    for name in jobs.commands:
        assert f"rlvr jobs {name}" in GUIDE
