"""Secrets are found wherever they stand, are never shown, and ordinary words are none."""

import os
import random
import re
import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr_core.record.formats import SERVICES
from rlvr_core.record.secrets import secrets_in, secrets_in_words
from rlvr_core.record.text import Redactor
from rlvr_core.testing.clock import cpu_limit

ALNUM = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits


def chars(alphabet, size, more=20):
    text = st.text(alphabet, min_size=size, max_size=size + more)
    return text.filter(lambda one: len(set(one)) > 1)  # one character alone is a placeholder


def credentials():
    """Kinds of credentials that are known by their look, as (kind, value)."""
    return st.one_of(
        chars(ALNUM, 20).map("hf_{}".format),
        chars(ALNUM, 20).map("sk-{}".format),
        chars(ALNUM, 24).map("ghp_{}".format),
        chars(ALNUM + "_", 24).map("github_pat_{}".format),
        chars(ALNUM, 22).map("glpat-{}".format),
        chars(UPPER, 16, 0).map("AKIA{}".format),
        chars(UPPER, 16, 0).map("ASIA{}".format),
        chars(ALNUM, 35, 0).map("AIza{}".format),
        chars(ALNUM, 36, 0).map("npm_{}".format),
        chars(ALNUM, 10).map(lambda text: f"https://me:{text}@host.example/x"),
        chars(ALNUM, 16).map(lambda text: f"-----BEGIN RSA PRIVATE KEY-----\n{text}"),
    )


AROUND = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=60)
QUIET = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def places(tmp_path, name, content):
    return [one.where for one in secrets_in(written(tmp_path, name, content), name)]


@QUIET
@given(credentials(), st.lists(AROUND, max_size=6), st.integers(0, 6), st.sampled_from([" ", '"']))
def test_t99_a_credential_is_found_on_its_line_and_never_shown(tmp_path, value, lines, at, edge):
    at = min(at, len(lines))
    text = "\n".join([*lines[:at], f"{edge}{value}{edge}", *lines[at:]])
    for name in ("a.py", "a.yaml", "a.jsonl", "a.txt"):
        path = written(tmp_path, name, text)
        found = list(secrets_in(path, name))
        assert f"{name}:{at + 1}" in [one.where for one in found]
        assert not any(value[-12:] in str(one) for one in found)


@QUIET
@given(
    st.sampled_from(
        ["boi_token", "HF_TOKEN", "wandb_api_key", "password", "db.passwd", "clientSecret",
         "aws_secret_access_key", "SecretAccessKey", "api-key", "hfToken", "user_pwd",
         "auth", "credentials", "credential", "passphrase", "authorization", "apiKeyProd",
         "secret_key_base", "signing-key"]
    ),
    st.text(ALNUM + "+/", min_size=7, max_size=40).filter(lambda t: any(c.isdigit() for c in t))
    .filter(lambda t: not t.isdecimal()),
    st.sampled_from(["{}: {}", '{{"{}": "{}"}}', "{} = '{}'", "{}={}", "a: {{{}: {}}}",
                     "{}:\n  {}", "{}: >-\n  {}", "{}: [{}]"]),
)  # fmt: skip
def test_t99_a_key_that_says_so_is_enough(tmp_path, key, value, form):
    (found, *_) = secrets_in(written(tmp_path, "a.yaml", form.format(key, value)), "a.yaml")
    assert found.where in ("a.yaml:1", "a.yaml:2")
    assert key.rpartition(".")[2] in found.what
    assert value not in str(found)


TRAINING = [
    "max_tokens", "tokens_per_micro_batch", "token_budget", "eos_token", "pad_token", "tokenizer",
    "bos_token", "stop_tokens", "unk_token", "max_total_tokens", "tokenizer_config", "num_tokens",
    "eos_token_id", "token_ids", "special_tokens", "api_key_env", "author", "problem_key", "keys",
]  # fmt: skip


@QUIET
@given(
    st.sampled_from(TRAINING),
    st.one_of(
        st.integers(0, 10**9).map(str),
        st.sampled_from(["</s>", "<|im_end|>", "Qwen/Qwen3-1.7B", "per-step", "OPENAI_API_KEY"]),
    ),
    st.sampled_from(["{}: {}", '{{"{}": "{}"}}', "{} = '{}'", "--set {}={}"]),
)
def test_words_of_training_are_no_secrets(tmp_path, key, value, form):
    text = form.format(key, value)
    for name in ("a.yaml", "a.json", "a.py", "a.txt"):
        assert places(tmp_path, name, text) == []
    assert list(secrets_in_words(["--set", f"x.{key}={value}"])) == []


