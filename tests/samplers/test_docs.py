"""The sampler that docs/samplers.md builds."""

import importlib
import re
from pathlib import Path

from rlvr_core.api import Sampler
from tests.support.samplers.sampler_toys import drawn, source, started, through_json

PAGE = Path(__file__).parents[2] / "docs" / "samplers.md"


def test_the_example_is_a_sampler_that_does_what_it_says(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "docs_samplers_example.py").write_text(code)  # option help is read from its source
    monkeypatch.syspath_prepend(tmp_path)
    names = vars(importlib.import_module("docs_samplers_example"))
    sampler = started(names["Alternate"], source("a", 5))
    assert isinstance(sampler, Sampler)
    assert drawn(sampler, 4) == ["a0", "a4", "a1", "a3"]
    state = through_json(sampler.state_dict())
    again = started(names["Alternate"], source("a", 5))
    again.load_state_dict(state)
    assert drawn(again, 3) == drawn(sampler, 3) == ["a2", "a2", "a3"]
