"""The invariants of a step: each fires on its fault, and none on a healthy step."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from small import small_model, small_trainer  # type: ignore

import rlvr_core.step.step as step_module
from rlvr_core.algorithm.estimate import Estimator
from rlvr_core.api import (
    AdvantageOutput,
    AdvantageTraits,
    Completion,
    EngineTraits,
    Group,
    GroupsScored,
    Judged,
    Problem,
    RunError,
)
from rlvr_core.builtin.invariants.differences import Sums, fit
from rlvr_core.builtin.invariants.invariants import invariants_of
from rlvr_core.builtin.invariants.oracles import normalise_then_sum, oracle_of, pass_at_k
from rlvr_core.builtin.invariants.parity import DECIDING
from rlvr_core.builtin.invariants.sync import compare
from rlvr_core.builtin.losses.policy_family import CISPO, SAPO
from rlvr_core.config.model import ReferenceSection, RunConfig, TrainSection
from rlvr_core.engines.sync import ModuleSource, weight_checksums
from rlvr_core.losses import DAPO, GRPO, GSPO, DrGRPO
from rlvr_core.step.objective import LossTerm
from rlvr_core.step.reference import SeparateModel


class Sampling:
    traits = EngineTraits()


def sample(model, n_groups=6, n=6, length=7, *, seed=0, version=0, cold=1.0):
    """Groups sampled token by token from the model, with the log-probs at temperature 1.

    ``cold`` is the temperature that is really sampled at.
    """
    generator = torch.Generator().manual_seed(seed)
    groups = []
    for place in range(n_groups):
        prompt, members = (3, 4 + place, 5), []
        for number in range(n):
            tokens, logps = [], []
            for _ in range(length - number % 3):
                with torch.no_grad():
                    logits_V = model(torch.tensor([[*prompt, *tokens]])).logits[0, -1].double()
                p_V = (logits_V / cold).softmax(-1)
                token = int(torch.multinomial(p_V, 1, generator=generator))
                tokens.append(token)
                logps.append(float(logits_V.log_softmax(-1)[token]))
            completion = Completion(
                prompt, tuple(tokens), tuple(logps), (True,) * len(tokens), "x", "stop", version
            )
            reward = float((number + place) % 3 == 0)
            members.append(Judged(completion, {}, reward, reward > 0))
        problem = Problem(f"p{place}", "?", "core/exact", {}, "toy")
        groups.append(Group(problem, tuple(members), version))
    return groups


def run_config(train, **guards):
    return RunConfig.model_validate(
        {
            "model": {"path": "m"},
            "data": {"sources": ["a"]},
            "train": train.model_dump(exclude={"optimizer", "lr_schedule"}),
            "guards": guards,
        }
    )


def trainer_with(loss=None, *, model=None, reference=None, estimator=None, **train):
    model = model or small_model(num_hidden_layers=2)
    with torch.no_grad():  # distributions that are not flat
        model.lm_head.weight.mul_(20)
    section = TrainSection(**{"steps": 100, "lr": 1e-2, "warmup_steps": 0} | train)
    term = LossTerm("l", loss or GRPO(GRPO.Config()))
    if reference == "frozen":
        frozen = small_model(num_hidden_layers=2).requires_grad_(False)
        frozen.load_state_dict(model.state_dict())
        reference = SeparateModel(frozen, model, ReferenceSection())
    trainer = small_trainer(model, [term], section, reference=reference, estimator=estimator)
    trainer.observer = invariants_of(run_config(section), trainer, Sampling())
    return trainer


def steps(trainer, n=4, **more):
    """Metrics of some steps, each sampled from the policy of its time."""
    found, version = [], 0
    for step in range(n):
        groups = sample(trainer.model, seed=step, version=version, **more)
        trainer.observer.on_groups(GroupsScored(step, version, tuple(groups)))
        report = trainer.update(groups, step, version)
        version += report.applied
        found.append(report.metrics)
    return found


with_kl = GRPO(GRPO.Config(beta=0.05))


@pytest.mark.parametrize(
    ("loss", "more"),
    [
        (None, {}),
        (DAPO(DAPO.Config()), {"mini_batches": 2}),
        (DrGRPO(DrGRPO.Config()), {"num_iterations": 2}),
        (GSPO(GSPO.Config()), {"mini_batches": 2, "num_iterations": 2}),
        (CISPO(CISPO.Config()), {"tokens_per_micro_batch": 40}),
        (SAPO(SAPO.Config()), {}),
        (GRPO(GRPO.Config(top_entropy=0.2, entropy_bonus=0.01)), {}),
        (with_kl, {"reference": "frozen", "num_iterations": 2}),
        (GRPO(GRPO.Config(beta=0.1, kl_estimator="k2")), {"reference": "frozen"}),
        (GRPO(GRPO.Config(beta=0.1, kl_estimator="k1")), {"reference": "frozen"}),
        (GRPO(GRPO.Config(beta=0.1, kl_ratio_corrected=True)), {"reference": "frozen"}),
    ],
)
def test_healthy_steps_are_quiet(loss, more):
    lines = steps(trainer_with(loss, **more))
    assert all(abs(line["parity/slope"] - 1) < 1e-4 for line in lines)
    assert all(line["parity/k3"] < 1e-9 for line in lines)
    assert all(line["advantages/error"] < 1e-6 for line in lines)
    assert all(line["tokens/missing"] == 0 for line in lines)
    assert max(line["calibration/evidence"] for line in lines) < 0.5
    assert lines[0].get("kl/k3", 0.0) < 1e-9
    assert [line["updates/at_rest"] for line in lines] == [0, 0, 0, 0]


def test_a_kl_that_pulls_every_token_down_hides_the_advantages_and_is_no_fault():
    """Two of three completions are right, and beta is above their advantage."""
    loss = GRPO(GRPO.Config(beta=3.0, kl_estimator="k1"))
    trainer = trainer_with(loss, reference="frozen")
    groups = [
        replace(group, members=tuple(replace(m, reward=1 - m.reward) for m in group.members))
        for group in sample(trainer.model)
    ]
    trainer.observer.on_groups(GroupsScored(0, 0, tuple(groups)))
    assert trainer.update(groups, 0, 0).applied == 1


def fault(trainer, guard, *words, n=4, **more):
    with pytest.raises(RunError) as caught:
        steps(trainer, n, **more)
    text = str(caught.value)
    assert f"guard {guard}:" in text
    assert f"rlvr docs guards#{guard}" in text
    for word in words:
        assert word in text
    return text


def in_training(monkeypatch, change):
    """Change what the training pass alone computes."""
    real = step_module.completion_scores
    monkeypatch.setattr(
        step_module,
        "completion_scores",
        lambda model, batch, **more: change(real, model, batch, **more),
    )


def test_parity_sees_another_temperature_in_the_training_pass(monkeypatch):
    def colder(real, model, batch, *, temperature, **more):
        return real(model, batch, temperature=0.97 * temperature, **more)

    in_training(monkeypatch, colder)
    fault(trainer_with(), "parity", "slope", "different temperatures")


def test_parity_sees_a_training_pass_that_is_off_by_one(monkeypatch):
    def late(real, model, batch, **more):
        logp_BT, *others = real(model, batch, **more)
        return (logp_BT.roll(-1, 1), *others)

    in_training(monkeypatch, late)
    fault(trainer_with(), "parity", "k3")


def test_parity_names_weights_that_move_between_micro_batches(monkeypatch):
    real = step_module.PolicyTrainer._losses
    trainer = trainer_with(tokens_per_micro_batch=60, lr=0.03)

    def losses(one, *given):
        if any(parameter.grad is not None for parameter in one.optimizer.parameters):
            one.optimizer.inner.step()
        return real(one, *given)

    monkeypatch.setattr(step_module.PolicyTrainer, "_losses", losses)
    fault(trainer, "parity", "the optimizer steps between them", n=1)


def test_parity_does_not_judge_completions_of_older_weights():
    trainer = trainer_with()
    stale = sample(trainer.model, version=0)
    report = trainer.update(stale, 0, 3)  # three updates later, as far as the trainer knows
    assert "parity/slope" not in report.metrics


def test_slope_and_k3_by_hand():
    """Trainer = 1.1 * engine + 0.05: slope 1.1, bias mean(0.1 x + 0.05)."""
    x = torch.tensor([-1.0, -2.0, -3.0, -0.5], dtype=torch.float64)
    found = fit(Sums.of(1.1 * x + 0.05, x))
    assert found.slope == pytest.approx(1.1)
    assert found.slope_error == pytest.approx(0, abs=1e-6)
    assert found.bias == pytest.approx(0.1 * -1.625 + 0.05)
    d = 0.1 * x + 0.05
    assert found.k3 == pytest.approx(float((d.exp() - d - 1).mean()))


def test_the_error_of_a_slope_knows_that_errors_differ_from_token_to_token():
    """White's estimator, written out; statsmodels calls it HC0."""
    generator = torch.Generator().manual_seed(1)
    x = -torch.rand(400, generator=generator, dtype=torch.float64).exponential_(generator=generator)
    y = 0.02 * x * torch.randn(400, generator=generator, dtype=torch.float64)
    found = fit(Sums.of(x + y, x))
    dx = x - x.mean()
    slope = (dx * y).sum() / (dx**2).sum()
    left = y - y.mean() - slope * dx
    expected = float(((dx * left) ** 2).sum().sqrt() / (dx**2).sum())
    assert found.slope == pytest.approx(1 + float(slope))
    assert found.slope_error == pytest.approx(expected, rel=1e-6)
    assert found.deciding == pytest.approx(float((dx**2).sum() ** 2 / (dx**4).sum()))
    # eight completions that are alike are one
    eight = fit(Sums.of((x + y).repeat(8), x.repeat(8)))
    assert (eight.tokens, eight.slope) == (3200, pytest.approx(found.slope))
    assert eight.slope_error == pytest.approx(found.slope_error)
    assert eight.deciding == pytest.approx(found.deciding)


