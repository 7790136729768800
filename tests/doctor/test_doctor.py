"""``rlvr doctor CONFIG``: a healthy run is left in peace, every planted mistake is named."""

import json
import time
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
import yaml

from rlvr_core.api import Complaint, ConfigError
from rlvr_core.builtin.doctor.answers import _credited
from rlvr_core.builtin.doctor.batch import numbers_of
from rlvr_core.builtin.doctor.consensus import last_answer
from rlvr_core.builtin.doctor.endings import histogram, loops
from rlvr_core.builtin.doctor.examination import LENIENT, examine
from rlvr_core.builtin.doctor.live import agreement
from rlvr_core.builtin.doctor.mending import Draft, place_of
from rlvr_core.builtin.doctor.problems import _labelled, _slots
from rlvr_core.builtin.doctor.report import Answer, Check, Report
from rlvr_core.builtin.doctor.selftest import learnt
from rlvr_core.config.model import RunConfig
from rlvr_core.testing.lab import Lab
from tests.doctor import planted


def wrong(report):
    return [(one.id, one.answer) for one in report.level("warn", "fail", "skip")]


def named(report, expected):
    """Which of the expected mistakes are not named."""
    texts = [(id_, f"{answer.value} {answer.remedy}") for id_, answer in wrong(report)]
    return [
        (check, word)
        for check, words in expected.items()
        for word in words
        if not any(id_ == check and word in text for id_, text in texts)
    ]


@pytest.fixture(scope="module")
def healthy():
    """The examination of the quick start, and the CPU seconds that it took in this process."""
    begun = time.process_time()
    report = examine(planted.QUICKSTART)
    return report, time.process_time() - begun


@pytest.mark.slow
@pytest.mark.essential
def test_the_quick_start_is_healthy_and_every_part_was_measured(healthy):
    report, seconds = healthy
    assert wrong(report) == []
    assert report.verdict == "healthy"
    asked = {one.id for one in report.findings}
    assert asked >= {
        "batch/consensus", "batch/ending", "batch/pass_rate", "batch/variance", "cost/memory",
        "cost/time", "cost/verifiers", "data/copies", "data/held_out", "data/leaks", "disk/files",
        "model/attention", "prompt/bos", "prompt/context", "prompt/eos", "prompt/round_trip",
        "prompt/template", "verifier/canaries", "verifier/gold", "weights/lr", "weights/parity",
        "weights/sync",
    }  # fmt: skip
    # two steps of 32 x 8 and the batch: CPU seconds do not depend on what else the machine does
    assert seconds < 60
    assert any(title.startswith("prompt of ") for title in report.shown)


@pytest.mark.slow
def test_the_sync_is_proved_by_a_perturbation_that_moves_the_policy(healthy):
    report, _ = healthy
    (sync,) = [one for one in report.findings if one.id == "weights/sync"]
    moved = float(sync.answer.value.split("perturbed by ")[1].split()[0])
    assert moved > 0.05
    assert sync.answer.level == "ok"


@pytest.mark.slow
@pytest.mark.essential
def test_ten_mistakes_in_data_verifier_and_sampling_are_all_named(tmp_path):
    planted.MISTAKES.append(planted.Mistake("ten_of_data", planted.ten_of_data, (), ""))
    report = examine(planted.written(["ten_of_data"], tmp_path))
    assert named(report, planted.TEN_OF_DATA) == []
    assert report.verdict == "broken"
    assert len(report.changes) == 3
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_ten_mistakes_in_model_prompts_and_training_are_all_named(tmp_path):
    planted.MISTAKES.append(planted.Mistake("ten_of_model", planted.ten_of_model, (), ""))
    report = examine(planted.written(["ten_of_model"], tmp_path))
    assert named(report, planted.TEN_OF_MODEL) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "check", "words"),
    [
        ("references_are_sentences", "batch/reading", "bare answer"),
        ("text_is_noise", "batch/noise", "sampling.temperature"),
        ("most_prompts_are_left_out", "data/overlong", "data.max_prompt_tokens"),
        ("updates_are_too_small_to_matter", "weights/lr", "eps"),
        ("some_answers_do_not_fit", "batch/ending", "sampling.max_tokens"),
    ],
)
def test_a_mistake_is_named_by_its_cause(tmp_path, name, check, words):
    report = examine(planted.written([name], tmp_path))
    assert named(report, {check: [words]}) == []
    # and no other check blames what is right
    assert "batch/consensus" not in {id_ for id_, _ in wrong(report)}


