import pytest

from rlvr_core.record.metrics import core_metrics, lookup


def test_names_are_unique_and_every_meaning_is_one_sentence():
    metrics = [metric for group in core_metrics().values() for metric in group]
    names = [metric.name for metric in metrics]
    assert len(names) == len(set(names))
    for metric in metrics:
        assert metric.meaning.endswith("."), metric.name
        assert metric.meaning.count(". ") == 0, metric.name


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("reward/mean", "reward/mean"),
        ("reward/math/boxed", "reward/<name>"),
        ("pass_rate/math/gsm8k", "pass_rate/<dataset>"),
        ("ledger/zero_variance", "ledger/zero_variance"),
        ("ledger/zero_variance/all_passed", "ledger/<fate>/<detail>"),
        ("stop/length", "stop/<reason>"),
        ("kl/mean", "kl/mean"),
    ],
)
def test_lookup(name, entry):
    found = lookup(name)
    assert found is not None
    assert found.name == entry


@pytest.mark.parametrize("name", ["rewards/mean", "reward/", "ledger/lost", "Loss", "kl", ""])
def test_unknown_names(name):
    assert lookup(name) is None
