"""``rlvr passk`` writes what a curriculum reads."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_core.api import Problem
from rlvr_core.data.load import NamedLoader, load_sources
from rlvr_core.rollout.samplers.order import read_order
from rlvr_lab.passk import write_curriculum


class Given:
    def __init__(self, ids):
        self._ids = ids

    def load(self):
        return [Problem(id_, "?", "core/exact", {}, "toy") for id_ in self._ids]


IDS = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1)


@settings(deadline=None, max_examples=50)
@given(ids=st.lists(IDS.filter(str.strip), min_size=1, max_size=12, unique=True), data=st.data())
def test_passk_writes_what_a_curriculum_reads(tmp_path_factory, ids, data):
    """Any ids the data may have come back, easiest first."""
    sources = load_sources([NamedLoader("toy", Given(ids))])
    folder = tmp_path_factory.mktemp("passk")
    rates = {id_: data.draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])) for id_ in ids}
    rows = [{"id": id_, "pass_rate": rate} for id_, rate in rates.items()]
    (folder / "difficulty.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    count = write_curriculum(folder / "order.txt", [folder], 0.0, 1.0)
    order = read_order(str(folder / "order.txt"), {p.id for p in sources[0].problems})
    assert count == len(ids)
    assert order == sorted(ids, key=lambda id_: -rates[id_])
