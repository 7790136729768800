"""Muon in a configuration."""

import pytest

from rlvr_core.api import ConfigError
from rlvr_core.config.resolve import resolve_file
from rlvr_core.plugins.host import load_host

RUN = """
model: {path: m}
data:
  sources: [{use: core/jsonl, with: {path: d.jsonl, prompt: q, verifier: core/exact}}]
train: {steps: 1}
"""


def test_an_optimizer_of_whole_matrices_is_refused_with_shards():
    def resolved(*options):
        return resolve_file("run.yaml", options, load_host(), text=RUN)

    with pytest.raises(ConfigError) as refused:
        resolved("train.optimizer=muon", "train.parallel=fsdp")
    (complaint,) = refused.value.complaints
    assert complaint.what.startswith("algos/muon updates whole parameters")
    assert complaint.where == "--set train.parallel=fsdp (train.parallel)"
    assert resolved("train.parallel=fsdp")
    assert resolved("train.optimizer=muon")
