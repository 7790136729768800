import re
from pathlib import Path

import pytest

from rlvr_core.algorithm import reduce as metrics
from rlvr_core.plugins.host import load_host

FOLDER = Path(__file__).parents[2] / "docs"
DOCS = (FOLDER / "losses.md").read_text()


def test_the_example_of_a_new_loss_has_cispos_pinned_value(batch, normalizer):
    (code,) = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    names = {"__name__": "example"}
    exec(code, names)
    cls = names["Bounded"]
    loss = cls(cls.Config())(batch, normalizer).loss
    assert loss.item() == pytest.approx(0.4455309247, abs=1e-9)


def test_every_loss_and_metric_is_documented(make_batch, count):
    batch = make_batch(3, 4)
    options = {
        "beta": 0.1,
        "top_entropy": 0.5,
        "off_policy_mask": 0.1,
        "teacher": "x",
        "prompt": "{prompt}",
    }
    registry = load_host().registry
    wanted = set()
    for entry in registry.of("loss"):
        cls = entry.load()
        known = {key: value for key, value in options.items() if key in cls.Config.model_fields}
        output = cls(cls.Config(**known))(batch, count(batch))
        totals = {name: (a.item(), n.item()) for name, (a, n) in output.sums.items()}
        maxima = {name: most.item() for name, most in output.maxima.items()}
        wanted |= {entry.leaf} | set(metrics.finish(totals, maxima))
    assert len(wanted) > 20
    told = {name for name in wanted if f"`{name}`" in DOCS}
    assert wanted - told == set()
