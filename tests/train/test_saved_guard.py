"""What a checkpoint says beside its tensors: its ledger, and the scale of its adapter."""

import json

import pytest

from rlvr_core.builtin.invariants.saved import ADAPTER, LedgerLines, other_adapter
from rlvr_core.builtin.lora import lora
from rlvr_core.config.model import LoraSection
from rlvr_core.record.ledger import Ledger


def two_steps(folder):
    """A ledger of two steps and of a draw for the third, written, and the lines of the two."""
    ledger, lines = Ledger(), LedgerLines()
    for drawn, trained in ((16, 10), (8, 14)):
        ledger.draw(drawn)
        ledger.settle("trained", trained)
        if drawn == 8:
            ledger.settle("zero_variance", 0, "all_passed")
        lines.add(ledger.step_line() | {"reward/mean": 0.5})
    ledger.draw(8)
    write(folder, ledger.state_dict())
    return lines, ledger


def write(folder, state):
    (folder / "trainer").mkdir(exist_ok=True)
    text = json.dumps({"step": 2, "ledger": state} if state else {"step": 2})
    (folder / "trainer" / "state.json").write_text(text)


def test_a_ledger_that_goes_on_with_its_lines(tmp_path):
    lines, _ = two_steps(tmp_path)
    assert lines.wrong(dict(lines.total), tmp_path) == ""
    write(tmp_path, None)  # a checkpoint that has none
    assert lines.wrong(dict(lines.total), tmp_path) == ""


@pytest.mark.parametrize("name", ["drawn", "trained"])
def test_a_ledger_that_has_forgotten_or_added_something(tmp_path, name):
    lines, ledger = two_steps(tmp_path)
    state = ledger.state_dict()
    if name == "drawn":
        state["drawn"] = 16
    else:
        state["total"]["trained"] += 1
    write(tmp_path, state)
    due, has = (24, 8) if name == "drawn" else (24, 25)
    assert lines.wrong(dict(lines.total), tmp_path) == (
        f"its ledger has {has} completions as {name}, and the lines of its steps add up to {due}"
    )


def test_after_an_older_checkpoint_nothing_is_added_up():
    lines = LedgerLines()
    lines.total = None
    lines.add({"ledger/drawn": 3.0})
    assert lines.total is None


@pytest.fixture
def adapted(tmp_path):
    """A small model with an adapter of rank 4 and alpha 8, and its saved folder."""
    from small import small_model  # type: ignore

    pytest.importorskip("peft")
    model = small_model(num_hidden_layers=2)
    section = LoraSection(rank=4, alpha=8, target_modules=["q_proj", "o_proj"])
    lora.attach(model, section, seed=0, compute=next(model.parameters()).dtype, path="m",
                revision=None)  # fmt: skip
    lora.write(tmp_path, model, dict(lora.matrices(model)))
    return model, tmp_path


def test_an_adapter_as_it_was_is_quiet(adapted):
    model, folder = adapted
    assert other_adapter(folder, model) == ""
    (folder / ADAPTER).unlink()
    assert other_adapter(folder, model) == ""  # a checkpoint of whole weights


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"lora_alpha": 4}, "a scale of 1, and the adapter of"),
        ({"r": 8}, "a scale of 1, and"),
        ({"use_rslora": True}, "a scale of 4, and"),
        ({"target_modules": ["q_proj"]}, "o_proj, which has an adapter"),
    ],
)
def test_a_config_that_would_load_another_adapter(adapted, said, words):
    model, folder = adapted
    config = json.loads((folder / ADAPTER).read_text()) | said
    (folder / ADAPTER).write_text(json.dumps(config))
    assert words in other_adapter(folder, model)
