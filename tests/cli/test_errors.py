"""What a command says of a mistake does not repeat a secret."""

import json
import os
import subprocess
import sys

import pytest

from rlvr_core.cli.main import main

TOKEN = "hf_" + "a1B2c3D4e5F6g7H8i9J0"
CONFIG = (
    "run: {name: x}\nmodel: {path: 'tiny:math/arithmetic'}\ntrain: {steps: 2, lr: %s}\n"
    "data: {sources: [{use: core/jsonl, with: {path: rows.jsonl, prompt: q, verifier: exact}}]}\n"
)


@pytest.mark.parametrize(
    "words",
    [
        ["run", "c.yaml"],
        ["launch", "c.yaml", "--nodes", TOKEN],
        ["config", "check", "c.yaml"],
        ["config", "check", "c.yaml", "--json"],
        ["config", "check", "--jso", "--set", f"train.lr={TOKEN}"],
        [TOKEN],
    ],
)
def test_t99_an_error_does_not_quote_a_credential(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEAM_PASSWORD", "a phrase of words")
    (tmp_path / "c.yaml").write_text(CONFIG % TOKEN)
    assert main(words) == 2
    told = capsys.readouterr()
    assert TOKEN not in told.out + told.err
    if words[-1] == "--json":
        (error,) = json.loads(told.out)["errors"]
        assert error["what"] == "train.lr must be a number above 0, not '<redacted>'"
        assert isinstance(error["remedy"], list)
    elif words[0] == "run":
        assert "train.lr must be a number above 0, not '<redacted>'" in told.err
    (tmp_path / "c.yaml").write_text(CONFIG % "a phrase of words")
    main(["config", "check", "c.yaml"])
    assert "not '${env:TEAM_PASSWORD}'" in capsys.readouterr().err


def test_a_locale_without_the_characters_of_a_name_is_told(tmp_path):
    """Python takes UTF-8 in the locale C by itself, unless it is told not to."""
    config = CONFIG % "1e-4"
    (tmp_path / "rows.jsonl").write_text('{"q": "1", "answer": "1"}\n')
    (tmp_path / "c.yaml").write_text(config.replace("name: x", "name: x, dir: 'größe'"), "utf-8")
    env = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [sys.executable, "-m", "rlvr_core.cli.main", "run", "c.yaml", "--display", "plain"]
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert "cannot be written in this locale's encoding (ascii)" in done.stderr
    assert "export PYTHONUTF8=1" in done.stderr
    assert "Traceback" not in done.stderr
