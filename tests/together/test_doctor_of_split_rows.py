"""What ``rlvr doctor`` and ``rlvr plan`` say of rows that are split over processes."""

from types import SimpleNamespace

import pytest

from plugins.rlvr_doctor.tests.planner.places import config_of, planned
from rlvr_cluster.context.split import Split
from rlvr_core.config.model import RunConfig
from rlvr_core.plugins.host import load_host
from rlvr_core.step.batch import Row, micro_batches
from rlvr_doctor.examination.model import _split_rows

CASE = {"size": "1.7B", "groups": 4, "n": 4, "prompt": 100, "tokens": 924, "budget": 2048}


@pytest.mark.parametrize("size", [2, 4])
def test_a_process_has_its_part_of_a_row_that_is_split(tmp_path, size):
    """The fullest micro-batch by the formula, and as the first process has it of two such rows."""
    file = config_of(CASE, tmp_path)
    setup = planned(file, f"train.context_parallel={size}", count=size).setup
    micro = setup.worst_micro()
    assert setup.rows == 16  # all of the step's, as the processes are one group
    row = Row((1,) * 100, (2,) * 924, (True,) * 924, (0.0,) * 924, 0.0)
    (batch,) = micro_batches([row, row], tokens_per_micro_batch=2048)
    split = Split.of(batch, 0, size)
    assert micro.tokens == pytest.approx(len(split.own_n), rel=0.06)  # 2,048 planned, 1,946 fed
    assert micro.keys == pytest.approx(len(split.key_K), rel=0.06)
    assert micro.tokens == 2048 // size
    assert micro.keys == 2048 + 1024 // size + 2 * 2 * 100


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": {"attention": "eager"}}, "exchanged by the attention sdpa, not by eager"),
        ({"windows": 8}, "its attention has windows"),
        ({"split": 1, "windows": 8}, None),
        ({}, None),
    ],
)
def test_rows_that_cannot_be_split_are_named_before_the_weights_are_loaded(changes, said):
    train = {"steps": 3, "warmup_steps": 0, "context_parallel": changes.get("split", 2)}
    data = {"sources": [{"use": "core/jsonl"}]}
    model = {"path": "m"} | changes.get("model", {})
    limits = RunConfig.model_validate({"model": model, "data": data, "train": train})
    text = SimpleNamespace(sliding_window=changes.get("windows"))
    config = SimpleNamespace(get_text_config=lambda: text, _attn_implementation="sdpa")
    prepared = SimpleNamespace(resolved=SimpleNamespace(host=load_host()))
    skeleton = SimpleNamespace(config=config)
    answers = _split_rows(SimpleNamespace(limits=limits, prepared=prepared, skeleton=skeleton))
    assert [said in answer.text for answer in answers] == ([True] if said else [])
    assert all("train.context_parallel: 1" in answer.remedy for answer in answers)
