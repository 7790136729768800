"""Losses other than a single policy loss, by the command: sums, given answers, shaped rewards."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr_core.api import ConfigError, DataError, PluginError, Problem
from rlvr_core.api.components import RunObserver
from rlvr_core.config.resolve import resolve_file
from rlvr_core.demonstrations import Demonstrations, load_answers
from rlvr_core.plugins.host import load_host
from rlvr_core.run.build import build
from tests.support.installed import needs
from tests.support.run_records import digest, lines

ANSWERS = [{"id": f"a{i}", "question": f"Say {i}.", "answer": "abcabc"} for i in range(10)]


@pytest.fixture
def sft(lab):
    """The loss ``sft`` on ten answers in a file of their own."""
    (lab.folder / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ANSWERS))
    options = {"path": "answers.jsonl", "prompt": "question", "id": "id", "verifier": "toy/early"}
    return {
        "use": "sft",
        "with": {"target": "answer", "rows_per_step": 4},
        "data": {"use": "core/jsonl", "with": options},
    }


def test_sft_alone_is_a_warm_start_without_a_single_completion(lab, sft):
    run = lab.run(loss=sft, train={"steps": 12, "lr": 5e-3, "warmup_steps": 1})
    metrics = lines(run / "metrics.jsonl")
    assert metrics[-1]["sft/nll"] < 0.7 * metrics[0]["sft/nll"]
    assert all(line["sft/rows"] == 4 and line["sft/tokens/loss"] == 4 * 7 for line in metrics)
    assert all(line["ledger/drawn"] == 0 for line in metrics)
    assert not any(name.startswith(("reward", "groups", "ratio")) for name in metrics[0])
    assert json.loads((run / "run.json").read_text())["outcome"] == "finished"


@pytest.mark.slow
def test_a_weighted_sum_is_recorded_term_by_term_and_resumes_exactly(lab, sft):
    loss = [{"use": "dapo"}, sft | {"weight": 0.5}]
    train = {"steps": 4, "lr": 1e-3, "warmup_steps": 1}

    straight = lab.run(loss=loss, train=train)
    for line in lines(straight / "metrics.jsonl"):
        assert line["loss"] == pytest.approx(line["loss/dapo"] + 0.5 * line["loss/sft"])
        assert line["loss/sft"] == pytest.approx(line["sft/nll"])
    short = lab.run(loss=loss, train=train | {"steps": 2})
    lab.rlvr("run", "--resume", str(short), "--set", "train.steps=4", "--display", "none")
    assert digest(short) == digest(straight)


@pytest.fixture
def teacher_dir(model_dir, tmp_path):
    """The lab's model with other weights."""
    folder = tmp_path / "teacher"
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model_dir).save_pretrained(folder)
    return folder


EVERY_GROUP = {"use": "shuffle", "with": {"drop_zero_variance": False}}


@needs("rlvr_algos")
def test_teachers_that_cannot_teach_are_refused_before_the_first_step(lab, teacher_dir):
    def refused(loss, code=2):
        lab.write(loss=loss, sampler=EVERY_GROUP)
        return lab.rlvr("run", "config.yaml", "--dry-run", check=code).stderr

    tokenizer = AutoTokenizer.from_pretrained(teacher_dir)
    tokenizer.add_tokens(["odd"])
    tokenizer.save_pretrained(teacher_dir)
    assert "vocabulary" in refused({"use": "gkd", "with": {"teacher": str(teacher_dir)}})
    assert "the row has no field 'gold'" in refused({"use": "opsd", "with": {"prompt": "{gold}"}})
    missing = refused({"use": "gkd", "with": {"teacher": "no/such/folder"}}, code=4)
    assert "model folder 'no/such/folder' does not exist" in missing
    assert "loss.with.teacher" in missing
    assert "model.path" not in missing
    opsd = {"use": "opsd", "with": {"prompt": "{prompt}"}}
    assert "both give their teacher a prompt" in refused([opsd, opsd])
    assert not lab.runs()


