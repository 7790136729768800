"""What a sampler saves: completions until what can be learnt is learnt, among hopeless ones."""

import json

import pytest

from rlvr_core.testing.lab import install_plugin

PLUGIN = """
from rlvr_core.api import NoConfig, Verdict, hookimpl


@hookimpl
def register_verifiers(registrar):
    registrar.add("letters", "rlvr_threekinds:Letters", summary="Easy, impossible or learnable.")


class Letters:
    def __init__(self, config: NoConfig) -> None:
        pass

    def verify(self, problem, completion):
        text = completion.text
        early = sum(c < "n" for c in text) >= len(text) / 2
        passed = {"easy": True, "never": False, "learn": early}[problem.spec["answer"]]
        return Verdict(float(passed), passed=passed)
"""
KINDS = {"easy": 24, "never": 24, "learn": 16}
REACHED = 0.9


@pytest.fixture
def kinds(lab, tmp_path_factory):
    """A lab with problems of three kinds."""
    site = tmp_path_factory.mktemp("threekinds")
    lab.site = install_plugin(site, "threekinds", {"rlvr_threekinds.py": PLUGIN})
    sources = []
    for name, count in KINDS.items():
        rows = [{"id": f"{name}{i}", "q": f"{name} {i}.", "answer": name} for i in range(count)]
        (lab.folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        options = {"path": f"{name}.jsonl", "prompt": "q", "id": "id", "name": name}
        sources.append({"use": "core/jsonl", "with": options | {"verifier": "threekinds/letters"}})
    lab.config |= {
        "data": {"sources": sources},
        "sampling": {"n": 8, "max_tokens": 8},
        "train": {"steps": 60, "prompts_per_step": 8, "lr": 4e-3, "warmup_steps": 1},
        "checkpoint": {"every": 0},
    }
    return lab


def spent(lab, use, **options):
    """Completions drawn until three steps in a row passed the learnable problems often enough."""
    run = lab.run(sampler={"use": use, "with": options})
    drawn, rates = 0, []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        step = json.loads(line)
        drawn += step["ledger/drawn"]
        if "pass_rate/learn" in step:
            rates.append(step["pass_rate/learn"])
        if len(rates) >= 3 and sum(rates[-3:]) / 3 >= REACHED:
            return drawn
    raise AssertionError(f"never reached {REACHED}: {rates}")


@pytest.mark.slow
def test_t33_by_difficulty_the_same_is_learnt_from_fewer_completions(kinds):
    by_difficulty = spent(kinds, "difficulty", window=1)
    assert by_difficulty < 0.85 * spent(kinds, "shuffle")