def test_healthy_rounding_of_a_policy_that_is_nearly_sure_tilts_no_slope():
    """Logits rounded to bfloat16 on both sides at temperatures of 0.1 to 1: 600 steps, no alarm."""
    alarms = 0
    for seed in range(600):
        generator = torch.Generator().manual_seed(seed)
        temperature = (0.1, 0.3, 1.0)[seed % 3]
        logits = 3 * torch.randn(60, 32, generator=generator, dtype=torch.float64)
        logits[:50, 0] += 14 * temperature  # most tokens are nearly sure
        sides = [
            (
                (logits * (1 + 2**-9 * torch.randn(logits.shape, generator=generator)))
                / temperature
            ).log_softmax(-1)
            for _ in range(2)
        ]
        token = torch.multinomial(sides[0].exp(), 1, generator=generator)
        trainer, engine = (one.gather(1, token)[:, 0].repeat(8) for one in sides)
        found = fit(Sums.of(trainer, engine))
        if found.deciding >= DECIDING:
            alarms += abs(found.slope - 1) > 1e-2 + 4 * found.slope_error
        alarms += found.k3 - 4 * found.k3_error > 1e-4 / temperature**2
    assert alarms == 0


@pytest.mark.parametrize(("cold", "words"), [(0.6, "less surprising"), (1.8, "more surprising")])
def test_calibration_sees_another_temperature_behind_right_log_probs(cold, words):
    fault(trainer_with(lr=1e-4), "calibration", words, n=8, cold=cold)


