"""The guard ``seeds`` computes each draw again, and ``calibration`` how deep tokens lie."""

import math
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from small import small_model  # type: ignore
from test_invariants import run_config, trainer_with

from rlvr_core.api import (
    Completion,
    Draw,
    EngineTraits,
    Group,
    GroupsScored,
    Judged,
    Problem,
    RunError,
    RunStarted,
    SamplingParams,
    Transcript,
    Turn,
)
from rlvr_core.builtin.environments.seeds import turn_seed
from rlvr_core.builtin.invariants.bets import Bets, Token, farther, token_at
from rlvr_core.builtin.invariants.drawn_tokens import numbers_of, stream
from rlvr_core.builtin.invariants.incoherent import coherence, nearness
from rlvr_core.builtin.invariants.invariants import invariants_of
from rlvr_core.builtin.invariants.seeds import seed_of
from rlvr_core.builtin.invariants.uniform import DEPTHS, Depths, _gain
from rlvr_core.builtin.samplers.epochs import Shuffle
from rlvr_core.config.model import TrainSection
from rlvr_core.engines import decode as engine
from rlvr_core.engines.decode import HuggingFaceDecoder, RowPlan, decode
from rlvr_core.engines.sampling import completion_seed

N = 6


class Stops:
    def special_ids(self, stops):
        return set()


class Lab:
    """A trainer whose guard watches groups that the engine's own loop samples."""

    def __init__(self, trait=True, **train):
        self.trainer = trainer_with(model=small_model(num_hidden_layers=2))
        with torch.no_grad():
            self.trainer.model.lm_head.weight.mul_(0.2)
        self.sampler = Shuffle(Shuffle.Config())
        self.config = run_config(TrainSection(steps=9, prompts_per_step=4, **train))
        own = SimpleNamespace(traits=EngineTraits(inverts_stream=trait))
        self.guard = invariants_of(self.config, self.trainer, own, self.sampler)
        checks = self.guard._checks
        self.guard._checks = {k: checks[k] for k in ("seeds", "calibration") if k in checks}
        self.guard.run_started(RunStarted(Path(), {}, 0))

    def steps(self, first, last, seed=completion_seed, **more):
        """Take steps until the guard speaks up."""
        for step in range(first, last):
            self.step(step, seed, **more)

    def step(self, step, seed=completion_seed, version=0, turn=None):
        """Sample and judge a step; arguments as for ``sampled``."""
        groups = self.sampled(seed, version, turn)
        self.guard.on_groups(GroupsScored(step, version, groups))
        return self.guard._checks["seeds"].end(None) if "seeds" in self.guard._checks else {}

    def sampled(self, seed=completion_seed, version=0, turn=None):
        """Sample a step; ``turn`` gives the seeds of the second turns of conversations.

        Args:
            seed: Makes the seeds of completions.
            version: The policy's.
            turn: Makes the seed of a turn; without it each completion is one answer.
        """
        params, groups = SamplingParams(1.0, 1.0, 0, 8, ()), []
        draws = [
            Draw(Problem(f"p{i}", "?", "core/exact", {}, "toy"), N, self.sampler.drawn + i)
            for i in range(4)
        ]
        self.sampler._drawn += 4
        for place, draw in enumerate(draws):
            prompt, id_ = (3, 4 + place, 5), draw.problem.id
            seeds = [seed(0, id_, version, draw.index, sample) for sample in range(N)]
            plans = [RowPlan(params, one, 6 + number % 3) for number, one in enumerate(seeds)]
            with torch.no_grad():
                found = decode(
                    HuggingFaceDecoder(self.trainer.model),
                    [prompt],
                    [plans],
                    eos_ids=(1,),
                    stop_strings=Stops(),
                )
            members = [
                Judged(
                    Completion(
                        prompt,
                        one.token_ids,
                        one.logprobs,
                        (True,) * len(one.token_ids),
                        "x",
                        one.finish_reason,
                        version,
                    ),
                    {},
                    1.0,
                    True,
                )
                for one in found
            ]
            if turn is not None:
                members = [
                    replace(member, completion=self._answered(member.completion, turn(own, 1)))
                    for member, own in zip(members, seeds, strict=True)
                ]
            groups.append(Group(draw.problem, tuple(members), version))
        return tuple(groups)

    def _answered(self, first, seed):
        """A completion to which an environment says two tokens, and the model four more."""
        said = (7, 8)
        plan = RowPlan(SamplingParams(1.0, 1.0, 0, 8, ()), seed, 4)
        with torch.no_grad():
            (more,) = decode(
                HuggingFaceDecoder(self.trainer.model),
                [(*first.prompt_ids, *first.token_ids, *said)],
                [[plan]],
                eos_ids=(1,),
                stop_strings=Stops(),
            )
        turns = (
            Turn("assistant", "x", len(first.token_ids)),
            Turn("user", "y", len(said)),
            Turn("assistant", "x", len(more.token_ids)),
        )
        script = Transcript("e", turns, "max_turns")
        ids = (*first.token_ids, *said, *more.token_ids)
        return replace(
            first,
            token_ids=ids,
            logprobs=(*first.logprobs, 0.0, 0.0, *more.logprobs),
            loss_mask=script.loss_mask(len(ids)),
            transcript=script,
        )


