"""What the pages say of bridges to other programs is run, or read as what it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from rlvr_core.plugins.host import load_host

DOCS = Path(__file__).parents[4] / "docs"


def block(page, language, word):
    """The one block of a page that has a word."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    (found,) = (block for block in blocks if word in block)
    return found


def run(page, word):
    names = {}
    exec(compile(block(page, "python", word), page, "exec"), names)
    return names


def test_the_examples_run():
    run("from-trl.md", "trl_reward")
    judge = run("evaluation.md", "lm_eval_metric")["process_results"]
    assert judge({"target": "4"}, ["4"]) == {"exact": 1.0, "exact_unscored": 0.0}
    assert "!function my_metric.process_results" in block("evaluation.md", "text", "metric_list")
    pytest.importorskip("rlvr_math")
    env = run("from-others.md", "verifiers_environment")["load_environment"](count=2)
    assert len(env.get_dataset()) == 2


def test_the_configs_name_what_there_is():
    found = yaml.safe_load(block("from-others.md", "yaml", "arguments:"))
    found |= yaml.safe_load(block("from-others.md", "yaml", "format: hermes"))
    (source,) = found["data"]["sources"]
    entry = load_host().entry("dataset", source["use"])
    entry.load().Config(**source["with"])
    environment = load_host().entry("environment", source["use"]).load()
    environment.Config(**found["environment"]["with"])