@pytest.mark.slow
def test_a_reward_for_a_form_that_the_model_keeps_is_a_doubt_and_no_failure(tmp_path):
    report = examine(planted.written(["form_is_kept_already"], tmp_path))
    assert report.verdict == "doubtful"
    assert [id_ for id_, _ in wrong(report)] == ["batch/rewards"]


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
    assert found["data/copies"]["measured"].startswith("395 of 400 (98.8 %)")
    assert report["changes"][0].startswith("data/copies: train on the 5 different problems")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "data.jsonl"]


@pytest.mark.slow
def test_a_run_makes_the_cheap_half_by_itself(tmp_path):
    lab = Lab(tmp_path)
    config = planted.written(["answer_in_prompt_with_label"], tmp_path)
    done = lab.rlvr("run", str(config), "--dry-run")
    told = done.stdout + done.stderr
    assert "warning: preflight data/leaks: 16 of 16 (100 %) prompts hold their own" in told


# -- the parts ------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("prompt", "answer", "told"),
    [
        ("What is 1+2? Answer: 3", "3", True),
        ("What is 1+2? The solution is 3.", "3", True),
        ("What is 1+2? (hint = 3)", "3", True),
        ("What is 1+2? Answer: 31", "3", False),
        ("What is 1+2? Answer: 3.5", "3", False),
        ("Give the answer to 3+4.", "7", False),
    ],
)
def test_labelled_answers(prompt, answer, told):
    assert _labelled(prompt, answer) is told


def test_slots_are_places_that_the_question_does_not_point_to():
    slots = dict(_slots("What does it cost? Price 12 Weight 30"))
    assert slots["at the end"] == "30"
    assert slots["behind 'price'"] == "12"
    # here the question asks for it: reading it is the task
    assert "behind 'price'" not in dict(_slots("What is the price? Price 12 Weight 30"))
    # a frame has a place of its own, which prompts without it do not have
    slots = dict(_slots("[42] What is six times seven?"))
    assert slots["at the beginning"] == slots["at the beginning, as '[...]'"] == "42"
    assert "at the beginning, as '[...]'" not in dict(_slots("What is six times seven?"))


def test_last_answer_is_a_number_or_a_word():
    assert last_answer("6+1=7, so \\boxed{1,047}") == "1047"
    assert last_answer("It must be blue.") == "blue"
    assert last_answer("") == ""


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("the sum is 1,036 apples.", ["1036"]),
        ("36", []),
        ("-3.5", []),
        ("Paris", []),
        ("3 4 5", []),
        ("x+3", []),
    ],
)
def test_numbers_of_a_reference_that_is_a_sentence(reference, found):
    assert numbers_of(reference) == found


def test_loops_are_told_from_prose():
    assert loops("so " * 400)
    assert not loops("".join(f"{n}*{n}={n * n}, then " for n in range(17, 60)))


def test_histogram_counts_every_length():
    text = histogram([1, 1, 5, 9], bins=5)
    assert [line.split()[3] for line in text.splitlines()] == ["2", "0", "1", "0", "1"]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("config.yaml:12 (train.lr)", ("train", "lr")),
        ("data.max_prompt_tokens", None),
        ("config.yaml:3 (data.sources.0.with.path)", ("data", "sources", 0, "with", "path")),
        ("somewhere", None),
    ],
)
def test_complaints_point_to_keys(where, found):
    data = {"train": {"lr": 0}, "data": {"sources": [{"with": {"path": "x"}}]}}
    assert place_of(Complaint("wrong", where), data) == found


