"""What a command says of a mistake does not repeat a secret."""

import json

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
        ["launch", "c.yaml", "--processes", "2"],
        ["launch", "c.yaml", "--nodes", TOKEN],
        ["launch", "c.yaml", "--backend", TOKEN],
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
