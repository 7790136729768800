"""Sixty forms of secret, planted in ten kinds of file, are found; ordinary files raise no alarm."""

import importlib.util
import random
import re
import string
from pathlib import Path

import pytest

from rlvr_core.builtin.jobs.secret_services import _SERVICES
from rlvr_core.builtin.jobs.secrets import secrets_in
from rlvr_core.record.text import Redactor

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
    assert [len(forms) for forms in campaign.SETS.values()] == [60, 30, 60, 30, 60]
    split = "rag_index.py"  # over three names that are put together
    assert [campaign.missed(forms, 11) for forms in campaign.SETS.values()] == [[]] * 4 + [[split]]
    silent = campaign.missed(campaign.DECOYS, 11)
    assert len(campaign.DECOYS) == 60
    assert campaign.DECOYS.keys() - set(silent) == {"strings.json"}  # translations of "password"


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
        'engine = create_engine("postgresql+psycopg2://scott:tiger@localhost/test")',
        'open("s3://access_key_id:secret_access_key@bucket/key")',
        "[![codecov](https://codecov.io/gh/a/b/graph/badge.svg?token=HA393WIYUK)](https://x.io)",
        '"NextToken": "CpHNsscimcV5oH7bSbub03CI2Qms5+ypNpNm"',
        "Next page token: eav1OzQB0OM8rLdGXOEsyQWSG",
        "MLKEM1024P384PrivateKey = rust_openssl.hpke.MLKEM1024P384PrivateKey",
        '[\n"MLKEM1024P384PrivateKey",\n"MLKEM1024P384PublicKey",\n]',
        "POST /token HTTP/1.1",
        '"access_token":"2YotnFZFEjr1zCsicMWpAA",',
        'user_id = "AKIAIOSFODNN7EXAMPLE"',
        '"Password": "",',
        '"MasterUserPassword": "mynewpassword",',
        '"SecretAccessKey": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY",',
        "number:!0,password:!0,range:!0,search:!0,tel:!0",
        '"result_key": "ServerlessV2PlatformVersions"',
        'IMAGE_TOKEN = "]<]image[>["',
        "https://user:12345@example.com",
        'export OPENAI_API_KEY="${{OPENAI_API_KEY:-intercepted}}"',
        "ac_pwd=`pwd` && srcdir=.",
        'build_hf_headers(token="hf_***")',
        'REQUEST_TYPE_ACCESS_TOKEN = "auth-request-type/at"',
        r'"description": "Maximum tags per secret: 50\n  +  Maximum key length: 127"',
        'MARKER = ("-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----")',
        "zoneinfo/Asia/Bangkok,sha256=hf_5PVegQcFSS60CjS80C7hTGOrfQ4ncJCZ1d3vUg",
        ".. _refresh token: https://tools.ietf.org/html/rfc6749#section-6",
        "# lane t holds C[token=(t/16)*4..+3, query=t%16]",
        '"cache_key": "9f86d081884c7d659a2feaa0c55ad015"',
    ],
)
def test_what_stands_for_another_is_no_secret(tmp_path, text):
    path = tmp_path / "a.txt"
    path.write_text(text + "\n")
    assert not any(secrets_in(path, "a.txt"))


@pytest.mark.parametrize(
    "text",
    [
        'password = """q7hunter2z"""',
        "password: 12345678abc",
        "password: mysecret2x",
        "url: postgres://me:tigerlily9@db/x",
        "Authorization: Basic dXNlcjpwYXNzLTRmOHo3cTJ3",  # user:pass-4f8z7q2w
        '"access_token": "EXAMPL3kd83hfkd83hdk38dh",',
    ],
)
def test_what_only_begins_like_an_example_is_one(tmp_path, text):
    path = tmp_path / "a.txt"
    path.write_text(text + "\n")
    assert [one.where for one in secrets_in(path, "a.txt")] == ["a.txt:1"]


@pytest.mark.parametrize("begin", sorted(_SERVICES))
def test_t99_a_key_of_a_service_is_found_by_itself_in_text_in_records_and_in_binary(
    tmp_path, begin
):
    """A value of each format, made by its own pattern's parts: no name stands beside it."""
    draw = random.Random(begin)
    key = begin + _made(_SERVICES[begin], draw)
    for name, content in (
        ("a.md", f"with {key} it goes\n".encode()),
        ("a.bin", b"\0\1\2 " + key.encode() + b" \0\n"),
    ):
        (tmp_path / name).write_bytes(content)
        assert [one.where for one in secrets_in(tmp_path / name, name)] == [f"{name}:1"]
    assert key not in Redactor({}).text(f"with {key} it goes")


def _made(pattern, draw):
    """Text that a pattern of classes and counts matches, with letters and digits mixed."""
    text = ""
    for part, size in re.findall(r"(\[[^]]+\]|\\.|[^\\[{])(?:\{(\d+),?\}|\+)?", pattern):
        count = int(size or 1)
        if len(part) == 1 or part in (r"\.", r"\-"):
            text += part[-1]
            continue
        letters = [c for c in string.ascii_letters + string.digits if re.fullmatch(part, c)]
        while True:
            some = "".join(draw.choices(letters, k=count))
            if count < 8 or re.search(r"\d", some):
                break
        text += some
    return text


@pytest.mark.parametrize(
    "text",
    [
        'password = "write-«an 12»"',
        'password = "changeme-«an 14»"',
        'api_token = "dummy-«an 20»"',
        'auth = "ada.lovelace:«an 14»"',
        "password: {value: «an 16»}",
        "secrets: [hf_«an 34»]",
        "REQUEST_TOKEN = '«an 32»'",
    ],
)
def test_what_begins_like_an_excuse_is_found(tmp_path, text):
    """What excuses a value is the whole of it."""
    spec = importlib.util.spec_from_file_location(
        "secret_campaign", Path(__file__).parents[2] / "benchmarks" / "secret_campaign.py"
    )
    campaign = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(campaign)
    path = tmp_path / "a.yaml"
    for seed in range(5):
        path.write_text(campaign.filled(text, campaign.Draw(seed)) + "\n")
        assert any(secrets_in(path, "a.yaml")), path.read_text()