def test_a_rule_of_a_section_takes_out_the_optional_key_that_it_names(tmp_path):
    draft = Draft(tmp_path / "c.yaml", {"train": {"steps": 5, "warmup_steps": 9, "lr": 1e-6}})
    error = ConfigError("train: warmup_steps (9) must be below steps (5)", where="c.yaml:1 (train)")
    assert draft.mend(error)
    assert draft.data == {"train": {"steps": 5, "lr": 1e-6}}


def test_a_required_key_is_not_taken_out(tmp_path):
    draft = Draft(tmp_path / "c.yaml", {"model": {"path": "nowhere"}})
    assert not draft.mend(ConfigError("no such folder", where="c.yaml:1 (model.path)"))


def test_a_check_that_raises_is_skipped_and_the_others_are_asked():
    def broken(_):
        raise ZeroDivisionError("oops")

    report = Report()
    report.ask(
        [
            Check("a/broken", "?", broken),
            Check("a/refused", "?", lambda _: (_ for _ in ()).throw(ConfigError("bad", where="x"))),
            Check("a/fine", "?", lambda _: Answer("ok", "1")),
        ],
        None,
    )
    assert [(one.id, one.answer.level) for one in report.findings] == [
        ("a/broken", "skip"), ("a/refused", "fail"), ("a/fine", "ok"),
    ]  # fmt: skip
    assert report.verdict == "broken"


def test_changes_are_the_three_of_most_weight():
    report = Report()
    for name, level, weight in (
        ("a", "warn", 0), ("b", "fail", 0), ("c", "fail", 130), ("d", "ok", 0), ("e", "warn", 70),
    ):  # fmt: skip
        report.add(name, "?", Answer(level, "x", "do it", weight=weight))
    assert [one.id for one in report.changes] == ["c", "b", "e"]


def test_learning_is_judged_by_the_first_and_last_steps():
    assert learnt([(20, 80)] * 3 + [(60, 80)] * 3, 1e-3).level == "ok"
    assert learnt([(20, 80)] * 6, 1e-3).level == "warn"
    assert learnt([(60, 80)] * 3 + [(20, 80)] * 3, 1e-3).level == "fail"
    # 60 and 66 of 240: z = .62
    assert learnt([(20, 80)] * 3 + [(22, 80)] * 3, 1e-3).data["z"] == pytest.approx(0.622, abs=1e-2)


def test_no_check_of_a_step_ends_the_examined_run():
    assert "guards=[{use: defaults, off: true}]" in LENIENT


@pytest.mark.parametrize(("ranks", "level"), [("1", "ok"), ("1000000", "warn")])
def test_room_for_weights_in_shared_memory_is_looked_at_before_a_run(monkeypatch, ranks, level):
    from torch import nn

    from rlvr_core.builtin.doctor.model import _shared_memory

    with torch.device("meta"):
        skeleton = nn.Linear(1023, 1000)  # 1,024,000 parameters: 0.00381 GiB in float32
    config = SimpleNamespace(engine=None, model=SimpleNamespace(lora=None))
    mode = SimpleNamespace(background=True)
    subject = SimpleNamespace(skeleton=skeleton, config=config, prepared=SimpleNamespace(mode=mode))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    answer = _shared_memory(subject)
    assert answer.level == level
    needed = {"1": "0.00381", "1000000": "3.81e+03"}[ranks]
    assert f"up to {needed} of " in answer.value
    assert ("docker: --shm-size" in answer.remedy) == (level == "warn")
    mode.background = False
    assert _shared_memory(subject) is None