def test_calibration_counts_what_the_sampler_drops():
    trainer = trainer_with()
    groups = sample(trainer.model)
    trainer.observer.on_groups(GroupsScored(0, 0, tuple(groups)))
    all_tokens = sum(len(m.completion.token_ids) for g in groups for m in g.members)
    state = trainer.observer.state_dict()["calibration"]
    trainer.update(groups[:2], 0, 0)
    assert state["tokens"] == all_tokens == trainer.observer.state_dict()["calibration"]["tokens"]


class Changed:
    """An estimator of our own, or a built-in one whose result is changed."""

    def __init__(self, of, traits=None):
        self.of, self.traits = of, traits or AdvantageTraits()

    def __call__(self, step):
        return AdvantageOutput(self.of(step))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a * 1.25, "1.25 times"),
        (lambda a: -a, "-1 times"),
        (lambda a: a + 0.1, "shifted by +0.1"),
        (lambda a: a.roll(1), "belong to other completions"),
    ],
)
def test_advantages_that_are_not_those_of_the_rewards(monkeypatch, change, words):
    import rlvr_core.advantages as module

    real = module.advantages

    def wrong(*arguments):
        found = real(*arguments)
        return replace(found, advantage_N=change(found.advantage_N))

    monkeypatch.setattr(module, "advantages", wrong)
    fault(trainer_with(), "advantages", words)


