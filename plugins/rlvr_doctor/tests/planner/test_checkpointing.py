"""``train.gradient_checkpointing: auto`` on simulated cards, against peaks of the stand-in."""

import json
from dataclasses import replace

import pytest
import torch

from plugins.rlvr_doctor.tests.planner.places import config_of, model, planned
from plugins.rlvr_doctor.tests.planner.tables import MEASURED
from rlvr_core.config.resolve import resolve_file
from rlvr_core.plugins.host import load_host
from rlvr_doctor.planner import checkpointing
from rlvr_doctor.planner.checkpointing import CHOICES, MARGIN, choose, choose_for_run
from rlvr_doctor.planner.memory import memory_of
from rlvr_doctor.planner.setup import every_of

GIB = 2**30
RESERVED = 1.5 * GIB
CASE = {"size": "1.7B", "groups": 64, "n": 8, "prompt": 150, "tokens": 512, "budget": 16_384}


def peak(name):
    """Bytes that the stand-in had at its most."""
    return next(one["peak"] for one in MEASURED if one["name"] == name)


def auto(tmp_path, **changes):
    case = CASE | {"checkpointing": "auto"} | changes
    return config_of(case, tmp_path)


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        # 80.1 GiB without recomputation, of 15,930 tokens and before there is a gradient (6.4 GiB);
        # the budget holds 454 tokens more, of 2 GiB
        (peak("Qwen3-1.7B") + RESERVED + 6.4 * GIB + 2 * GIB, "none"),
        (peak("Qwen3-1.7B") + RESERVED - 2 * GIB, "every-4"),
        (23 * GIB, "all"),  # weights, optimizer and gradient take 25.6
    ],
)
def test_as_few_layers_are_computed_again_as_the_stand_in_says_fit(room, expected, tmp_path):
    # five groups, as the stand-in had them
    setup = planned(auto(tmp_path, groups=5)).setup
    found = choose(setup, room / (1 - MARGIN))
    assert found.which == expected
    assert found.fits == (room > 30 * GIB)


def test_of_cards_of_24_40_and_80_gb(tmp_path):
    """The choice fits by the formulas, and one that computes less again does not."""
    setup = planned(auto(tmp_path)).setup
    chosen = {}
    for card in (24, 40, 80, 96, 141):
        found = choose(setup, card * GIB)
        chosen[card] = found.which if found.fits else None
        if found.fits:
            with_it = replace(setup, every=every_of(found.which))
            assert memory_of(with_it).training <= (1 - MARGIN) * card * GIB
            cheaper = CHOICES[: CHOICES.index(found.which)]
            tried = [memory_of(replace(setup, every=every_of(one))).training for one in cheaper]
            assert all(need > (1 - MARGIN) * card * GIB for need in tried)
    assert chosen == {24: None, 40: "all", 80: "every-4", 96: "none", 141: "none"}


def test_a_run_is_told_and_its_record_says_why(tmp_path, monkeypatch):
    resolved = resolve_file(auto(tmp_path), (), load_host())
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (38 * GIB, 40 * GIB))
    report = choose_for_run(resolved, model("1.7B"))
    assert report.name == "gradient_checkpointing"
    assert report.record["choice"] == "all"
    assert report.record["free_bytes"] == 38 * GIB
    json.dumps(dict(report.record))
    (line,) = report.lines
    assert line.startswith("gradient checkpointing: all, auto: training is planned to take 3")
    assert "of the 38.0 GiB that are free (every-2 would take" in line


def test_the_least_of_all_processes_decides(tmp_path, monkeypatch):
    """Under FSDP all gather the same layers again, so all must recompute the same."""
    resolved = resolve_file(auto(tmp_path), ("train.parallel=ddp",), load_host())
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (140 * GIB, 141 * GIB))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(checkpointing.Ranks, "gather", lambda self, mine: [mine, 45 * GIB])
    report = choose_for_run(resolved, model("1.7B"))
    assert report.record["free_bytes"] == 45 * GIB
    assert report.record["choice"] == "all"


def test_where_nothing_fits_it_says_so(tmp_path, monkeypatch):
    resolved = resolve_file(auto(tmp_path), (), load_host())
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (22 * GIB, 24 * GIB))
    report = choose_for_run(resolved, model("1.7B"))
    assert (report.record["choice"], report.record["fits"]) == ("all", False)
    assert "DOES NOT FIT; rlvr plan says what else to change" in report.lines[0]


def test_a_model_that_cannot_be_planned_keeps_the_plain_way(tmp_path, monkeypatch):
    resolved = resolve_file(auto(tmp_path), (), load_host())
    (tmp_path / "gpt2").mkdir()
    config = {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 50}
    (tmp_path / "gpt2" / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (22 * GIB, 24 * GIB))
    report = choose_for_run(resolved, str(tmp_path / "gpt2"))
    assert report.record["choice"] == "none"
    assert "the memory cannot be planned: GPT2LMHeadModel is not a model" in report.lines[0]


def test_the_plan_of_a_card_says_what_auto_chooses(tmp_path):
    config = auto(tmp_path)
    for gpu, expected in (("a100-40", "all"), ("h100-80", "every-4"), ("h200", "none")):
        plan = planned(config, gpu=gpu)
        assert plan.setup.every == every_of(expected)
        said = f"train.gradient_checkpointing: auto chooses {expected} on this card"
        assert said in plan.notes
