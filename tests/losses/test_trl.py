"""TRL's own loss code as an oracle: value and gradient, in float64.

TRL computes a loss in a method of its trainer. It is called here on a stand-in that holds what the
method reads: options, one process, and log-probs that are given instead of computed.
"""

import math
import warnings
from collections import defaultdict
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from rlvr_core.algorithm.entropy import EntropyController, entropy_threshold
from rlvr_core.algorithm.policy import EntropyControl
from rlvr_core.api import LossBatch, Normalizer
from rlvr_core.plugins.host import load_host

pytest.importorskip("trl", minversion="1.16", reason="the oracle is TRL 1.16 (extra 'oracle')")

ROWS, TOKENS, CAP = 6, 8, 11
TARGET, STEP = 1.5, 0.02
CLIPPED = ("grpo", "dr_grpo", "dapo", "luspo")
REGISTERED = {entry.leaf for entry in load_host().registry.of("loss")}
KL = {
    "no KL": {},
    "KL": {"beta": 0.1},
    "corrected KL": {"beta": 0.1, "kl_ratio_corrected": True},
}


def losses(*names):
    """Parametrises by those of the losses that are installed, by ``name``."""
    return pytest.mark.parametrize("name", [name for name in names if name in REGISTERED])


@pytest.fixture(scope="module")
def trl():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about experimental modules and the version of vLLM
        return _trainers()


def _trainers():
    from trl.experimental.gmpo.gmpo_trainer import GMPOTrainer
    from trl.trainer.grpo_trainer import GRPOTrainer

    return SimpleNamespace(GRPO=GRPOTrainer, GMPO=GMPOTrainer)


def rows():
    """Ragged rows with one log-prob of each policy, an entropy and importance weights."""
    draw = torch.Generator().manual_seed(5)

    def normal(scale):
        return scale * torch.randn(ROWS, TOKENS, dtype=torch.float64, generator=draw)

    lp = -2 * torch.rand(ROWS, TOKENS, dtype=torch.float64, generator=draw) - 0.1
    old = lp + normal(0.4)
    return SimpleNamespace(
        lp=lp.requires_grad_(),
        old=old,
        ref=lp.detach() + normal(0.3),
        engine=old + normal(0.5),
        entropy=normal(1.0).abs().requires_grad_(),
        mask=torch.arange(TOKENS) < torch.tensor([8, 3, 5, 1, 6, 2])[:, None],
        advantage=torch.tensor([1, -0.5, 0.25, -1.5, 2, -0.1], dtype=torch.float64),
    )


def trls(trl, data, loss_type, *, weight=None, trainer="GRPO", control=None, **options):
    """TRL's loss of the rows as one micro-batch that is the whole step.

    ``control`` holds the state of TRL's adaptive entropy, which is moved on.
    """
    alone = SimpleNamespace(
        num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x,
        gather_for_metrics=lambda x: x, pad_across_processes=lambda x, dim, pad_index: x,
        sync_gradients=True,
    )  # fmt: skip
    args = SimpleNamespace(
        use_bias_correction_kl=options.get("kl_ratio_corrected", False),
        delta=options.get("delta"),
        sapo_temperature_pos=1.0,
        sapo_temperature_neg=1.05,
        vespo_k_pos=2.0,
        vespo_lambda_pos=3.0,
        vespo_k_neg=3.0,
        vespo_lambda_neg=2.0,
        steps_per_generation=1,
        entropy_target=TARGET,
        entropy_coef_delta=STEP,
        entropy_coef_min=0.0,
        entropy_coef_max=0.1,
    )
    self = SimpleNamespace(
        loss_type=loss_type,
        importance_sampling_level=options.get("ratio", "token"),
        beta=options.get("beta", 0.0),
        epsilon_low=options.get("clip_low", 0.2),
        epsilon_high=options.get("cap", options.get("clip_high", 0.2)),
        top_entropy_quantile=options.get("top_entropy", 1.0),
        entropy_coef=options.get("entropy_bonus", 0.0),
        _entropy_bonus_enabled="entropy_bonus" in options or control is not None,
        use_adaptive_entropy=control is not None,
        _entropy_window_stats=None,
        off_policy_mask_threshold=options.get("off_policy_mask"),
        aux_loss_enabled=False,
        use_vllm=weight is not None,
        vllm_importance_sampling_correction=True,
        max_completion_length=CAP,
        current_gradient_accumulation_steps=1,
        model=SimpleNamespace(training=True),
        accelerator=alone,
        args=args,
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *_, **__: (data.lp, data.entropy, None),
    )
    vars(self).update(control or {})
    self.get_off_policy_mask = trl.GRPO.get_off_policy_mask
    self.get_gamma_weights = trl.GRPO.get_gamma_weights
    self.get_high_entropy_mask = partial(trl.GRPO.get_high_entropy_mask, self)
    ids = torch.zeros(ROWS, TOKENS, dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1] + 1,
        "completion_ids": ids,
        "completion_mask": data.mask.to(torch.float64),
        "advantages": data.advantage,
        "old_per_token_logps": data.old,
        "ref_per_token_logps": data.ref,
        "importance_sampling_ratio": weight,
        "num_items_in_batch": data.mask.sum(),
    }
    if "off_policy_mask" in options:
        inputs["sampling_per_token_logps"] = data.engine
    loss = getattr(trl, trainer)._compute_loss(self, None, inputs)
    if control is not None:
        control |= {name: getattr(self, name) for name in control}
    return loss