@pytest.mark.parametrize(
    "text",
    [
        '{"boi_token": "<start_of_image>", "image_token": "[IMG]", "eot_token": "▁<EOT>"}',
        "image_token = '<|vision_start|><|image_pad|><|vision_end|>'\n",
        '{"ImportToken": "The import token to send with a subsequent request."}',
        '{"vocab": {"password": 3022, "token": 5839, "Ġsecret": 4472, "api_key": 151000}}',
        "token: null\nauth: none\nsecrets: {}\ncredentials: []\npassword:\n",
        "token: ${env:HF_TOKEN}\napi_key: $KEY\n",
        "see https://github.com/a/b and git@github.com:a/b and ssh://git@github.com/a/b\n",
        'if "-----BEGIN PRIVATE KEY-----" in text:\n',
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4\n",
        "eyJhbGciOiJub25lIn0 eyAiYSI6IDEsICJiIjogWzEsIDIsIDNdLCAiYyI6ICJkZWYifQ==\n",
        "sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n",
    ],
)
def test_what_only_looks_a_little_like_one(tmp_path, text):
    assert places(tmp_path, "a.json", text) == []


@pytest.mark.parametrize("at", [0, (1 << 20) - 20, (1 << 20) - 3, 5_000_000, 8_000_000])
def test_t99_a_large_file_is_read_to_its_end(tmp_path, at):
    """Beyond 4 MB, and across the border of two pieces."""
    line = b"a line of a file that is much too large to be a config, with tokens and keys in it\n"
    body = bytearray(line * (8_000_100 // len(line) + 2))
    secret = b"\nwandb_api_key = 'abc123def456'\n"
    body[at : at + len(secret)] = secret
    with cpu_limit(30):
        (found,) = secrets_in(written(tmp_path, "big.py", bytes(body)), "big.py")
    assert found.where == f"big.py:{bytes(body).count(10, 0, at) + 2}"
    assert "wandb_api_key" in found.what


def test_t99_a_binary_file_is_searched_for_credentials_alone(tmp_path):
    noise = os.urandom(3_000_000).replace(b"\n", b"")
    assert places(tmp_path, "a.bin", b"\0" + noise + b"password: hunter22") == []
    assert places(tmp_path, "a.bin", b"\0" + noise + b" hf_" + b"a1" * 10 + noise) == ["a.bin:1"]


def test_the_name_that_a_link_leads_to_counts(tmp_path):
    written(tmp_path, "server.pem", "x")
    (tmp_path / "notes.txt").symlink_to("server.pem")
    (found,) = secrets_in(tmp_path / "notes.txt", "notes.txt")
    assert "name holds secrets" in found.what


def test_data_sets_of_words_about_secrets_take_no_time(tmp_path):
    text = '{"author": "a", "text": "the token of the key is secret, https://x.example/y"}\n'
    path = written(tmp_path, "rows.jsonl", text * 25_000)
    with cpu_limit(20):
        assert list(secrets_in(path, "rows")) == []


@pytest.mark.parametrize("begin", sorted(SERVICES))
def test_t99_a_key_of_a_service_is_found_by_itself(tmp_path, begin):
    """A value of each format, made by its own pattern's parts: no name stands beside it."""
    draw = random.Random(begin)
    key = begin + _made(SERVICES[begin], draw)
    for name, content in (
        ("a.md", f"with {key} it goes\n".encode()),
        ("a.bin", b"\0\1\2 " + key.encode() + b" \0\n"),
    ):
        assert places(tmp_path, name, content) == [f"{name}:1"]
    assert key not in Redactor({}).text(f"with {key} it goes")


def _made(pattern, draw):
    """Text that a pattern of classes and counts matches, with letters and digits mixed."""
    text = ""
    for part, size in re.findall(r"(\[[^]]+\]|\\.|[^\\[{])(?:\{(\d+),?\}|\+)?", pattern):
        count = int(size or 1)
        if len(part) == 1 or part in (r"\.", r"\-"):
            text += part[-1]
            continue
        letters = [c for c in ALNUM if re.fullmatch(part, c)]
        while True:
            some = "".join(draw.choices(letters, k=count))
            if count < 8 or re.search(r"\d", some):
                break
        text += some
    return text


def test_a_line_that_was_looked_at_may_go(tmp_path):
    path = written(tmp_path, "a.py", "api_token = 'q7hT9xQ2LmV7'\npassword = 'bK4wR8sN3dP6'\n")
    assert [one.where for one in secrets_in(path, "a.py")] == ["a.py:1", "a.py:2"]
    assert [one.where for one in secrets_in(path, "a.py", [f"{path}:1"])] == ["a.py:2"]
    key = written(tmp_path, "server.pem", "nothing\n")
    assert any(secrets_in(key, "server.pem", [f"{path}:2"]))
    assert not any(secrets_in(key, "server.pem", [str(key)]))


def test_the_own_sources_raise_no_alarm():
    root = Path(__file__).parents[2]
    files = [p for room in ("rlvr_core", "examples", "docs") for p in (root / room).rglob("*")]
    files = [p for p in files if p.suffix in (".py", ".md", ".yaml", ".toml") and p.is_file()]
    some = random.Random(0).sample(sorted(files), 250)
    assert [path for path in some if any(secrets_in(path, str(path)))] == []
