"""The pages on configurations, held against the code."""

import re
from pathlib import Path

from rlvr_core.config.dialect import read
from rlvr_core.config.load import load_config

DOCS = Path(__file__).parents[2] / "docs"


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
