"""``rlvr doctor CONFIG``: a healthy run is left in peace, every planted mistake is named."""

import json
from types import SimpleNamespace

import pytest
import torch
import yaml

from plugins.rlvr_doctor.tests.doctor import planted
from rlvr_core.api import ConfigError, Finding
from rlvr_core.testing.lab import Lab
from rlvr_doctor.examination.batch import histogram
from rlvr_doctor.examination.examination import examine
from rlvr_doctor.examination.live import agreement
from rlvr_doctor.examination.report import Report
from rlvr_doctor.examination.selftest import learnt


def wrong(report):
    return [(one.id, one.level, one.text) for one in report.level("warn", "fail")]


@pytest.mark.slow
@pytest.mark.essential
def test_the_quick_start_is_healthy_and_every_part_was_measured():
    said = []
    report = examine(planted.QUICKSTART, say=said.append)
    assert wrong(report) == []
    assert report.verdict == "healthy"
    assert {finding.id for finding in report.findings} >= {
        "batch/ending", "batch/pass_rate", "batch/variance", "cost/memory", "cost/time",
        "cost/verifiers", "data/copies", "data/held_out", "data/leaks", "disk/files",
        "model/attention", "prompt/bos", "prompt/context", "prompt/round_trip",
        "tokenizer/special", "tokenizer/vocabulary", "verifier/gold", "verifier/wrong",
        "weights/lr", "weights/parity", "weights/sync",
    }  # fmt: skip
    assert any(title.startswith("prompt of ") for title in report.shown)
    # how much is sampled is said before, and how far it is
    (before,) = [
        at for at, line in enumerate(said) if line.startswith("sampling up to 48 problems")
    ]
    assert said[before + 1].startswith("sampled 4 of 48 problems, about ")
    (sync,) = [finding for finding in report.findings if finding.id == "weights/sync"]
    assert float(sync.text.split("perturbed by ")[1].split()[0]) > 0.05


LIVE = ("batch/", "weights/")


@pytest.mark.slow
@pytest.mark.parametrize("name", planted.MISTAKES)
def test_a_mistake_is_named_by_its_check(tmp_path, name):
    check = planted.MISTAKES[name][1]
    report = examine(planted.written([name], tmp_path), live=check.startswith(LIVE))
    assert check in {one.id for one in report.level("warn", "fail")}, wrong(report)
    assert all(one.remedy for one in report.level("warn", "fail"))
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_reward_without_references_is_left_in_peace(tmp_path):
    """How many small letters there are has no right answer, so there is nothing to say of one."""
    config = yaml.safe_load(planted.QUICKSTART.read_text())
    planted.use_function(config, tmp_path, "")
    (tmp_path / "reward.py").write_text(
        "def judge(text):\n    return sum(c.islower() for c in text) / max(1, len(text))\n"
    )
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    report = examine(path, live=False)
    assert wrong(report) == []
    assert not [finding for finding in report.findings if finding.id == "verifier/wrong"]


@pytest.mark.slow
def test_the_command_prints_a_report_and_leaves_nothing_behind(tmp_path):
    lab = Lab(tmp_path)
    config = planted.written(["few_problems_under_many_ids"], tmp_path)
    done = lab.rlvr("doctor", str(config), "--quick", "--json", check=None)
    report = json.loads(done.stdout)
    found = {one["id"]: one for one in report["checks"]}
    assert done.returncode == 1
    assert report["verdict"] == "broken"
    # 5 problems, each under 80 ids: all but 5 of 400 are copies
    assert found["data/copies"]["text"].startswith("395 of 400 (98.8 %)")
    assert found["data/copies"]["remedy"].startswith("train on the 5 different problems")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "data.jsonl"]


@pytest.mark.slow
def test_every_fault_of_a_config_is_named(tmp_path):
    config = yaml.safe_load(planted.QUICKSTART.read_text())
    config["sampling"] |= {"temprature": 0.7}
    config["train"] |= {"warmup_steps": 500}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    report = examine(path, live=False)
    assert report.verdict == "broken"
    text = " ".join(finding.text for finding in report.findings)
    assert "temprature" in text
    assert "warmup_steps" in text


def test_agreement_is_slope_and_kl_of_two_vectors():
    engine = torch.tensor([-1.0, -2.0, -3.0])
    same = agreement(engine, engine)
    assert (same.mean, same.slope, same.k3, same.tokens) == (0.0, 1.0, 0.0, 3)
    # ours = 1.5 theirs: differences -.5, -1, -1.5
    other = agreement(1.5 * engine, engine)
    assert other.mean == pytest.approx(1.0)
    assert other.slope == pytest.approx(1.5)
    # mean of exp(d) - 1 - d = (0.10653 + 0.36788 + 0.72313) / 3
    assert other.k3 == pytest.approx(0.39918, abs=1e-5)


def test_histogram_counts_every_length():
    text = histogram([1, 1, 5, 9], bins=5)
    assert [line.split()[3] for line in text.splitlines()] == ["2", "0", "1", "0", "1"]


def test_a_check_that_raises_is_noted_and_the_others_are_asked():
    def broken(_):
        raise ZeroDivisionError("oops")

    def refused(_):
        raise ConfigError("bad", where="x")

    report = Report()
    report.ask(
        [
            ("a/broken", broken),
            ("a/refused", refused),
            ("a/none", lambda _: None),
            ("a/fine", lambda _: Finding("a/fine", "ok", "1")),
        ],
        None,
    )
    assert [(finding.id, finding.level) for finding in report.findings] == [
        ("a/broken", "note"), ("a/refused", "fail"), ("a/fine", "ok"),
    ]  # fmt: skip
    assert report.verdict == "broken"


def test_learning_is_judged_by_the_first_and_last_steps():
    assert learnt([(20, 80)] * 3 + [(60, 80)] * 3, 1e-3).level == "ok"
    assert learnt([(20, 80)] * 6, 1e-3).level == "warn"
    assert learnt([(60, 80)] * 3 + [(20, 80)] * 3, 1e-3).level == "fail"
    # 60 and 66 of 240: z = .62
    assert learnt([(20, 80)] * 3 + [(22, 80)] * 3, 1e-3).level == "warn"


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (ImportError("flash_attn is not installed"), "fail"),
        (ValueError("GPT2LMHeadModel does not support it"), "fail"),
        (RuntimeError("Tensor.item() cannot be called on meta tensors"), "warn"),
    ],
)
def test_an_attention_that_is_not_there_is_certain_and_code_that_needs_weights_is_not(error, level):
    from rlvr_doctor.examination.model import _attention

    class Unbuilt:
        config = SimpleNamespace(model=SimpleNamespace(attention="flash_attention_2"))

        @property
        def skeleton(self):
            raise error

    answer = _attention(Unbuilt())
    assert answer.level == level
    assert f"flash_attention_2 cannot be used: {type(error).__name__}: {error}" in answer.text