def test_turns_of_a_conversation_have_seeds_of_their_own():
    lab = Lab()
    for step in range(3):
        assert lab.step(step, turn=turn_seed)["seeds/astray"] == 0.0


def test_a_second_turn_with_the_random_numbers_of_the_first():
    lab = Lab()
    with pytest.raises(RunError, match="are not those that the random numbers of their seeds"):
        lab.steps(0, 8, turn=lambda seed, _: seed)


def test_a_conversation_in_branches_is_not_looked_at():
    """Turns of other branches come in between, which its transcript does not have."""
    script = Transcript("e", (Turn("assistant", "x", 2),), "done")
    one = Completion((3,), (4, 5), (-1.0, -1.0), (True, True), "x", "stop", 0, transcript=script)
    assert numbers_of(9, one) == stream(9, 2)
    assert numbers_of(9, replace(one, branches=(one,))) == []


def test_the_seed_and_the_numbers_are_those_of_the_engine():
    for parts in [(0, "p", 0, 0, 0), (3, 'é"\n', 12, 999, 7)]:
        assert seed_of(*parts) == completion_seed(*parts)
        seed = completion_seed(*parts)
        assert stream(seed, 70) == engine.uniforms([seed], 0, 70)[:, 0].tolist()


def test_healthy_steps_are_quiet():
    lab = Lab()
    for step in range(4):
        assert lab.step(step)["seeds/astray"] == 0
    assert lab.step(4)["seeds/against"] == 0


def test_beside_training_a_sync_may_come_between_a_request_and_its_first_token():
    """Seeds are of the version that was asked for, tokens of the one after it."""

    def asked_before(run_seed, problem_id, version, draw, sample):
        return completion_seed(run_seed, problem_id, version - 1, draw, sample)

    lab = Lab(max_staleness=1)
    for step in range(3):
        assert lab.step(step, asked_before, version=3)["seeds/astray"] == 0
    in_turns = Lab()  # where nothing comes between
    with pytest.raises(RunError, match="guard seeds"):
        in_turns.step(0, asked_before, version=3)


def test_ahead_of_training_the_draw_is_found():
    lab = Lab(max_staleness=1)
    for step in range(3):
        assert lab.step(step)["seeds/astray"] == 0


@pytest.mark.parametrize(
    "other",
    [
        lambda run, id_, version, draw, sample: run + version + draw + sample,
        lambda run, *parts: completion_seed(run + 1, *parts),
        lambda run, id_, version, draw, sample: completion_seed(run, id_, version, 0, sample),
        lambda run, id_, v, draw, sample: completion_seed(run, id_, v, draw, N - 1 - sample),
    ],
)
def test_seeds_that_are_others(other):
    lab = Lab()
    with pytest.raises(RunError, match="guard seeds") as caught:
        lab.steps(0, 3, other)
    assert "the seeds of completions are others" in str(caught.value)


def test_two_completions_with_one_seed():
    lab = Lab()

    def last_as_first(run, id_, version, draw, sample):
        return completion_seed(run, id_, version, draw, sample % (N - 1))

    with pytest.raises(RunError, match="guard seeds") as caught:
        lab.steps(0, 4, last_as_first)
    assert "seeds repeat" in str(caught.value)