def test_answers_to_overlong_prompts_are_left_out_or_refused(lab, sft):
    """The limit holds for a loss's own data, too: 1 prompt of 10 is too long, then all are."""
    rows = [*ANSWERS[1:], {**ANSWERS[0], "question": "Say this again and again."}]
    (lab.folder / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {**lab.config["data"], "max_prompt_tokens": 8, "max_overlong_share": 0.1}
    lab.write(loss=["dapo", sft], data=data)
    said = lab.rlvr("run", "config.yaml", "--dry-run").stderr
    assert "sft: 9 answers, 4 a step" in said
    assert "sft: left out: 1 of 10 prompts (10.0%) are longer than 8 tokens, such as a0 (25" in said
    lab.write(loss=["dapo", sft], data={**data, "max_overlong_share": 0.09})
    told = lab.rlvr("run", "config.yaml", "--dry-run", check=2).stderr
    assert "1 of 10 prompts of the answers of core/sft are longer than 8 tokens, up to 25" in told


# -- which answers a step takes --------------------------------------------------------------------


class Fixed:
    def __init__(self, problems):
        self.problems = problems

    def load(self):
        return self.problems


class Words:
    """A tokenizer of letters."""

    eos_token_id = 0

    def __call__(self, text, add_special_tokens):
        assert not add_special_tokens
        return {"input_ids": [ord(letter) for letter in text]}

    def render(self, problem):
        return tuple(map(ord, problem.prompt))


def problems(n):
    return [Problem(f"p{i}", chr(65 + i), "v", {"gold": chr(97 + i)}, "toy") for i in range(n)]


def demonstrations(n=5, rows=3, seed=0):
    answers = load_answers(Fixed(problems(n)), "gold", seed, "here")
    return Demonstrations(answers, rows, seed, Words(), Words())


def test_t49_answers_end_with_the_end_of_sequence_token():
    (row, *_) = demonstrations().rows(0)
    assert row.token_ids == (row.prompt_ids[0] + 32, 0)
    assert row.loss_mask == (True, True)


def test_every_answer_comes_once_an_epoch_in_an_order_of_the_seed():
    def prompts(made, steps):
        return [row.prompt_ids for step in steps for row in made.rows(step)]

    taken = prompts(demonstrations(), range(5))
    epochs = [taken[i : i + 5] for i in (0, 5, 10)]
    assert all(len(set(epoch)) == 5 for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    assert prompts(demonstrations(), [3]) == taken[9:12], "a pure function of the step"
    assert prompts(demonstrations(seed=1), range(5)) != taken


def test_missing_answers_are_told_together():
    bad = [Problem(f"p{i}", "x", "v", {"other": 1}, "toy") for i in range(8)]
    with pytest.raises(DataError) as caught:
        load_answers(Fixed(bad), "gold", 0, "run.yaml:3")
    complaints = caught.value.complaints
    assert complaints[0].what == "p0: no answer in field 'gold'; fields there are: other"
    assert complaints[0].where == "run.yaml:3"
    assert complaints[-1].what == "and 3 more like these"
    assert len(complaints) == 6


@pytest.mark.parametrize(
    ("given", "said"),
    [(7, "gave a int, nothing to iterate over"), (["a"], "gave a str, not a Problem")],
)
def test_a_data_set_that_gives_no_problems_to_learn_from_is_named(given, said):
    with pytest.raises(PluginError, match=f"Fixed: its load.. {said}") as caught:
        load_answers(Fixed(given), "gold", 0, "run.yaml:3")
    assert "run.yaml:3" in str(caught.value)


def test_a_data_set_that_demonstrates_nothing_needs_a_target():
    with pytest.raises(DataError, match="demonstrates no answers") as caught:
        load_answers(Fixed(problems(2)), None, 0, "run.yaml:3")
    assert "target" in str(caught.value.complaints[0].remedy)


def test_an_offloaded_reference_that_saves_nothing_is_refused_with_every_reason(lab, monkeypatch):
    def told(**sections):
        base = {"steps": 3, "lr": 1e-3, "warmup_steps": 1, "reference": {"offload": True}}
        sections["train"] = base | sections.get("train", {})
        resolved = resolve_file(lab.write(**sections), (), load_host())
        building = build(resolved, lambda: "no-model", RunObserver())
        with pytest.raises(ConfigError) as error, building:
            pass
        assert "config.yaml:" in str(error.value)
        return str(error.value)

    lab.config["data"]["sources"][0]["with"]["verifier"] = "exact"
    held = {"use": "grpo", "with": {"beta": 0.01}}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "no reference that could be offloaded" in told()
    assert "this run computes on the CPU" in told(loss=held)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    model = lab.config["model"] | {"lora": {"rank": 2}}
    assert "takes no memory" in told(loss=held, model=model)
    monkeypatch.setenv("WORLD_SIZE", "2")
    both = told(loss=held, model=model, train={"parallel": "fsdp"})
    assert "takes no memory" in both
    assert "a part of every layer" in both
