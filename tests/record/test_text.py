import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_core.record.text import Redactor, is_secret, printable
from rlvr_core.testing.clock import cpu_limit


@given(st.text())
def test_nothing_that_acts_on_a_terminal_is_left(text):
    shown = printable(text)
    assert not any(ord(c) < 32 and c not in "\n\t" for c in shown)
    assert not any(0x7F <= ord(c) <= 0x9F for c in shown)
    assert not set(shown) & set(
        "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\ufeff"
    )
    shown.encode("utf-8")
    assert printable(shown) == shown


def test_escapes_are_readable():
    assert printable("a\x1b[31mb\r\x9b\u202ec") == "a\\x1b[31mb\\r\\x9b\\u202ec"
    assert printable("2 ≠ 3\n\t数") == "2 ≠ 3\n\t数"


def test_limit_keeps_both_ends():
    shown = printable("a" * 500 + "b" * 500, 90)
    assert shown.startswith("a" * 60 + " [")
    assert shown.endswith("] " + "b" * 30)
    assert "910" in shown
    assert printable("short", 90) == "short"


@pytest.mark.parametrize(
    "key",
    ["token", "HF_TOKEN", "hf-token", "api_key", "apiKey", "AWS_SECRET_ACCESS_KEY", "password",
     "tracker.wandb_api_key", "--api-key", "client_secret", "private-key"],
)  # fmt: skip
def test_secret_names(key):
    assert is_secret(key)


@pytest.mark.parametrize(
    "key",
    ["max_tokens", "tokens", "eos_token", "pad_token", "stop_token", "token_id", "keys", "key",
     "tokens_per_micro_batch", "author", "secretary", "problem_key", "PWD",
     "SSH_AUTH_SOCK", "TOKEN_FILE", ""],
)  # fmt: skip
def test_ordinary_names(key):
    assert not is_secret(key)


ENVIRONMENT = {"HF_TOKEN": "tok-123456789", "DB_PASSWORD": "short", "HOME": "/home/somebody"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password: hunter2", "password: <redacted>"),
        ('{"api_key": "s3cr3t", "n": 1}', '{"api_key": "<redacted>", "n": 1}'),
        ("api_key = 'x y'  # mine", "api_key = '<redacted>'  # mine"),
        ("+  secret: abc", "+  secret: <redacted>"),
        ("where: tok-123456789!", "where: ${env:HF_TOKEN}!"),
        ("token: ${env:HF_TOKEN}", "token: ${env:HF_TOKEN}"),
        ("token: null", "token: null"),
        ("/home/somebody is short", "/home/somebody is short"),
        ("https://me:pw123@host/x", "https://<redacted>@host/x"),
        ("see hf_" + "a" * 30, "see <redacted>"),
        ("AKIAABCDEFGHIJKLMNOP", "<redacted>"),
        ("max_tokens: 512, eos_token: </s>", "max_tokens: 512, eos_token: </s>"),
        ("a: {token: x1y2, b: 2}", "a: {token: <redacted>, b: 2}"),
    ],
)
def test_redacted_text(text, expected):
    redactor = Redactor(ENVIRONMENT)
    assert redactor.text(text) == expected
    assert redactor.text(expected) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("+    token = tokenizer.decode(ids)", None),
        ("+def f(token: str, secret: bytes = b'') -> None:", None),
        ("-    for token in tokens: token = token.strip()", None),
        ("+    next_token = logits.argmax(-1)", None),
        ("+API_KEY=abcd1234efgh", "+API_KEY=<redacted>"),
        ('+client = Client(api_key="abcdefgh")', '+client = Client(api_key="<redacted>")'),
        ("+  password: hunter2hunter2", "+  password: <redacted>"),
        ("+x = 'tok-123456789'", "+x = '${env:HF_TOKEN}'"),
    ],
)
def test_a_patch_of_source_code_still_applies(line, expected):
    assert Redactor(ENVIRONMENT).patch(line) == (line if expected is None else expected)


def test_redacted_command_lines():
    command = ["rlvr", "run", "c.yaml", "--set", "track.api_key=abc", "--token", "xyz", "--token=q",
               "--set", "sampling.max_tokens=5", "--set", "a=tok-123456789"]  # fmt: skip
    assert Redactor(ENVIRONMENT).command(command) == [
        "rlvr", "run", "c.yaml", "--set", "track.api_key=<redacted>", "--token", "<redacted>",
        "--token=<redacted>", "--set", "sampling.max_tokens=5", "--set", "a=${env:HF_TOKEN}",
    ]  # fmt: skip


def test_redacted_tree_keeps_everything_else():
    tree = {"a": [{"password": "p", "n": 5}], "token": ["x", 3, None], "eos_token": "</s>"}
    assert Redactor({}).tree(tree) == {
        "a": [{"password": "<redacted>", "n": 5}],
        "token": ["<redacted>", 3, None],
        "eos_token": "</s>",
    }


def test_a_huge_word_takes_no_time():
    with cpu_limit(5):
        Redactor(ENVIRONMENT).patch("a" * 3_000_000)


KEY_LINES = [
    f"MIIEowIBAAKCAQEA{place:04d}Zq1b2c3d4e5f6g7h8i9j0klmnopqrstuvwxyzAB" for place in range(500)
]


@pytest.mark.parametrize("method", ["text", "patch"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\\n", "\n+", "\n-", "\n> ", "\n# ", "\n    "])
@pytest.mark.parametrize("lines", [KEY_LINES, KEY_LINES[:5]], ids=["long", "torn"])
def test_no_line_of_a_private_key_is_left(method, newline, lines):
    """One whose foot is farther off than it is looked for, and one without a foot."""
    foot = ["-----END RSA PRIVATE KEY-----"] if lines is KEY_LINES else []
    key = newline.join(["-----BEGIN RSA PRIVATE KEY-----", *lines, *foot])
    shown = getattr(Redactor({}), method)(f"before{newline}{key}{newline}after")
    assert "MIIE" not in shown
    assert shown.startswith(f"before{newline}<redacted>")
    assert shown.endswith("after")


def test_the_head_of_a_key_without_one_does_not_hide_the_next():
    head, foot = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"
    text = f"it begins with {head}, as in\n{head}\nabc\n{foot}\n"
    assert Redactor({}).text(text) == f"it begins with {head}, as in\n<redacted>\n"


@pytest.mark.parametrize("text", ["echo {} > /etc/private/server.key", "{} # many_long_letters"])
def test_a_long_word_behind_the_head_of_a_key_is_no_key_where_no_line_begins(text):
    text = text.format("-----BEGIN PRIVATE KEY-----")
    assert Redactor({}).text(text) == text


@pytest.mark.parametrize(
    "unit",
    [
        "\n",
        "-----END " * 9,
        " " * 99,
        "\n> " * 50,
        "\n" * 40_000,
        "\n#" * 40_000,
        "\n" + "> " * 40_000,
    ],
    ids=range(7),
)
def test_what_only_begins_like_private_keys_takes_no_time(unit):
    text = ("-----BEGIN PRIVATE KEY-----" + unit) * (300_000 // (27 + len(unit)))
    with cpu_limit(1):
        assert Redactor({}).known(text) == text