def greedy_at(position):
    def change(monkeypatch):
        at, sample = engine.RandomStreams.at, engine.sample
        now = {}

        def noted(streams, t):
            now["t"] = t
            return at(streams, t)

        def sampled(logits_BV, rows, uniform_B):
            raw_BV = logits_BV.float().clone()
            sharp_BV = logits_BV * (1e4 if now["t"] == position else 1)
            token_B, _ = sample(sharp_BV, rows, uniform_B)
            return token_B, raw_BV.log_softmax(-1).gather(-1, token_B[:, None])[:, 0]

        monkeypatch.setattr(engine.RandomStreams, "at", noted)
        monkeypatch.setattr(engine, "sample", sampled)

    return change


def repeating(monkeypatch):
    uniforms = engine.uniforms

    def first_three(seeds, start, count):
        few = uniforms(seeds, 0, 3)
        return few[[place % 3 for place in range(start, start + count)]]

    monkeypatch.setattr(engine, "uniforms", first_three)


def unlikely_left_out(monkeypatch, least=0.03):
    sample = engine.sample

    def sampled(logits_BV, rows, uniform_B):
        raw_BV = logits_BV.float().clone()
        p_BV = raw_BV.softmax(-1)
        token_B, _ = sample(raw_BV.masked_fill(p_BV < least, -torch.inf), rows, uniform_B)
        return token_B, logits_BV.float().log_softmax(-1).gather(-1, token_B[:, None])[:, 0]

    monkeypatch.setattr(engine, "sample", sampled)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (greedy_at(0), "at position 1 of completions the likeliest token is always taken"),
        (greedy_at(2), "at position 3 of completions the likeliest token is always taken"),
        (repeating, "from token 4 of completions on the random numbers are not those"),
        (unlikely_left_out, "samples from another distribution"),
    ],
)
def test_tokens_that_their_numbers_do_not_draw(monkeypatch, change, words):
    lab = Lab()
    change(monkeypatch)
    with pytest.raises(RunError, match="guard seeds") as caught:
        lab.steps(0, 3)
    assert words in str(caught.value)


@pytest.mark.parametrize("change", [greedy_at(0), partial(unlikely_left_out, least=0.05)])
def test_an_engine_with_random_numbers_of_its_own(monkeypatch, change):
    """Its tokens alone, by how deep they lie in their distributions, show it."""
    lab = Lab(trait=False)
    lab.steps(0, 3)
    change(monkeypatch)
    with pytest.raises(RunError, match="guard calibration") as caught:
        lab.steps(3, 12)
    assert "min_p, or greedy tokens" in str(caught.value)


def test_coherence_by_hand():
    """Two of four are outside, and 1.6 would be by chance."""
    apart = (0.0, 0.0, 0.1, 0.2)
    tokens = [Token(0, 0, 0, t, 0.6, apart[t], 0.15, likeliest=False) for t in range(4)]
    assert coherence(tokens) == pytest.approx(1 - 2 / 1.6)
    assert coherence([]) == 1
    assert nearness(tokens) == pytest.approx(1 - 0.3 / 0.6)
    assert nearness([]) == 1


def test_a_token_by_hand():
    """A number of .7 is .2 beyond an interval up to .5; any number is .1^2 / 2 + .5^2 / 2 apart."""
    token = token_at((0, 1, 2, 3), 0.1, 0.5, 0.7, likeliest=True)
    assert not token.inside
    assert (token.width, token.apart, token.chance) == pytest.approx((0.4, 0.2, 0.13))
    assert token_at((0, 0, 0, 0), -0.1, 0.5, 0.0, likeliest=True).inside


def test_a_part_is_found_where_the_whole_says_nothing():
    """One completion of sixteen is incoherent; 5 % are allowed, as in bfloat16."""
    bets, generator = Bets(), np.random.default_rng(0)
    for _ in range(10):
        tokens = [
            token_at((s, s, 0, t), 0.2, 0.6, 0.9 if s == 15 else 0.4, likeliest=False)
            for s in range(16)
            for t in range(int(generator.integers(3, 6)))
        ]
        evidence, part = bets.add(tokens, 0.05)
        if evidence >= 1:
            break
    assert (evidence >= 1, part) == (True, "completion 16 of each group")


