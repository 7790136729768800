"""The pages on configurations, held against the code."""

import re
from pathlib import Path

import pytest

from rlvr_core.api import ConfigError
from rlvr_core.config.dialect import read
from rlvr_core.config.load import load_config

DOCS = Path(__file__).parents[2] / "docs"
BASE = "model: {path: m}\ndata: {sources: [a]}\ntrain: {steps: 100}\n"


def blocks(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)


def test_the_first_example_is_a_whole_configuration(write):
    write(blocks("config.md")[0])
    assert load_config("run.yaml").config.train.lr == 1e-6


def test_every_example_is_yaml_of_the_dialect():
    for text in blocks("config.md"):
        parts = text.splitlines() if text.count("\nloss:") > 1 else [text]
        for part in parts:
            read(part, "config.md")


@pytest.mark.parametrize(
    ("option", "read", "value"),
    [
        ("train.lr=1e-6", lambda c: c.train.lr, 1e-6),
        ("run.identity=no", lambda c: c.run.identity, False),
        ("loss.with.answer=no", lambda c: c.loss.with_["answer"], "no"),
        ("loss.with.levels=[010]", lambda c: c.loss.with_["levels"], [10]),
        ("meta.notes=2024-01-31", lambda c: c.meta.notes, "2024-01-31"),
        ("meta.notes=12:30", lambda c: c.meta.notes, "12:30"),
        ("train.steps=1_000", lambda c: c.train.steps, 1000),
        ("data.prompt.prefix=", lambda c: c.data.prompt.prefix, None),
        ('data.prompt.prefix=""', lambda c: c.data.prompt.prefix, ""),
        ("loss.with.options={on: 1}", lambda c: c.loss.with_["options"], {"on": 1}),
    ],
)
def test_footguns_that_are_read_as_told(write, option, read, value):
    write(BASE)
    found = read(load_config("run.yaml", [option]).config)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "option",
    [
        "guards.parity=off",
        "meta.version=1.10",
        "train=",
        "meta.notes=#5",
        "train={steps: 30, warmup_steps: 30}",
        'meta.notes="\\boxed"',
        'meta.notes="\\frac"',
        "model={path: ${env:MODELS}}",
        "train={lr: 1}",
    ],
)
def test_footguns_that_are_refused(write, option):
    write(BASE)
    with pytest.raises(ConfigError):
        load_config("run.yaml", [option])
