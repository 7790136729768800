"""Nothing that a run records, prints or checkpoints holds a secret; what a model wrote is kept."""

import json

import pytest

from rlvr_core.record.text import Redactor

# as people write them; the values are put together here, so that no file holds one
MIXED = "qT7vLx2RkP" + "w9ZsB4mYd6"
FORMS = {
    "header": f"{{'Authorization': 'Bearer {MIXED}'}}",
    "password of a URL": f"cannot reach postgres://me:{MIXED}@db.example/x",
    "webhook": f"https://discord.com/api/webhooks/1234567890/{MIXED}{MIXED}",
    "service": f"401 for gsk_{MIXED}{MIXED}{MIXED}",
    "private key": f"-----BEGIN PRIVATE KEY-----\\n{MIXED}{MIXED}",
}


@pytest.mark.parametrize("between", ["\n", "\r\n", "\n> ", " "])
def test_a_private_key_is_found_however_its_lines_are_joined(between):
    text = f"-----BEGIN RSA PRIVATE KEY-----{between}{MIXED}{between}{MIXED}"
    assert Redactor({}).known(f"it says {text}, or so") == "it says <redacted>, or so"


def test_what_surrounds_a_secret_is_kept():
    before = json.dumps({"url": "a/b", "headers": {"user": "me", "auth": f"Bearer {MIXED}"}})
    after = Redactor({}).known(before)
    assert after == before.replace(MIXED, "<redacted>")
    assert json.loads(after)["headers"] == {"user": "me", "auth": "Bearer <redacted>"}


@pytest.mark.parametrize(
    "text",
    [
        "token_ids: [151644, 8948, 198, 2610]; sha256: " + "9f1c04be77" * 6,
        "def token(key): return tokenizer.decode(auth_ids_2[key:])",
        "Janet sells 16 - 3 - 4 = <<16-3-4=9>>9 eggs; the key is 9*2",
        "HF_TOKEN is arn:aws:secretsmanager:eu-north-1:123456789012:secret:hf-a1B2c3, it says",
        "the secret: think step by step; password length 8; author x1",
        "request 6f9619ff-8b86-4d11-b42d-00c04fc964ff of auth/service took 3s",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4",
    ],
)
def test_ordinary_text_is_kept(text):
    assert Redactor({}).known(text) == text


def test_a_variable_that_holds_a_key_is_known_by_its_value():
    known = Redactor({"WANDB_KEY": MIXED, "SENTRY_DSN": "short", "MONKEY": "a word or two more"})
    assert known.known(f"{MIXED} and short, a word or two more") == (
        "${env:WANDB_KEY} and short, a word or two more"
    )


PARTS = """import json, logging, sys
FORMS = json.load(open("forms.json"))
calls = 0

def judge(problem, completion):
    global calls
    calls += 1
    raise ValueError(FORMS[calls % len(FORMS)])

def broken(step):
    for form in FORMS:
        print(form)
        logging.getLogger("mine").error("it says %s", form)
    sys.stdout.write("an end without a newline: " + FORMS[0])
    raise RuntimeError(" ".join(FORMS))
"""


def files_of(folder):
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".safetensors":
            yield path.name, path.read_text(encoding="utf-8", errors="replace")


@pytest.mark.parametrize("part", ["judge", "broken"])
def test_t99_no_file_of_a_run_and_no_line_of_its_output_holds_a_secret(lab, part):
    forms = list(FORMS.values())
    (lab.folder / "forms.json").write_text(json.dumps(forms))
    (lab.folder / "mine.py").write_text(PARTS)
    use = "./mine.py:"
    lab.write(
        meta={"notes": FORMS["service"]},
        train={"steps": 2},
        **(
            {"rewards": [{"use": use + part}], "verify": {"max_error_rate": 1.0}}
            if part == "judge"
            else {"advantage": use + part}
        ),
    )
    done = lab.rlvr("run", "config.yaml", check=0 if part == "judge" else 3)
    (run,) = lab.runs()
    texts = {"output": done.stdout + done.stderr, **dict(files_of(run))}
    assert {name for name, text in texts.items() if MIXED in text} == set()
    expected = "rollouts.jsonl" if part == "judge" else "output"
    assert "<redacted>" in texts[expected]
    if part == "broken":
        assert "an end without a newline: {'Authorization'" in texts["output"]
    else:
        line = json.loads(texts["rollouts.jsonl"].splitlines()[0])
        assert all("ValueError" in str(one["verdicts"]) for one in line["completions"])