def ours(data, name, bonus=None, **options):
    cls = load_host().registry.find("loss", name).load()
    chosen = None
    if options.get("top_entropy", 1) < 1:
        known_N = data.entropy.detach()[data.mask]
        chosen = data.mask & (data.entropy >= entropy_threshold(known_N, options["top_entropy"]))
    batch = LossBatch(
        data.lp, data.old, data.engine, data.ref, data.mask, data.advantage, data.entropy, chosen,
        entropy_bonus=bonus,
    )  # fmt: skip
    step = Normalizer(rows=ROWS, tokens=int(data.mask.sum()), max_completion_tokens=CAP)
    return cls(cls.Config(**({"importance_correction": {"mode": "off"}} | options)))(
        batch, step
    ).loss


def same(data, mine, theirs):
    assert mine.item() != 0
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9)
    leaves = [data.lp, data.entropy]
    for a, b in zip(
        torch.autograd.grad(mine, leaves, allow_unused=True),
        torch.autograd.grad(theirs, leaves, allow_unused=True),
        strict=True,
    ):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
            assert a.abs().max() > 1e-3


@losses(*CLIPPED, "cispo", "sapo")
@pytest.mark.parametrize("ratio", ["token", "sequence"])
@pytest.mark.parametrize("kl", KL)
@pytest.mark.parametrize("weighed", [False, True], ids=["plain", "weighed"])
def test_loss_is_trls(trl, name, ratio, kl, weighed):
    data = rows()
    options = KL[kl] | {"ratio": ratio}
    if name in CLIPPED:
        options |= {"clip_low": 0.2, "clip_high": 0.28, "delta": 1.6}
    if name == "cispo":
        options["cap"] = 1.3
    weight = None
    mine = options
    if weighed:
        weight = (data.old - data.engine).exp().clamp(max=1.2)
        mine = options | {"importance_correction": {"mode": "token_truncate", "cap": 1.2}}
    same(data, ours(data, name, **mine), trls(trl, data, name, weight=weight, **options))


def test_gspo_is_trls_grpo_with_the_sequence_ratio(trl):
    data = rows()
    theirs = trls(trl, data, "grpo", ratio="sequence", clip_low=3e-4, clip_high=4e-4)
    same(data, ours(data, "gspo"), theirs)


@losses("vespo")
@pytest.mark.parametrize("kl", KL)
@pytest.mark.parametrize("weighed", [False, True], ids=["plain", "weighed"])
def test_vespo_is_trls(trl, name, kl, weighed):
    data = rows()
    weight, mine = None, KL[kl]
    if weighed:
        # TRL adds up the weights of a whole row, so what is masked has to weigh 1
        weight = (data.old - data.engine).exp().clamp(max=1.2).where(data.mask, 1.0)
        mine = KL[kl] | {"importance_correction": {"mode": "token_truncate", "cap": 1.2}}
    same(data, ours(data, name, **mine), trls(trl, data, name, weight=weight, **KL[kl]))


@losses("gmpo")
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_gmpo_is_trls(trl, name, beta):
    data = rows()
    options = {"beta": beta, "clip_low": 0.4, "clip_high": 0.3}
    same(data, ours(data, name, **options), trls(trl, data, "", trainer="GMPO", **options))