@pytest.mark.parametrize(
    "shape",
    [
        lambda a, t, n: a * 0.8 ** (n - 1 - t),
        lambda a, t, n: a * (2 * t + 1) / n,
        lambda a, t, n: a / 2 if t == n - 1 else a,
    ],
)
def test_tokens_with_other_advantages_than_their_row(monkeypatch, shape):
    real = step_module.rows_of

    def shaped(*args, **more):
        made = real(*args, **more)
        rows = [
            [
                replace(r, token_advantages=tuple(shape(r.advantage, t, n) for t in range(n)))
                for r in own
                for n in [len(r.token_ids)]
            ]
            for own in made.by_group
        ]
        return replace(made, by_group=rows)

    monkeypatch.setattr(step_module, "rows_of", shaped)
    fault(trainer_with(), "advantages", "have other advantages than their row", "a discount")


def test_an_estimator_of_ones_own_is_checked_if_it_says_that_it_centers():
    calls = []
    raw = Estimator("raw", Changed(lambda step: calls.append(step) or step.reward_N))
    steps(trainer_with(estimator=raw))
    assert len(calls) == 4  # once a step: it may keep state
    centers = AdvantageTraits(centered=True)
    said = Estimator("raw", Changed(lambda step: step.reward_N, centers))
    fault(trainer_with(estimator=said), "advantages", "centered=True", "do not follow")
    centered = Estimator("mine", Changed(lambda step: 3 * (step.reward_N - 1 / 3), centers))
    steps(trainer_with(estimator=centered))


def test_a_loss_of_the_wrong_sign():
    class Down(GRPO):
        def reduce(self, loss_BT, mask_BT, normalizer):
            return -super().reduce(loss_BT, mask_BT, normalizer)

    fault(trainer_with(Down(GRPO.Config())), "advantages", "wrong sign")


def test_formulas_worked_out_by_hand():
    where = "rlvr_core.advantages"

    def of(name):
        return oracle_of(type(name, (), {"__module__": where, "__qualname__": name}), {})

    rewards = [[1.0, 0.0, None, 0.0], [2.0]]
    assert of("Center")(rewards)[0] == pytest.approx([2 / 3, -1 / 3, 0, -1 / 3])
    std = (2 / 9) ** 0.5
    assert of("Group")(rewards)[0] == pytest.approx([2 / 3 / std, -1 / 3 / std, 0, -1 / 3 / std])
    assert of("Rloo")(rewards)[0] == pytest.approx([1, -0.5, 0, -0.5])
    assert of("Group")(rewards)[1] == [0.0]
    # of 3 completions, pairs with the success have the best 1: 2 of 3
    assert pass_at_k([1.0, 0.0, 0.0], 2, "unbiased") == pytest.approx([2.0, 0.0, 0.0])
    scores = [[[1.0, 0.0], [0.0, 4.0]]]
    # both rewards centred and scaled are +-1: 1 * 1 + 0.5 * -1 = 0.5 and -0.5, deviation 0.5
    found = normalise_then_sum(scores, (1.0, 0.5), "Group")
    assert found[0] == pytest.approx([0.5 / 0.5001, -0.5 / 0.5001])


