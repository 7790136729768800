"""Single checks of the doctor, each on a healthy and a faulty case made by hand."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from rlvr_core.api import Verdict
from rlvr_core.api.services import load_host
from rlvr_core.builtin.doctor import answers, comparing, endings, settings, weight_files, wording
from rlvr_core.builtin.doctor.answers import Tried
from rlvr_core.builtin.doctor.comparing import frame, less_often
from rlvr_core.builtin.doctor.consensus import Vote, tail, too_many
from rlvr_core.builtin.doctor.direction import Direction
from rlvr_core.builtin.doctor.wording import odd_characters
from rlvr_core.config.model import RunConfig


def config(**changes):
    train = {"steps": 100, **changes.pop("train", {})}
    data = {"sources": ["math/arithmetic"]}
    return RunConfig.model_validate(
        {"model": {"path": "m"}, "data": data, "train": train, **changes}
    )


def of(**changes):
    return SimpleNamespace(limits=config(**changes), config=config(**changes))


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ({"use": "core/grpo", "with": {"beta": 0.1, "clip_high": 0.28}}, []),
        ({"use": "core/grpo", "with": {"beta": 20}}, ["0.1 nats of KL from the reference cost 2"]),
        ({"use": "core/dapo", "with": {"clip_high": 20}}, ["up to 21"]),
        ({"use": "mine/other", "with": {"beta": 20, "clip_high": 20}}, []),
        ([{"use": "core/grpo", "with": {"beta": 5, "clip_high": 28}}], ["loss.0", "up to 29"]),
    ],
)
def test_losses_are_looked_at_term_by_term(loss, words):
    answers = settings._loss(of(loss=loss))
    assert [one.level for one in answers] == (["warn"] * len(words) or ["ok"])
    assert all(word in one.value for word, one in zip(words, answers, strict=False))


def test_a_rank_above_the_size_of_a_layer_is_named():
    layers = torch.nn.ModuleDict({"q": torch.nn.Linear(64, 16), "up": torch.nn.Linear(64, 128)})
    layers.get_output_embeddings = lambda: None
    for rank, level in ((16, "ok"), (17, "warn")):
        lora = {"rank": rank, "target_modules": "all-linear"}
        subject = of(model={"path": "m", "lora": lora})
        subject.skeleton = layers
        assert settings._rank(subject).level == level


def plan(weights, problems=("p",)):
    """One deciding verifier and one beside it."""
    verifiers = {"main": SimpleNamespace(), "other": SimpleNamespace()}
    return SimpleNamespace(
        verifiers=verifiers, weights=lambda step: weights, names=lambda problem: ("main", "other")
    )


@pytest.mark.parametrize(("weight", "level"), [(0.1, "ok"), (10.0, "ok"), (-100.0, "warn")])
def test_another_reward_may_not_be_worth_far_more_than_the_outcome(weight, level):
    judge = SimpleNamespace(plan=plan((1.0, weight)))
    subject = SimpleNamespace(prepared=SimpleNamespace(judge=judge), sample=["p"])
    assert settings._rewards(subject).level == level


def member(main, other, passed=None):
    verdicts = {"main": Verdict(main, passed=bool(main)), "other": Verdict(other)}
    return SimpleNamespace(verdicts=verdicts, passed=bool(main) if passed is None else passed)


@pytest.mark.parametrize(("lengths", "level"), [((0.2, 0.4), "ok"), ((1.0, 7.0), "warn")])
def test_the_spread_within_a_group_decides_what_is_learnt(lengths, level):
    # spread of the outcome 0.5; of lengths 0.1 and 3
    members = [member(0.0, lengths[0]), member(1.0, lengths[1])]
    group = SimpleNamespace(problem="p", members=members)
    judge = SimpleNamespace(plan=plan((1.0, 1.0)))
    subject = SimpleNamespace(prepared=SimpleNamespace(judge=judge))
    batch = SimpleNamespace(
        subject=subject, groups=[group], main=lambda group: "main", judged_enough=True
    )
    assert comparing._outweighed(batch).level == level


@pytest.mark.parametrize(
    ("answer", "level"), [("carry 1", "fail"), ("the sum 57", "ok"), ("57", "ok")]
)
def test_references_of_another_kind_than_the_answers_are_named(answer, level):
    from rlvr_core.api import Problem

    problems = [Problem(str(n), "p", "x", {"answer": answer}, "d") for n in range(4)]
    verdict = {"main": Verdict(0.0, passed=False, extracted="57")}
    members = [SimpleNamespace(verdicts=verdict, passed=False)] * 100
    batch = SimpleNamespace(
        judged_enough=True,
        members=members,
        noisy=False,
        subject=SimpleNamespace(problems=problems),
        groups=[SimpleNamespace(members=members)],
        main=lambda group: "main",
    )
    assert comparing._kind(batch).level == level


def test_a_verifier_that_raises_on_most_answers_of_a_kind_is_named():
    counts = {"an empty answer": Tried(0, 4), "random words": Tried(0, 4)}
    raised = {"an empty answer": ["AttributeError: no group"] * 3, "random words": ["x"] * 2}
    (answer,) = answers._raised("d with v", raised, counts)
    assert answer.level == "warn"
    assert "on an empty answer: AttributeError" in answer.value
    assert answers._raised("d with v", {"random words": ["x"] * 2}, counts) == []


def test_a_frame_is_what_all_texts_begin_and_end_with():
    assert frame(["What is 1+2?", "What is 15+2?", "What is 3+4?"]) == ("What is", "?")
    assert frame(["one", "two"]) == ("", "")
    assert frame(["same", "same"]) == ("same", "same")


@pytest.mark.parametrize(
    # chances at half the rate: 0.5^10 = 0.00098; 0.5^9 = 0.002; 0.9^48 = 0.006
    ("hits", "n", "rate", "less"),
    [(0, 10, 1.0, True), (0, 9, 1.0, False), (0, 48, 0.2, False), (1, 10, 1.0, False)],
)
def test_less_often_needs_evidence(hits, n, rate, less):
    assert less_often(hits, n, rate) is less


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("What is\u200b 2+3?", "U+200B"),
        ("\ufeffWhat is 2+3?", "U+FEFF"),
        ("What is\ufffd?", "U+FFFD"),
        ("Tom&#39;s 2&nbsp;apples", "HTML"),
        ("Jos\u00c3\u00a9 has 2", "encoding"),
        ("It\u00e2\u20ac\u2122s 2", "encoding"),
        ("bell\x07", "control"),
    ],
)
def test_odd_characters_are_named(text, word):
    (said,) = odd_characters(text)
    assert word in said


@pytest.mark.parametrize(
    "text",
    [
        "Jos\u00e9 pays 5 \u20ac \u2014 \u201chow much?\u201d",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian needs the joiner
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "<html><body>&nbsp;Price &amp; tax</body></html>: what is the price?",
        "Unescape this HTML: &lt;b&gt;",
        "tabs\tand\r\nlines",
        "AT&T; R&D",
    ],
)
def test_what_belongs_to_a_text_is_not_odd(text):
    assert odd_characters(text) == []


def test_one_odd_prompt_of_many_is_its_subject():
    texts = ["What is 2+3?"] * 199
    assert wording._odd("prompts", [*texts, "\u200b"]) is None
    assert wording._odd("prompts", [*texts, *["\u200b"] * 3]).level == "warn"


class Model(torch.nn.Module):
    """Two layers and a head, tied to the embedding or not."""

    def __init__(self, tied):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(7, 3), torch.nn.Linear(3, 7, bias=False)
        self.layer = torch.nn.Linear(3, 3)
        text = SimpleNamespace(tie_word_embeddings=tied)
        self.config = SimpleNamespace(get_text_config=lambda decoder: text)
        self.get_output_embeddings = lambda: self.head
        self.get_input_embeddings = lambda: self.embed


@pytest.mark.parametrize(
    ("tied", "without", "level"),
    [(True, "head.weight", "ok"), (False, "head.weight", "fail"), (True, "layer.bias", "fail")],
)
def test_weights_that_no_file_holds_are_named(tmp_path, tied, without, level):
    model = Model(tied)
    stored = {n: w.detach().clone() for n, w in model.state_dict().items() if n != without}
    save_file(stored, tmp_path / "model.safetensors")
    prepared = SimpleNamespace(model_path=str(tmp_path))
    answer = weight_files._complete(SimpleNamespace(prepared=prepared, skeleton=model))
    assert answer.level == level
    assert level == "ok" or without in answer.value


def values_of(tmp_path, **tensors):
    save_file(tensors, tmp_path / "model.safetensors")
    host = load_host({"RLVR_PLUGINS": ""})
    prepared = SimpleNamespace(model_path=str(tmp_path), resolved=SimpleNamespace(host=host))
    (answer,) = weight_files._values(SimpleNamespace(prepared=prepared))
    return answer


@pytest.mark.parametrize(("value", "level"), [(1.0, "ok"), (float("nan"), "fail")])
def test_a_weight_that_is_no_number_is_named(tmp_path, value, level):
    weight = torch.arange(9, dtype=torch.bfloat16).reshape(3, 3)
    weight[1, 2] = value
    answer = values_of(tmp_path, weight=weight, other=torch.ones(2))
    assert answer.level == level
    assert level == "ok" or "1 of 2 tensors" in answer.value


@pytest.mark.parametrize("number", [0.0, 0.25])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_matrix_of_one_number_is_named_and_a_new_norm_is_not(tmp_path, number, dtype):
    fine = torch.arange(12, dtype=dtype).reshape(3, 4)
    answer = values_of(tmp_path, a=torch.full((3, 4), number, dtype=dtype), norm=torch.ones(4),
                       b=fine)  # fmt: skip
    assert answer.level == "warn"
    assert answer.value == "1 of 3 tensors are matrices of one number, such as zero: a"
    assert values_of(tmp_path, norm=torch.ones(4), b=fine).level == "ok"


def test_layers_that_the_configuration_leaves_out_are_named(tmp_path):
    class Layers(Model):
        def __init__(self):
            super().__init__(False)
            self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(2))

    model = Layers()
    stored = {name: one.detach().clone() for name, one in model.state_dict().items()}
    subject = SimpleNamespace(prepared=SimpleNamespace(model_path=str(tmp_path)), skeleton=model)
    # a part for images is left out on purpose
    stored["vision.blocks.0.weight"] = torch.ones(2)
    save_file(stored, tmp_path / "model.safetensors")
    assert weight_files._complete(subject).level == "ok"
    stored |= {f"layers.2.{name}": torch.ones(2) for name in ("weight", "bias")}
    save_file(stored, tmp_path / "model.safetensors")
    answer = weight_files._complete(subject)
    assert answer.level == "fail"
    assert "2 tensors in the files are of layers that config.json leaves out" in answer.value
    assert "layers.2.weight" in answer.value


@pytest.mark.parametrize(
    ("changes", "level", "word"),
    [
        ({}, "ok", ""),
        ({"measured": 0.2}, "ok", ""),
        ({"measured": 0.5}, "fail", "masks"),
        # weights of size 0.05 are 3.7e-9 apart: a hundredth of 1e-9 is lost
        ({"measured": 0.0, "applied": 0.0, "lr": 1e-9, "size": 0.05}, "warn", "train.lr"),
        ({"measured": 0.5, "finest": 0.3}, "warn", "train.lr"),
        ({"measured": 0.22, "finest": 0.3}, "ok", ""),
        ({"measured": 0.22, "finest": 1.0}, "warn", "train.lr"),
        ({"moved": False, "lr": 1e-12, "size": 0.05}, "fail", "raise train.lr from 1e-12"),
        ({"moved": False, "lr": 1e-3, "size": 0.05}, "fail", "every gradient is 0"),
        ({"agreement": -0.9, "finest": 1.0}, "fail", "reversed"),
    ],
)
def test_directions_by_hand(changes, level, word):
    known = {"agreement": 1.0, "predicted": 0.22, "measured": 0.22, "moved": True, "rows": 80}
    answer = Direction(**{**known, "applied": 0.22, **changes}).answer()
    assert answer.level == level
    assert word in answer.remedy


@pytest.mark.parametrize(
    ("cap", "need", "temperature", "words"),
    [
        (44, 90, 1.0, "raise sampling.max_tokens from 44 to about 90"),
        (44, 44, 1.0, "chat template"),
        (44, 40, 3.0, "lower sampling.temperature from 3"),
        (44, 40, 0.7, "chat template"),
    ],
)
def test_a_cap_is_never_raised_to_less(cap, need, temperature, words):
    stop = [SimpleNamespace(finish_reason="stop", token_ids=[1] * need)] * 10
    cut = [SimpleNamespace(completion=SimpleNamespace(finish_reason="length", token_ids=[1]))] * 9
    done = SimpleNamespace(completion=SimpleNamespace(finish_reason="stop", token_ids=[1]))
    subject = SimpleNamespace(
        config=config(sampling={"max_tokens": cap, "temperature": temperature}),
        prepared=SimpleNamespace(renderer=SimpleNamespace(is_end=lambda token: True)),
        tokenizer=SimpleNamespace(eos_token_id=2),
    )
    batch = SimpleNamespace(
        members=[*cut, *[done] * 9], longer=stop, subject=subject, passed_over=Counter()
    )
    answer = endings._ending(batch)
    assert words in answer.remedy
    assert ("raise" in answer.remedy) == (need > cap)


@pytest.mark.parametrize(
    ("lr", "decay", "level"),
    # products 7e-5, 0.01 (not above it), 0.035
    [(7e-4, 0.1, "ok"), (1e-3, 10, "ok"), (7e-4, 50, "warn")],
)
def test_a_decay_that_shrinks_the_model_is_named(lr, decay, level):
    optimizer = {"use": "core/adamw", "with": {"weight_decay": decay}}
    answer = settings._decay(of(train={"lr": lr, "optimizer": optimizer}))
    assert answer.level == level
    if level == "warn":
        # 0.035 off in each: ln 2 / 0.035 = 19.8
        assert "3.5 % off every weight in each update: in 20 updates" in answer.value
    assert settings._decay(of(train={"lr": lr})) is None


def votes(n, answer=None, share=1.0, right=False):
    return [Vote(answer or str(at), right, 0, share) for at in range(n)]


@pytest.mark.parametrize(
    # chances of as many at 2 %, by hand: 3 of 25: 1 - .6035 - .3079 - .0754 = .0132;
    # 3 of 40: 1 - .4457 - .3638 - .1448 = .0457; 2 are too few
    ("k", "n", "many"),
    [(3, 25, True), (3, 40, False), (2, 9, False), (5, 40, True), (3, 14, True)],
)
def test_how_many_choices_against_the_reference_are_too_many(k, n, many):
    right = votes(n - k, share=0.9, right=True)
    assert too_many(votes(k, share=0.9), right, n) is many


def test_a_model_that_errs_is_less_sure_or_errs_alike():
    right = votes(22, share=0.95, right=True)
    # spread by hand: three of 0.5 among 22 of 0.95 vary by 0.45^2 * 3 * 22 / 625 = 0.0214
    assert not too_many(votes(3, share=0.5), right, 25)
    assert not too_many(votes(3, answer="7", share=0.95), right, 25)
    # above a fifth it does not matter
    assert too_many(votes(6, share=0.5), votes(19, share=0.95, right=True), 25)


def test_the_chance_of_a_count_is_the_binomials():
    assert tail(3, 25, 0.02) == pytest.approx(0.01324, abs=1e-4)
    assert tail(0, 5, 0.3) == 1.0
    assert tail(5, 5, 0.5) == pytest.approx(1 / 32)
