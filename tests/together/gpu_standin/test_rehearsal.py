"""The largest micro-batch is tried before the first rollout, and a step on a GPU is measured."""

import json
import math
import shutil
from types import SimpleNamespace

import pytest
import torch

from rlvr_algos.muon import Muon
from rlvr_core.config.model import SamplingSection, TrainSection
from rlvr_core.losses import GRPO
from rlvr_core.step.objective import LossTerm
from rlvr_core.step.optim import AdamW
from rlvr_core.terminal.facts import step_facts
from rlvr_guards import gpu as guard
from rlvr_guards import rehearsal
from rlvr_guards.rehearsal import bytes_per_weight, worst_groups
from tests.support.train.small import small_model, small_trainer
from tests.together.gpu_standin.apart import apart

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="the stand-in needs g++")


def stood_in(*cases):
    """What ``rehearsals.py`` prints of cases, made in one process."""
    printed, _ = apart("rehearsals", cases)
    return [json.loads(line) for line in printed.splitlines()]


H100 = {"steps": 2, "name": "NVIDIA H100 80GB HBM3"}
KINDS = {
    "bfloat16, reference": {"beta": 0.05},
    "float16, LoRA": {"dtype": "float16", "lora": 4},
}
SMALL = {"prompt": 10, "tokens": 40, "n": 4, "groups": 8, "budget": 400, "dtype": "float32"}


def twice(kinds):
    """Steps without rehearsals, and with one before each step."""
    return [H100 | kind | {"rehearsed": [0, 1]} for kind in kinds.values()]


@pytest.fixture(scope="module")
def found():
    """These, and a rehearsal on three small cards."""
    kinds = twice(KINDS)
    cards = [SMALL | {"memory": memory / 1024} for memory in (40, 2, 0.3)]
    *ways, large, middle, tiny = stood_in(*kinds, *cards)
    return dict(zip(KINDS, ways, strict=True)) | {"large": large, "middle": middle, "tiny": tiny}


def check_no_bit_changed(without, rehearsed):
    assert without["metrics"][0] != without["metrics"][1], "nothing was trained"
    assert rehearsed["metrics"] == without["metrics"]
    assert rehearsed["numbers"] == without["numbers"]


@needs_compiler
@pytest.mark.parametrize("kind", KINDS)
def test_a_rehearsal_changes_no_bit(kind, found):
    """Weights, optimizer, loss scale, random numbers and metrics of two steps."""
    check_no_bit_changed(*found[kind])


@needs_compiler
def test_what_fits_is_said_and_nothing_stays(found):
    # 3 prompts and 9 completions fill 390 of 400; each completion's last token is not fed
    assert 3 * 10 + 9 * 39 == 381
    assert found["large"]["said"].startswith("the largest micro-batch (381 tokens) fits: 0.0 of")
    assert found["large"]["same"]
    assert found["large"]["left_behind"] == 0


@needs_compiler
def test_what_does_not_fit_comes_with_settings_that_were_tried(found):
    middle = found["middle"]
    assert (
        "does not fit on the GPU: 400 tokens, prompts of 10 and completions of 40"
        in (middle["error"])
    )
    assert middle["where"] == "train.tokens_per_micro_batch"
    tried = [line for line in middle["remedies"] if "tried just now, it fits" in line]
    assert tried
    assert all(line.startswith("set train.") for line in tried)
    assert any("memory: false" in line for line in middle["remedies"])
    tiny = found["tiny"]
    assert tiny["remedies"][0].startswith("no smaller budget down to 50 tokens")


@needs_compiler
def test_a_step_on_a_gpu_is_measured(found):
    """MFU by hand: 6 FLOPs a parameter and token, of the H100's 989 TFLOP/s."""
    ways = found["bfloat16, reference"][0]
    for reached, seconds in zip(ways["gpu"], ways["seconds"], strict=True):
        assert set(reached) == {
            *("gpu/train_seconds", "gpu/train_tokens_per_second", "gpu/mfu", "gpu/peak_memory")
        }
        rate = ways["tokens"] / reached["gpu/train_seconds"]
        assert reached["gpu/train_tokens_per_second"] == pytest.approx(rate)
        assert reached["gpu/mfu"] == pytest.approx(6 * ways["parameters"] * rate / 989e12)
        assert 0 < reached["gpu/peak_memory"] < 0.1
        assert {"forward", "backward", "optimizer"} <= set(seconds)
        assert sum(seconds.values()) <= reached["gpu/train_seconds"]
    # in the first step kernels are tried; here the update's waits, and two to read the events
    assert ways["waits"][-1] <= 4 + 2


def test_the_line_of_a_step_on_a_gpu():
    metrics = {"gpu/mfu": 0.314, "gpu/peak_memory": 32.32}
    facts = step_facts(metrics, {"tokens_per_second": 26_960.0, "sync": 0.42})
    assert facts == ["27.0k tok/s", "MFU 31%", "peak 32.3 GiB", "sync 0.4 s"]
    # a card that is not in the table has no public peak to be a share of
    assert step_facts({"gpu/peak_memory": 1.0}, {}) == ["peak 1.0 GiB"]


def config(**train):
    section = {"steps": 9, "lr": 1e-2, "warmup_steps": 0, "tokens_per_micro_batch": 40}
    section |= {"prompts_per_step": 3} | train
    sampling = SamplingSection(n=2, max_tokens=6)
    return SimpleNamespace(train=TrainSection(**section), sampling=sampling)