@pytest.mark.parametrize("name", ["twice", "lost", "short", "position"])
def test_tokens_that_are_not_trained_once(monkeypatch, name):
    trainer = trainer_with()
    real = trainer._pack

    def pack(rows):
        if name == "lost":
            return real(rows[:-3])
        if name == "short":
            rows = [replace(row, loss_mask=(*row.loss_mask[:-1], False)) for row in rows]
        packed = real(rows)
        return packed + packed[:1] if name == "twice" else packed

    monkeypatch.setattr(step_module.PolicyTrainer, "_pack", lambda self, rows: pack(rows))
    if name == "position":
        monkeypatch.undo()

        class NoEnd(GRPO):
            def reduce(self, loss_BT, mask_BT, normalizer):
                last_BT = mask_BT.flip(1).cumsum(1).flip(1) == 1
                kept_BT = torch.where(last_BT, 0.0, loss_BT)
                return super().reduce(kept_BT, mask_BT, normalizer)

        trainer = trainer_with(NoEnd(GRPO.Config()))
    words = {
        "twice": "more than once",
        "lost": "denominators",
        "short": "end-of-sequence",
        "position": "the last tokens of the rows get no gradient",
    }
    guards = run_config(trainer.train, parity=False, calibration=False)
    trainer.observer = invariants_of(guards, trainer, Sampling())
    fault(trainer, "tokens", words[name])


@pytest.mark.parametrize("factor", [1, 2])
def test_a_loss_that_is_multiplied_for_other_processes(monkeypatch, factor):
    """In one process gradients are averaged over one."""
    trainer = trainer_with()
    real = trainer._normalizer
    monkeypatch.setattr(
        step_module.PolicyTrainer,
        "_normalizer",
        lambda self, part: replace(real(part), world_size=factor),
    )
    trainer.observer = invariants_of(run_config(trainer.train, loss=False), trainer, Sampling())
    if factor == 1:
        steps(trainer)
    else:
        fault(trainer, "tokens", "multiplied by 2, and 1 processes average their gradients")


def test_a_step_without_an_update(monkeypatch):
    monkeypatch.setattr(step_module, "split_into_mini_batches", lambda *given: [])
    words = "36 of 36 rows that have a reward were trained on by no update"
    fault(trainer_with(), "tokens", words)


@pytest.mark.parametrize(("made", "of", "n"), [(1, 2, "1"), (2, 1, "2"), (2, 3, "2")])
def test_iterations_that_are_left_out_or_made_again(made, of, n):
    trainer = trainer_with(num_iterations=of, lr=1e-4)
    # the loop of the step alone is another one: its settings are those of the config
    trainer.train = type("Fewer", (), {"__eq__": lambda self, other: True, "__hash__": None})()
    section = TrainSection(steps=100, lr=1e-4, warmup_steps=0, num_iterations=of)
    for name, value in section:
        setattr(trainer.train, name, value)
    trainer.train.updates_per_step, trainer.train.num_iterations = of, made
    words = f"was in {n} updates of the step, and train.num_iterations is {of}"
    fault(trainer, "tokens", words)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max_grad_norm", 7.0, "train.max_grad_norm 7.0, and the config has"),
        ("temperature", 0.9, "sampling.temperature 0.9, and the config has 1.0"),
    ],
)
def test_settings_of_the_trainer_that_are_not_the_configs(name, value, words):
    trainer = trainer_with()
    if name == "temperature":
        trainer.temperature = value
    else:
        trainer.train = trainer.train.model_copy(update={name: value})
    guards = run_config(trainer_with().train, parity=False, calibration=False)
    trainer.observer = invariants_of(guards, trainer, Sampling())
    fault(trainer, "updates", words)