@losses("grpo", "dapo", "cispo", "gmpo")
def test_top_entropy_is_trls(trl, name):
    data, trainer = rows(), "GMPO" if name == "gmpo" else "GRPO"
    options = {"top_entropy": 0.6} | ({"cap": 5.0} if name == "cispo" else {"clip_high": 0.3})
    mine = ours(data, name, **options)
    theirs = trls(
        trl, data, name, trainer=trainer, **({"clip_low": 0.4} if name == "gmpo" else {}), **options
    )
    if name == "gmpo":
        # a row of which nothing is chosen has the constant -A for TRL, and is 0 here
        (a,), (b,) = (torch.autograd.grad(x, data.lp) for x in (mine, theirs))
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
    else:
        same(data, mine, theirs)


@losses("grpo", "dapo", "luspo")
def test_entropy_bonus_is_trls(trl, name):
    data = rows()
    options = {"entropy_bonus": 0.2, "clip_low": 0.2, "clip_high": 0.2}
    same(data, ours(data, name, **options), trls(trl, data, name, **options))


@pytest.mark.parametrize("name", ["grpo", "dapo"])
def test_the_steered_entropy_bonus_is_trls(trl, name):
    """Forty updates whose entropies cross the target back and forth, to both ends of the range."""
    options = {"clip_low": 0.2, "clip_high": 0.2}
    control = EntropyControl(target=TARGET, step=STEP, max=0.1)
    mine = EntropyController(control, 0.05)
    theirs = {"entropy_coef": 0.05, "_last_world_entropy": float("inf")}
    weights = set()
    for update in range(40):
        data = rows()
        with torch.no_grad():
            now = data.entropy[data.mask].mean()
            data.entropy *= (TARGET + 0.3 * math.sin(update / 3) + 0.05) / now
        bonus = mine.bonus
        steered = options | {"entropy_bonus": 0.05, "entropy_control": control}
        a = ours(data, name, bonus, **steered)
        b = trls(trl, data, name, control=theirs, **options)
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
        for x, y in zip(*(torch.autograd.grad(z, [data.lp, data.entropy], allow_unused=True)
                          for z in (a, b)), strict=True):  # fmt: skip
            x, y = (torch.zeros(1) if z is None else z for z in (x, y))
            torch.testing.assert_close(*torch.broadcast_tensors(x.double(), y.double()))
        mine.observe(float(data.entropy.detach()[data.mask].mean()))
        assert (mine.coefficient, mine.entropy) == pytest.approx(tuple(theirs.values()), abs=1e-12)
        weights.add((round(bonus, 6), round(mine.coefficient, 6)))
    assert {0.0, 0.1} <= {coefficient for _, coefficient in weights}
    assert {0.0, 0.1} <= {bonus for bonus, _ in weights}
    assert len({bonus for bonus, _ in weights}) > 3


@losses(*CLIPPED, "cispo", "sapo", "vespo")
@pytest.mark.parametrize("kl", ["no KL", "KL"])
@pytest.mark.parametrize("weighed", [False, True], ids=["plain", "weighed"])
def test_off_policy_mask_is_trls(trl, name, kl, weighed):
    data = rows()
    data.engine += torch.tensor([0.5, 0.6, 0, 0.4, 0, 0], dtype=torch.float64)[:, None]
    # rows 1, 3 and 5 have a negative advantage, and drifts of which the threshold parts them
    drift = ((data.engine - data.lp.detach()) * data.mask).sum(1) / data.mask.sum(1)
    bad = drift[[1, 3, 5]].sort().values
    threshold = (bad[1] + bad[2]).item() / 2
    assert bad[1] < threshold < bad[2]
    assert threshold > 0
    assert drift[[0, 2, 4]].max() > threshold  # a good completion is kept however far it is
    options = KL[kl] | {"off_policy_mask": threshold}
    if name == "cispo":
        options |= {"cap": 1.3}
    elif name in CLIPPED:
        options |= {"clip_low": 0.2, "clip_high": 0.28}
    weight, mine = None, options
    if weighed:
        weight = (data.old - data.engine).exp().clamp(max=1.2).where(data.mask, 1.0)
        mine = options | {"importance_correction": {"mode": "token_truncate", "cap": 1.2}}
    found = ours(data, name, **mine)
    same(data, found, trls(trl, data, name, weight=weight, **options))
    without = {key: value for key, value in mine.items() if key != "off_policy_mask"}
    assert abs((found - ours(data, name, **without)).item()) > 1e-4