def trainer_on_cpu():
    made = config().train
    return small_trainer(small_model(), [LossTerm("l", GRPO(GRPO.Config()))], made)


def test_the_worst_groups_fill_two_micro_batches_or_all_that_a_mini_batch_has():
    groups = worst_groups(config(prompts_per_step=100), 3, 20, 1)
    # a group is 3 + 2 x 6 = 15 positions: 80 of them take 6
    assert len(groups) == math.ceil(80 / 15) == 6
    assert len(worst_groups(config(prompts_per_step=100), 3, 20, 4)) == 24
    assert len(worst_groups(config(prompts_per_step=9, mini_batches=2), 3, 20, 1)) == 5
    members = [member for group in groups for member in group.members]
    assert {len(member.completion.token_ids) for member in members} == {6}
    assert {len(member.completion.prompt_ids) for member in members} == {3}
    assert len({group.members[0].completion.prompt_ids for group in groups}) == 6
    assert max(max(member.completion.token_ids) for member in members) < 20


def test_a_rehearsal_on_a_cpu_leaves_the_trainer_as_it_was():
    groups = worst_groups(config(), 3, 20, 1)
    ours, theirs = trainer_on_cpu(), trainer_on_cpu()
    state = torch.get_rng_state()
    for step in range(2):
        outcome = rehearsal.rehearse(ours, config(), 3)
        assert outcome.tokens == 3 * 3 + 5 * 5  # 3 prompts, 5 completions: 39 positions of 40
        assert outcome.error == ""
        assert torch.equal(state, torch.get_rng_state())
        assert all(parameter.grad is None for parameter in ours.optimizer.parameters)
        assert ours.update(groups, step, step).metrics == theirs.update(groups, step, step).metrics
    for mine, other in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize(
    ("builder", "hidden", "size"),
    [(AdamW(AdamW.Config()), True, 8.0), (Muon(Muon.Config()), True, 4.0),
     (Muon(Muon.Config()), False, 8.0)],
)  # fmt: skip
def test_the_state_of_an_optimizer_is_weighed_by_trying(builder, hidden, size):
    assert bytes_per_weight(builder, torch.device("cpu"), hidden_matrix=hidden) == size


def bound(trainer, *, memory=True, **context):
    """The guard of a trainer, bound as if that were on a GPU."""
    made = guard.GpuGuard(guard.GpuGuard.Config(memory=memory))
    made.context, made._on_gpu = SimpleNamespace(trainer=trainer, **context), True
    made._peak, made._parameters = None, 1
    return made


def test_the_engine_sleeps_meanwhile(monkeypatch):
    """Its share of the card is free then, as while a step trains."""
    done = []
    engine = SimpleNamespace(sleep=lambda: done.append("sleep"), wake=lambda: done.append("wake"))
    monkeypatch.setattr(rehearsal, "check", lambda trainer, config, prompt: f"prompt of {prompt}")
    for staleness, expected in ((0, ["sleep", "prompt of 20", "wake"]), (1, ["prompt of 20"])):
        done.clear()
        made = config(max_staleness=staleness)
        sections = SimpleNamespace(
            train=made.train, sampling=made.sampling, data=SimpleNamespace(max_prompt_tokens=20)
        )
        context = {"config": sections, "longest_prompt": 30, "engine": engine}
        context |= {"phase": done.append, "say": done.append}
        trainer = trainer_on_cpu()
        bound(trainer, **context).run_started(None)
        assert done == ["trying the largest micro-batch", *expected]
        bound(trainer, memory=False, **context).run_started(None)
        assert len(done) == 1 + len(expected)


def test_a_component_that_cannot_be_rehearsed_does_not_end_the_run(monkeypatch):
    """Such as a teacher's prompts, which are known by the ids of the run's own problems."""
    said, woken = [], []

    def fails(*_):
        raise KeyError("rehearsal 0")

    monkeypatch.setattr(rehearsal, "check", fails)
    made = config()
    sections = SimpleNamespace(train=made.train, data=SimpleNamespace(max_prompt_tokens=20))
    engine = SimpleNamespace(sleep=lambda: None, wake=lambda: woken.append(True))
    context = {"config": sections, "longest_prompt": 30, "engine": engine}
    bound(trainer_on_cpu(), phase=lambda _: None, say=said.append, **context).run_started(None)
    assert said == ["warning: the largest micro-batch could not be tried: KeyError: 'rehearsal 0'"]
    assert woken == [True]


def test_seconds_of_a_phase_are_of_events_on_a_gpu(monkeypatch):
    """The host hands over 10 ms of work in no time; the device's clock says how long it took."""
    from rlvr_core.step.timing import PhaseTimer

    device_ms = iter([0.0, 10.0, 10.0, 25.0, 25.0, 30.0])
    read = []

    class Event:
        def __init__(self, *, enable_timing):
            assert enable_timing

        def record(self):
            self.at = next(device_ms)

        def synchronize(self):
            read.append(self.at)

        def elapsed_time(self, other):
            return other.at - self.at

    monkeypatch.setattr(torch.cuda, "Event", Event)
    timed = PhaseTimer(torch.device("cuda"))
    for phase in ("forward", "backward", "forward"):
        with timed(phase):
            pass
    assert read == []
    assert timed.seconds() == pytest.approx({"forward": 0.015, "backward": 0.015})
    assert read == [30.0]