def test_kl_of_the_wrong_sign_or_direction(monkeypatch):
    import rlvr_core.algorithm.policy as module

    real = module.kl_policy_ref
    monkeypatch.setattr(module, "kl_policy_ref", lambda p, r, kind="k3": -real(p, r, kind))
    fault(trainer_with(with_kl, reference="frozen"), "kl", "away from the reference")
    monkeypatch.setattr(module, "kl_policy_ref", lambda p, r, kind="k3": real(r, p, kind))
    fault(trainer_with(with_kl, reference="frozen"), "kl", "k3 gives")


def test_a_term_that_is_not_the_kls_is_not_taken_for_it(monkeypatch):
    """What pushes log-probs beside the KL is the loss's fault, which the guard ``loss`` names."""
    real = GRPO.__call__

    def more(loss, batch, normalizer):
        found = real(loss, batch, normalizer)
        mask_BT = batch.mask_BT
        return replace(found, loss=found.loss + 0.3 * batch.logp_BT[mask_BT].sum())

    monkeypatch.setattr(GRPO, "__call__", more)
    trainer = trainer_with(with_kl, reference="frozen")
    fault(trainer, "loss")


def test_a_reference_of_other_weights_or_one_that_moves():
    trainer = trainer_with(with_kl, reference="frozen")
    reference = trainer.reference.model
    with torch.no_grad():
        reference.lm_head.weight.mul_(1.1)
    fault(trainer, "kl", "before the first update")
    trainer = trainer_with(with_kl, reference="frozen")
    steps(trainer, 1)
    with torch.no_grad():
        trainer.reference.model.lm_head.weight.add_(0.01)
    fault(trainer, "kl", "other weights than at the start")
    trainer = trainer_with(with_kl, reference="frozen")
    trainer.reference = SeparateModel(trainer.model, trainer.model, ReferenceSection())
    fault(trainer, "kl", "the policy itself")


def test_a_tensor_without_a_gradient():
    trainer = trainer_with()
    weight = trainer.model.model.layers[1].mlp.up_proj.weight
    weight.register_hook(torch.zeros_like)
    fault(trainer, "updates", "got no gradient", "layers.1.mlp.up_proj")
    trainer = trainer_with()
    trainer.model.model.embed_tokens.weight.requires_grad_(False)
    fault(trainer, "updates", "takes no gradient", "embed_tokens")


def watched_by_updates_alone():
    """A trainer whose updates are not computed again, which would tell earlier."""
    trainer = trainer_with()
    config = run_config(trainer.train, optimizer=False)
    trainer.observer = invariants_of(config, trainer, Sampling())
    return trainer


def test_an_optimizer_that_moves_nothing():
    trainer = watched_by_updates_alone()
    inner = trainer.optimizer.inner
    before = [one.detach().clone() for one in trainer.optimizer.parameters]

    def put_back(*_):
        with torch.no_grad():
            for one, old in zip(trainer.optimizer.parameters, before, strict=True):
                one.copy_(old)

    inner.register_step_post_hook(put_back)
    fault(trainer, "updates", "works on a copy")


def test_one_tensor_that_the_optimizer_leaves_out():
    trainer = watched_by_updates_alone()
    weight = trainer.model.model.layers[0].post_attention_layernorm.weight
    before = weight.detach().clone()

    def put_back(*_):
        with torch.no_grad():
            weight.copy_(before)

    trainer.optimizer.inner.register_step_post_hook(put_back)
    fault(trainer, "updates", "has not moved", "post_attention_layernorm", n=6)


