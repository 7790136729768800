"""What a resumed run goes on with is what it had: fingerprints of live objects and of files."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parent))

from small import ADAMW, CONSTANT  # type: ignore
from test_invariants import Sampling, run_config, steps, trainer_with  # type: ignore

from rlvr_core.api import RunError, RunStarted
from rlvr_core.builtin.invariants.invariants import invariants_of
from rlvr_core.builtin.invariants.snapshot import differing, digest
from rlvr_core.config.model import ReferenceSection
from rlvr_core.losses import GRPO
from rlvr_core.step import checkpoint
from rlvr_core.step.optim import Optimizer


class Sampler:
    """A part with a position."""

    def __init__(self, position=0):
        self.position = position

    def state_dict(self):
        return {"position": self.position, "order": [3, 1, 2]}


class Evaluations:
    """What remembers the best evaluation."""

    def __init__(self):
        self.best = 0.5

    def state_dict(self):
        return {"best": {"step": 2, "value": self.best}, "early_stop": None}


class Run:
    """A trainer with a sampler, which writes checkpoints and goes on from them."""

    def __init__(self, dtype=torch.float32, *, moving=False, seed=0):
        loss = GRPO(GRPO.Config(beta=0.1))
        self.trainer = trainer_with(loss, reference="frozen", lr=1e-3)
        torch.manual_seed(seed)
        if moving:
            self.trainer.reference.section = ReferenceSection(sync_every=1)
        self.trainer.precision = SimpleNamespace(compute=dtype, autocast=None)
        self.sampler, self.evaluations = Sampler(), Evaluations()
        self.guard = invariants_of(
            run_config(
                self.trainer.train, parity=False, calibration=False, draws=False, kl=not moving
            ),
            self.trainer,
            Sampling(),
            self.sampler,
            evaluations=self.evaluations,
        )
        self.trainer.observer = self.guard

    def train(self, n=2):
        steps(self.trainer, n)
        self.sampler.position += n
        return self

    def save(self, folder, change=lambda tensors: None):
        folder.mkdir()
        tensors = checkpoint.collect(
            self.trainer.model, self.trainer.optimizer, self.trainer.reference
        )
        change(tensors)
        checkpoint.save(
            folder,
            model=self.trainer.model,
            tokenizer=SimpleNamespace(save_pretrained=lambda folder: None),
            compute_dtype=self.trainer.precision.compute,
            state={"guards": self.guard.state_dict(), "sampler": self.sampler.state_dict()},
            snapshot=tensors,
        )
        self.guard.checkpoint_written(folder)
        return folder

    def load(self, folder):
        trainer = self.trainer
        state = checkpoint.load(
            folder, model=trainer.model, optimizer=trainer.optimizer, reference=trainer.reference
        )
        self.sampler.position = state["sampler"]["position"]
        self.guard.load_state_dict(state["guards"])
        return self

    def start(self, step=2):
        self.guard.run_started(RunStarted(Path(), {}, step, resumed=True))
        return self


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
MOVING = pytest.mark.parametrize("moving", [False, True], ids=["still", "moving"])


@DTYPES
@MOVING
def test_a_run_that_has_everything_goes_on(tmp_path, dtype, moving, capsys):
    saved = Run(dtype, moving=moving).train().save(tmp_path / "c")
    other = Run(dtype, moving=moving, seed=5).load(saved).start()
    state = other.guard.state_dict()["resume"]
    assert state["step"] == state["version"] == 2
    assert len(state["weights"]) == len(list(other.trainer.model.parameters()))
    assert len(state["moments"]) == 3 * len(state["weights"])
    assert capsys.readouterr().err == ""
    view = SimpleNamespace(version=2, step=2)
    next(iter(other.guard._checks.values())).begin(view)


def broken(run, words):
    with pytest.raises(RunError) as caught:
        run.start()
    text = str(caught.value)
    assert "guard resume: going on from the checkpoint" in text
    assert "rlvr docs guards#resume" in text
    for word in words:
        assert word in text


@torch.no_grad()
def nudged(run):
    run.trainer.model.lm_head.weight[3, 4] += 1e-7


def rounded(run):
    for one in run.trainer.model.parameters():
        one.data = one.data.bfloat16().float()


def no_moments(run):
    run.trainer.optimizer.inner.state.clear()


def one_moment_zero(run):
    run.trainer.optimizer.inner.state[run.trainer.optimizer.parameters[1]]["exp_avg"].zero_()


@torch.no_grad()
def other_reference(run):
    next(run.trainer.reference.model.parameters()).mul_(1.001)


def sampler_back(run):
    run.sampler.position -= 1


def no_best(run):
    run.evaluations.best = None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (nudged, ["the weights are not those", "in 1 of", "lm_head.weight"]),
        (rounded, ["the weights are not", "rounded to bfloat16", "not from the float32 master"]),
        (no_moments, ["the optimizer's moments are not", "missing"]),
        (one_moment_zero, ["the optimizer's moments are not", "in 1 of", "|exp_avg"]),
        (other_reference, ["the reference model is not the one", "in 1 of"]),
        (sampler_back, ["the sampler would draw other problems"]),
        (no_best, ["the best evaluation, or how long there was no better one, is not that"]),
    ],
)
def test_what_is_lost_is_named(tmp_path, change, words):
    saved = Run(torch.bfloat16).train().save(tmp_path / "c")
    run = Run(torch.bfloat16).load(saved)
    change(run)
    broken(run, words)


def test_moments_of_another_tensor_are_named(tmp_path):
    saved = Run().train().save(tmp_path / "c")
    run = Run().load(saved)
    state = run.trainer.optimizer.inner.state
    named = dict(zip(run.trainer.optimizer.names, run.trainer.optimizer.parameters, strict=True))
    one, two = (named[f"model.layers.{n}.mlp.up_proj.weight"] for n in (0, 1))
    state[one], state[two] = state[two], state[one]
    broken(run, ["moments", "in 4 of"])  # two tensors with two moments; the counts are alike


def test_random_numbers_step_and_version(tmp_path):
    saved = Run().train().save(tmp_path / "c")
    run = Run()
    real, run.guard.load_state_dict = run.guard.load_state_dict, lambda state: None
    run.load(saved)
    torch.rand(1)
    real(checkpoint_state(saved))
    broken(run, ["random numbers"])
    with pytest.raises(RunError, match=r"goes on with step 2, after 2 steps"):
        Run().load(saved).start(step=1)
    check = next(iter(Run().load(saved).start().guard._checks.values()))
    with pytest.raises(RunError, match="the policy version is 0, and was 2"):
        check.begin(SimpleNamespace(version=0, step=2))


def checkpoint_state(folder):
    import json

    return json.loads((folder / "trainer" / "state.json").read_text())["guards"]


def test_a_checkpoint_of_an_older_version_is_gone_on_from_with_a_note(tmp_path, capsys):
    saved = Run().train().save(tmp_path / "c")
    run = Run()
    run.guard.load_state_dict({})
    run.start()
    assert "the checkpoint has no fingerprints" in capsys.readouterr().err
    run.load(saved)


def test_what_was_best_by_another_figure_is_left(tmp_path):
    saved = Run().train().save(tmp_path / "c")
    other = Run(seed=5).load(saved)
    other.evaluations.best = None
    next(iter(other.guard._checks.values()))._snapshots._rules = ["another"]
    other.start()


@DTYPES
@pytest.mark.parametrize("part", ["weights", "moments", "reference"])
def test_a_file_that_holds_something_else_is_not_sealed(tmp_path, dtype, part):
    def change(tensors):
        found = getattr(tensors, part)
        name = sorted(found)[1]
        found[name] = torch.zeros_like(found[name])

    run = Run(dtype, moving=True).train()
    with pytest.raises(RunError, match=r"guard resume: the checkpoint as written.*1 of"):
        run.save(tmp_path / "c", change)


def test_an_export_that_differs_from_its_master_is_named(tmp_path):
    run = Run(torch.bfloat16).train()
    folder = run.save(tmp_path / "c")
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["lm_head.weight"][0, 0] += 1
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(RunError, match=r"other values of model .*lm_head"):
        run.guard.checkpoint_written(folder)


def test_an_optimizer_without_moments_yet_is_no_fault(tmp_path):
    run = Run()
    run.trainer.optimizer = Optimizer(
        run.trainer.model, run.trainer.train, torch.float32, ADAMW, CONSTANT
    )
    run.save(tmp_path / "c")


def test_states_are_compared_as_json_brings_them_back():
    assert digest({2: (1, 2), 10: None}) == digest({"10": None, "2": [1, 2]})
    assert digest({"a": [1, 2]}) != digest({"a": [2, 1]})
    assert digest({"a": [1, "x"]}, ordered=False) == digest({"a": ["x", 1]}, ordered=False)
    assert differing({"a": 1, "b": 2}, {"b": 3, "c": 4}) == ["a", "b", "c"]
