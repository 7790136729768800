"""Verifiers that data sources ask for by an option."""

import pytest

from rlvr_core.api import RlvrError
from rlvr_core.config.resolve import resolve_file

CONFIG = """\
model: {path: x}
data:
  sources:
    - {use: toy/sums}
    - use: core/jsonl
      with:
        path: rows.jsonl
        prompt: question
        verifier: %s
train: {steps: 1}
"""


def faults(host, path, *overrides):
    with pytest.raises(RlvrError) as caught:
        resolve_file(path, overrides, host)
    return [(one.what, one.where, one.remedy) for one in caught.value.complaints]


@pytest.fixture
def asking(tmp_path):
    """Makes a config whose second source asks for a verifier."""

    def make(verifier):
        path = tmp_path / "run.yaml"
        path.write_text(CONFIG % verifier)
        return path

    return make


def test_a_misspelt_verifier_of_a_source_is_found_at_its_line(host, asking):
    path = asking("toy/exatly")
    [(what, where, remedy)] = faults(host, path)
    assert what == "unknown verifier 'toy/exatly'"
    assert where == f"{path}:9 (data.sources.1.with.verifier)"
    assert remedy[0].startswith("did you mean: toy/exactly")


def test_it_is_told_together_with_other_faults(host, asking):
    found = faults(host, asking("toy/exatly"), "train.lrr=1")
    assert [what for what, _, _ in found] == [
        "unknown key 'lrr' in train",
        "unknown verifier 'toy/exatly'",
    ]


def test_no_one_asks_for_it_where_no_reward_is_the_problems_own(host, asking):
    resolve_file(asking("nobody"), ["rewards=[toy/exactly]"], host)
    assert faults(host, asking("nobody"), "rewards=[toy/exactly, auto]")


def test_a_source_needs_no_verifier_where_rewards_name_all(host, asking):
    path = asking("x")
    path.write_text(path.read_text().replace("        verifier: x\n", ""))
    resolve_file(path, ["rewards=[toy/exactly]"], host)
    [(what, where, remedy)] = faults(host, path)
    assert what == "nothing says who judges: these problems name no verifier of their own"
    assert where == f"{path}:6 (data.sources.1.with.verifier)"
    assert "rewards: [{use: math/answer}]" in remedy[0]