def test_each_can_be_switched_off():
    section = TrainSection(steps=3)
    names = ("parity", "calibration", "rewards", "advantages", "loss", "updates", "optimizer")
    names += ("kl", "tokens", "sync", "resume", "reported")
    elsewhere = ("draws", "prompts", "completions")  # those that know the sampler and the data
    config = run_config(section, **dict.fromkeys((*names, *elsewhere), False))
    assert not config.guards.invariants
    for name in elsewhere:
        others = {other: False for other in (*names, *elsewhere) if other != name}
        assert run_config(section, **others).guards.invariants
    trainer = trainer_with()
    for name in names:
        others = {other: False for other in names if other != name}
        made = invariants_of(run_config(section, **others), trainer, Sampling())
        assert list(made.state_dict()) == [name] + ["gaps"] * (name == "parity")


def test_evidence_survives_a_checkpoint():
    trainer = trainer_with(with_kl, reference="frozen")
    steps(trainer, 2)
    saved = trainer.observer.state_dict()
    other = invariants_of(run_config(trainer.train), trainer, Sampling())
    other.load_state_dict(saved)
    assert other.state_dict() == saved
    assert saved["calibration"]["tokens"] > 0


class Holding:
    """An engine with a copy of the trainer's weights."""

    def __init__(self, model, own_weights=False):
        self.traits = EngineTraits(own_weights=own_weights)
        self.held = dict(model.state_dict())
        self.load(model)

    def load(self, model, leave_out=()):
        for name, tensor in model.named_parameters():
            if name not in leave_out:
                self.held[name] = tensor.detach().clone()

    def fingerprint(self):
        return weight_checksums(self.held.items())


def with_engine(**more):
    trainer = trainer_with(lr=1e-6, **more)
    engine = Holding(trainer.model)
    trainer.observer = invariants_of(run_config(trainer.train), trainer, engine)
    return trainer, engine


def test_an_engine_that_keeps_its_old_weights_is_found_at_the_smallest_update():
    trainer, engine = with_engine()
    steps(trainer, 1)
    engine.load(trainer.model)
    trainer.observer.weights_loaded(1, ModuleSource(trainer.model))
    steps(trainer, 1)
    with pytest.raises(RunError, match="the engine kept its old weights"):
        trainer.observer.weights_loaded(2, ModuleSource(trainer.model))


def test_one_tensor_that_did_not_arrive_is_named():
    trainer, engine = with_engine()
    steps(trainer, 2)
    engine.load(trainer.model, leave_out=["model.layers.1.self_attn.q_norm.weight"])
    with pytest.raises(RunError, match=r"guard sync: .*1 of .*q_norm") as caught:
        trainer.observer.weights_loaded(2, ModuleSource(trainer.model))
    assert "part of the weights" in str(caught.value)


def found(sent, held):
    compared = compare(sent, held)
    return compared.n, compared.other + compared.moved


def test_fused_tensors_are_compared_by_the_sum_of_their_parts():
    q, k, v = (torch.randn(4, 3) for _ in range(3))
    sent = weight_checksums([("l.q_proj.w", q), ("l.k_proj.w", k), ("l.v_proj.w", v)])
    held = weight_checksums([("l.qkv_proj.w", torch.cat([q, k, v]))])
    assert found(sent, held) == (1, [])
    held = weight_checksums([("l.qkv_proj.w", torch.cat([q, k, v + 1]))])
    assert found(sent, held) == (1, ["l.qkv_proj.w"])
    assert found(sent, {"other": 3}) == (0, [])


def test_a_moving_reference_beside_an_adapter_is_not_sent_and_not_compared():
    sent = {"q.lora_A.default.weight": 1, "q.lora_A.reference.weight": 2}
    held = {"q.lora_A.default.weight": 1, "q.lora_A.reference.weight": 9}
    assert found(sent, held) == (1, [])
