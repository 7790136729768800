"""Every loss moves adapters as the chain rule says: as it would move the merged weights.

The oracle is the same step on a whole model: with W = W0 + s B A, the gradient of B is
s dW A^T and that of A is s B^T dW.
"""

import copy
from importlib.util import find_spec

import pytest
import torch

from rlvr_core.algorithm.policy import PolicyLoss
from rlvr_core.api import Completion, Group, Judged, Problem, Verdict
from rlvr_core.config.model import LoraSection, ReferenceSection, TrainSection
from rlvr_core.lora import lora
from rlvr_core.lora.adapter import matrices, merged_tensors
from rlvr_core.plugins.host import load_host
from rlvr_core.step.batch import Row
from rlvr_core.step.objective import LossTerm
from rlvr_core.step.optim import Update
from rlvr_core.step.reference import SeparateModel, UnderAdapter
from tests.support.train.small import small_model, small_trainer

needs_algos = pytest.mark.skipif(find_spec("rlvr_algos") is None, reason="comes with rlvr-algos")
V, RANK, ALPHA, TEMPERATURE = 24, 3, 6, 0.7
FULL = {"beta": 0.2, "entropy_bonus": 0.01, "top_entropy": 0.6, "kl_ratio_corrected": True}
TRAIN = TrainSection(steps=9, lr=1e-2, warmup_steps=0, tokens_per_micro_batch=30)


def losses():
    registry = load_host().registry
    return {entry.leaf: entry.load() for entry in registry.of("loss")}


LOSSES = losses()
POLICY = [name for name, cls in LOSSES.items() if issubclass(cls, PolicyLoss)]


def base():
    return small_model(
        vocab_size=V,
        intermediate_size=24,
        num_hidden_layers=2,
        tie_word_embeddings=True,
        initializer_range=0.3,
    )


@pytest.fixture(scope="module")
def models():
    """The base, a policy with adapters that do something, and the policy merged: float64."""
    plain = base()
    policy = copy.deepcopy(plain)
    section = LoraSection(rank=RANK, alpha=ALPHA)
    lora.attach(policy, section, seed=1, compute=torch.float64, path="x", revision=None)
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for matrix in matrices(policy).values():
            matrix.copy_(0.3 * torch.randn(matrix.shape, generator=draw))
    policy.double()
    merged = copy.deepcopy(plain).double()
    merged.load_state_dict(dict(merged_tensors(policy)), strict=False)
    return plain.double(), policy, merged


def groups(version=0):
    """Three groups of four ragged completions, one of an older policy."""
    draw = torch.Generator().manual_seed(4)
    made = []
    for index in range(3):
        prompt = tuple(torch.randint(V, (2 + index,), generator=draw).tolist())
        members = []
        for place in range(4):
            n = 1 + (place + index) % 4
            ids = tuple(torch.randint(V, (n,), generator=draw).tolist())
            logps = tuple((-3.5 + torch.rand(n, generator=draw)).tolist())
            answer = Completion(prompt, ids, logps, (True,) * n, "", "stop", version)
            members.append(Judged(answer, {"r": Verdict(place / 3)}, place / 3, None))
        problem = Problem(f"p{index}", "x", "v", {}, "d")
        made.append(Group(problem, tuple(members), version if index else version - 1))
    return made


class Answers:
    def rows(self, step):
        return [
            Row((1, 2), (3, 4, 5), (True,) * 3, (0.0,) * 3, 0.0),
            Row((6,), (7, 8), (True,) * 2, (0.0,) * 2, 0.0),
        ]


def gradients(model, terms, reference):
    """The step's metrics, and the gradient of every trained parameter by name."""
    trainer = small_trainer(model, terms, TRAIN, reference=reference, temperature=TEMPERATURE)
    found = {}

    def take(step):
        named = zip(trainer.optimizer.names, trainer.optimizer.parameters, strict=True)
        found.update({name: parameter.grad.clone() for name, parameter in named})
        trainer.optimizer.inner.zero_grad(set_to_none=True)
        return Update(1.0, True)

    trainer.optimizer.step = take
    metrics = trainer.update(groups(), 0, 0).metrics
    return metrics, found


def compare(models, terms):
    plain, policy, merged = models
    section = ReferenceSection()
    ours, found = gradients(policy, terms, UnderAdapter(policy, section))
    frozen = copy.deepcopy(plain).requires_grad_(False)
    theirs, whole = gradients(merged, terms, SeparateModel(frozen, merged, section))
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12)
    assert len(found) == 28
    scale = ALPHA / RANK
    for layer, own in policy.named_modules():
        if not hasattr(own, "lora_A"):
            continue
        dw_OI = whole[f"{layer}.weight"]
        a_RI, b_OR = own.lora_A["default"].weight, own.lora_B["default"].weight
        close = {"rtol": 1e-8, "atol": 1e-12}
        grad_a = found[f"{layer}.lora_A.default.weight"]
        grad_b = found[f"{layer}.lora_B.default.weight"]
        torch.testing.assert_close(grad_b, scale * dw_OI @ a_RI.T, **close)
        torch.testing.assert_close(grad_a, scale * b_OR.T @ dw_OI, **close)
    assert max(float(grad.abs().max()) for grad in found.values()) > 1e-4
    return ours


@pytest.mark.parametrize("options", [{}, FULL], ids=["defaults", "everything"])
@pytest.mark.parametrize("name", POLICY)
def test_a_policy_loss(models, name, options):
    metrics = compare(models, [LossTerm(name, LOSSES[name](LOSSES[name].Config(**options)))])
    assert not options or metrics["kl/mean"] > 0.01


def test_given_answers(models):
    sft = LOSSES["sft"]
    metrics = compare(models, [LossTerm("sft", sft(sft.Config()), 1.0, Answers())])
    assert metrics["sft/rows"] == 2


def test_a_sum_of_losses(models):
    terms = [
        LossTerm("dapo", LOSSES["dapo"](LOSSES["dapo"].Config(**FULL))),
        LossTerm("gspo", LOSSES["gspo"](LOSSES["gspo"].Config()), 0.5),
        LossTerm("sft", LOSSES["sft"](LOSSES["sft"].Config()), 0.3, Answers()),
    ]
    metrics = compare(models, terms)
    assert {"loss/dapo", "loss/gspo", "loss/sft"} <= metrics.keys()


@needs_algos
def test_distillation_from_a_frozen_teacher(models):
    from rlvr_algos.distillation.teacher import Teacher

    teacher = base().double().requires_grad_(False)
    with torch.no_grad():
        teacher.model.layers[0].mlp.up_proj.weight.mul_(1.5)
    gkd = LOSSES["gkd"](LOSSES["gkd"].Config(teacher="x", top_k=5))
    compare(models, [LossTerm("gkd", gkd, teacher=Teacher(5, teacher))])