def test_a_few_tokens_far_off_are_found_though_rounding_may_move_more_a_little():
    """Two of 100 tokens are .5 off: less than the 5 % of bfloat16, more than the .5 % far off."""
    near, far, evidence = Bets(), Bets(), []
    for step in range(20):
        off = {7 * step % 100, (7 * step + 51) % 100}
        tokens = [
            token_at(
                (n // 8, n // 8, n // 32, n % 8),
                0.1,
                0.3,
                0.8 if n in off else 0.2,
                likeliest=False,
            )
            for n in range(100)
        ]
        assert near.add(tokens, 0.05)[0] < 1
        evidence.append(far.add([farther(token, 0.08) for token in tokens], 0.005, "far ")[0])
    assert max(evidence) >= 1
    moved = farther(token_at((0, 0, 0, 0), 0.1, 0.3, 0.35, likeliest=False), 0.08)
    assert (moved.width, moved.inside) == (pytest.approx(0.36), True)


def test_a_sure_token_whose_truncation_rounds_otherwise_is_no_evidence():
    """Of 100 tokens that are nearly sure one is another, as bfloat16 keeps it at the edge of top-p.

    Width 1 says that this cannot be by chance, and .9 that it can.
    """

    def evidence(most):
        near, far, found = Bets(), Bets(), 0.0
        for step in range(20):
            tokens = []
            for n in range(100):
                where = (n // 8, n // 8, n // 32, n % 8)
                number = 0.99 if n == 7 * step % 100 else 0.3
                token = token_at(where, 0.0, 0.8, number, likeliest=True)
                token.width = min(1 - 1e-6, most)
                tokens.append(token)
            wide = [farther(token, 0.08, most) for token in tokens]
            found = max(found, near.add(tokens, 0.22)[0], far.add(wide, 0.022, "far ")[0])
        return found

    assert evidence(1.0) >= 1
    assert evidence(0.9) < 0.5


def test_coherent_tokens_with_the_slack_of_rounding_never_win():
    """200 steps of 64 tokens, of which 5 % are anywhere, in each of 5 runs."""
    generator = np.random.default_rng(1)
    for _ in range(5):
        bets, most = Bets(), 0.0
        for _ in range(200):
            tokens = []
            for n in range(64):
                low = generator.random() * 0.7
                number = generator.random() if generator.random() < 0.05 else low + 0.1
                where = n // 8, n // 8, n // 32, n % 8
                tokens.append(token_at(where, low, low + 0.3, number, likeliest=False))
            most = max(most, bets.add(tokens, 0.05)[0])
        assert most < 0.7


def test_a_bet_on_depths_by_hand():
    """3 of 10 tokens beyond a depth where 2 should be, on half as many, with a slack of a tenth."""
    by_hand = 3 * math.log(0.1 / 0.18) + 7 * math.log(0.9 / 0.82)
    assert _gain(10, 3, 0.2, 0.5, 0.1) == pytest.approx(by_hand)


def test_depths_of_a_healthy_run_rarely_win():
    """Ville: with odds of at most 1 in 20, here over 25 looks."""
    generator = torch.Generator().manual_seed(0)
    position_N = torch.arange(64) % 16
    won = 0
    for _ in range(40):
        depths = Depths()
        depths._wealth = [0.0] * len(depths._bets)  # the whole stake from the start
        for _ in range(25):
            depth_N = torch.rand(64, generator=generator, dtype=torch.float64)
            depths.add(position_N, depth_N, 0.05)
            if depths.evidence() > math.log(20):
                won += 1
                break
    assert won <= 40 * 0.05 + 3 * math.sqrt(40 * 0.05 * 0.95)


def test_depths_survive_a_checkpoint():
    generator = np.random.default_rng(0)
    one, other = Depths(), Depths()
    one.add(torch.zeros(50), torch.from_numpy(generator.random(50)) * 0.4, 0.05)
    other.load_state_dict(one.state_dict())
    assert other.evidence() == one.evidence() > 0
    assert other.worst() == one.worst()
    assert one.worst()[0] in ("all tokens", "the first token")
    assert set(DEPTHS) == {depth for _, depth in one._counts}