@pytest.mark.slow
def test_what_the_models_structure_rules_out_ends_a_run_before_its_weights_are_loaded(tmp_path):
    """All of it at once, each with its key."""
    lab = Lab(tmp_path)
    config = planted.written(["context_is_too_short"], tmp_path)
    done = lab.rlvr(
        "run", str(config), "--dry-run",
        "--set", "model.lora={rank: 4, target_modules: [q_proj, lm_head, query_key_value]}",
        check=2,
    )  # fmt: skip
    assert "'lm_head', 'query_key_value' match no linear layer beside which" in done.stderr
    assert "model.lora" in done.stderr
    assert "the model was not made for that length" in done.stderr
    assert "sampling.max_tokens" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (ImportError("flash_attn is not installed"), "fail"),
        (ValueError("GPT2LMHeadModel does not support it"), "fail"),
        (RuntimeError("Tensor.item() cannot be called on meta tensors"), "warn"),
    ],
)
def test_an_attention_that_is_not_there_is_certain_and_code_that_needs_weights_is_not(error, level):
    from rlvr_core.builtin.doctor.model import _attention
    from rlvr_core.builtin.doctor.preflight import CERTAIN

    class Unbuilt:
        config = SimpleNamespace(model=SimpleNamespace(attention="flash_attention_2"))

        @property
        def skeleton(self):
            raise error

    answer = _attention(Unbuilt())
    assert answer.level == level
    assert f"flash_attention_2 cannot be used: {type(error).__name__}: {error}" in answer.value
    assert CERTAIN["train/groups"] == ("train", "context_parallel")
    assert CERTAIN["model/attention"] == ("model", "attention")


def test_wrong_answers_that_are_paid_for_their_form():
    """137 of 169 wrong answers have .2; scores that differ are partial credit for content."""
    found = _credited("data with v", Counter({0.2: 137, 0.0: 32}))
    assert found is not None
    assert "137 of 169 (81.1 %) wrong answers get a score of 0.2" in found.value
    assert _credited("data with v", Counter({0.0: 137, 0.2: 32})) is None
    assert _credited("data with v", Counter({0.1 * i: 20 for i in range(8)})) is None
    assert _credited("data with v", Counter({0.2: 7})) is None
    assert _credited("data with v", Counter()) is None


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
    from rlvr_core.api.services import load_host
    from rlvr_core.builtin.doctor.model import _split_rows

    train = {"steps": 3, "warmup_steps": 0, "context_parallel": changes.get("split", 2)}
    data = {"sources": [{"use": "core/jsonl"}]}
    model = {"path": "m"} | changes.get("model", {})
    limits = RunConfig.model_validate({"model": model, "data": data, "train": train})
    text = SimpleNamespace(sliding_window=changes.get("windows"))
    config = SimpleNamespace(get_text_config=lambda: text, _attn_implementation="sdpa")
    resolved = SimpleNamespace(host=load_host())
    answers = _split_rows(
        SimpleNamespace(
            limits=limits,
            prepared=SimpleNamespace(resolved=resolved),
            skeleton=SimpleNamespace(config=config),
        )
    )
    assert [said in one.value for one in answers] == ([True] if said else [])
    assert all("train.context_parallel: 1" in one.remedy for one in answers)


@pytest.mark.slow
def test_eval_tasks_are_asked_with_their_own_room(tmp_path):
    """Three tokens hold no answer; the training's 44 hold one, and a quarter of those is right."""
    config = yaml.safe_load(planted.QUICKSTART.read_text())
    held_out = {"use": "math/arithmetic", "with": {"split": "heldout"}}
    config["eval"]["tasks"] = [
        {"use": "core/dataset", "with": {"data": held_out, "max_tokens": 3}},
        {"use": "math/arithmetic-heldout-greedy"},
    ]
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    found = [one.answer.value for one in examine(path).findings if one.id == "eval/style"]
    assert len(found) == 2
    assert "core/dataset: 0 of " in found[0]
    assert "math/arithmetic-heldout-greedy: 0 of " not in found[1]
