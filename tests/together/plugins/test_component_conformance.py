"""Every registered loss, estimator, optimizer, schedule, tracker and engine keeps its promises."""

from __future__ import annotations

import pytest
import torch

from rlvr_core.api import EngineContext, Example
from rlvr_core.plugins.first_party import FIRST_PARTY
from rlvr_core.plugins.host import load_host
from rlvr_core.testing.random_model import save_random_model
from rlvr_devkit.conformance.checks import CHECKS
from rlvr_devkit.conformance.subject import Subject, Unchecked

OPTIONS = {
    "algos/gkd": {"teacher": "somewhere"},
    "algos/opsd": {"prompt": "{prompt}"},
    "core/scripted": {"answers": {"": ["two words", "one"]}},
    "algos/pass_at_k": {"k": 2},
    "core/wandb": {"mode": "offline"},
}
PUBLISHED = {"core", *FIRST_PARTY}
KINDS = {"loss", "advantage", "optimizer", "schedule", "tracker", "engine"}
# they have tests of their own
SERVERS = {"servers/vllm-shared", "servers/vllm-server"}
ELSEWHERE = {"core/vllm", *SERVERS, "checks/openai", "cluster/ray"}


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = save_random_model(tmp_path_factory.mktemp("model"))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return lambda: EngineContext(str(folder), model, tokenizer, torch.float32, 64, 7)


def registered(kind):
    entries = load_host().registry.entries
    return sorted(name for k, name in entries if k == kind and name.partition("/")[0] in PUBLISHED)


CASES = [
    pytest.param(kind, name, check, id=f"{kind}-{name}-{check.id}")
    for kind, checks in CHECKS.items()
    if kind in KINDS
    for name in registered(kind)
    if name not in ELSEWHERE
    for check in checks
]


@pytest.mark.parametrize(("kind", "name", "check"), CASES)
def test_a_built_in_keeps_its_promises(kind, name, check, tmp_path, context, monkeypatch):
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # where MLflow puts its database
    component = load_host().registry.entries[kind, name].load()
    example = Example(OPTIONS.get(name, {}), context=context)
    try:
        check.run(Subject(kind, component, example, tmp_path))
    except Unchecked as reason:
        pytest.skip(str(reason))
