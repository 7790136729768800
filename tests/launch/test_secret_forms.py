"""Sixty forms of secret, planted in ten kinds of file, are found; ordinary files raise no alarm."""

import importlib.util
import random
from pathlib import Path

import pytest

from rlvr_core.builtin.jobs.secrets import secrets_in

_SPEC = importlib.util.spec_from_file_location(
    "secret_forms", Path(__file__).with_name("secret_forms.py")
)
forms = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(forms)


def test_there_are_sixty_forms_and_ten_kinds():
    assert len(forms.FORMS) == 60
    assert len(forms.KINDS) == 10


@pytest.mark.parametrize("kind", forms.KINDS)
def test_t99_every_form_is_found_in_every_kind_of_file(tmp_path, kind):
    missed = []
    for number, (name, form) in enumerate(forms.FORMS.items()):
        path = tmp_path / kind
        path.write_text(forms.KINDS[kind](form(forms.Draw(number))))
        if not any(secrets_in(path, kind)):
            missed.append(name)
    assert len(missed) <= 2, missed


def test_a_line_that_was_looked_at_may_go(tmp_path):
    path = tmp_path / "a.py"
    values = [forms.Draw(n).a() for n in range(2)]
    path.write_text(f"import os\napi_token = '{values[0]}'\npassword = '{values[1]}'\n")
    assert [one.where for one in secrets_in(path, "a.py")] == ["a.py:2", "a.py:3"]
    assert [one.where for one in secrets_in(path, "a.py", [f"{path}:2"])] == ["a.py:3"]
    assert not any(secrets_in(path, "a.py", [f"{path}:2", f"{path}:3"]))
    key = tmp_path / "server.pem"
    key.write_text("nothing\n")
    assert any(secrets_in(key, "server.pem", [f"{path}:2"]))
    assert not any(secrets_in(key, "server.pem", [str(key)]))


def test_the_own_sources_raise_no_alarm():
    root = Path(__file__).parents[2]
    files = [
        p for room in ("rlvr_core", "examples", "docs") for p in sorted((root / room).rglob("*"))
    ]
    files = [p for p in files if p.suffix in (".py", ".md", ".yaml", ".toml") and p.is_file()]
    some = random.Random(0).sample(files, 250)
    alarms = [path for path in some if any(secrets_in(path, str(path)))]
    assert alarms == []


def test_forms_that_were_written_before_the_rules_were_known():
    spec = importlib.util.spec_from_file_location(
        "secret_campaign", Path(__file__).parents[2] / "benchmarks" / "secret_campaign.py"
    )
    campaign = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(campaign)
    assert (len(campaign.FIRST), len(campaign.SECOND)) == (60, 30)
    assert campaign.missed(campaign.FIRST, 11) == []
    assert campaign.missed(campaign.SECOND, 11) == []


@pytest.mark.parametrize(
    "text",
    [
        "raise ValueError(f\"invalid token: '{token}'\")",
        "a URL like `https://username:password@www.example.com/` holds them",
        'client("s3://my_key:my_secret@my_bucket/my_key")',
        "export ZENO_API_KEY=[your api key]",
        "#    ssh_private_key: /path/to/your/key.pem",
        "#    ssh_private_key: ~/ray-bootstrap-key.pem",
        "run(x.shape[0], min=1, max=3, dep_token=dep_token0\n)",
        "        Token: '#dcdccc',",
        "secrets = SecretsCollection()",
        "table, path, secret_key = s3_example_simple",
        'url = f"http://{self.username}:{self.password}@{self.host}:{self.port}"',
    ],
)
def test_what_stands_for_another_is_no_secret(tmp_path, text):
    path = tmp_path / "a.txt"
    path.write_text(text + "\n")
    assert not any(secrets_in(path, "a.txt"))
