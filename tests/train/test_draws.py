"""The guard ``draws``: problems, sizes and reads of groups are those that were asked for."""

import hashlib
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from rlvr_core.api import (
    Completion,
    Group,
    GroupsScored,
    Judged,
    Keep,
    Outcome,
    Problem,
    RunError,
    RunStarted,
    SamplerTraits,
    Source,
    StepFinished,
)
from rlvr_core.builtin.invariants.check import StepView
from rlvr_core.builtin.invariants.draws import Draws
from rlvr_core.builtin.invariants.own_samplers import Rounds
from rlvr_core.builtin.invariants.published_order import expected_order
from rlvr_core.builtin.samplers.curriculum import Curriculum
from rlvr_core.builtin.samplers.difficulty import Difficulty
from rlvr_core.builtin.samplers.epochs import Sequential, Shuffle
from rlvr_core.builtin.samplers.mixture import Mixture
from rlvr_core.config.model import RunConfig

P, N = 4, 3


def config(use="shuffle", options=None, *, n=N, **train):
    return RunConfig.model_validate(
        {
            "run": {"seed": 7},
            "model": {"path": "m"},
            "data": {"sources": ["a"], "max_prompt_tokens": 5},
            "sampler": {"use": use, "with": options or {}},
            "sampling": {"n": n},
            "train": {"steps": 9, "prompts_per_step": P} | train,
        }
    )


def source(name, n, **keys):
    problems = [Problem(f"{name}{i}", "?", "core/exact", {}, name) for i in range(n)]
    return Source(name, tuple(problems), **keys)


def started(kind, sources, options=None, **more):
    """A sampler that has started, and the guard that watches it."""
    settings = config(kind.__name__.lower(), options, **more)
    sampler = kind(kind.Config(**(options or {})))
    sampler.start(sources, n=settings.sampling.n, prompts_per_step=P, seed=7)
    guard = Draws(settings, sampler, sources)
    guard.run_started(RunStarted(Path(), {}, 0))
    return sampler, guard


def group(problem, n=N, version=0, prompt=(1, 2)):
    done = Completion(prompt, (2,), (-1.0,), (True,), "x", "stop", version)
    return Group(problem, (Judged(done, {}, 0.0, False),) * n, version)


def take(sampler, guard, step, *sizes, change=lambda groups: groups, version=0):
    """Draw as often as sizes are given, and show the guard all groups of the step."""
    problems = [draw.problem for size in sizes for draw in sampler.draw(size, step=step)]
    groups = change([group(problem, version=version) for problem in problems])
    guard.on_groups(GroupsScored(step, version, tuple(groups)))
    return guard.end(StepView(None, (), step, version))


def order_file(folder):
    path = folder / "order.txt"
    path.write_text("b3\nb1\r\nb0\n\nlong\n")
    return str(path)


def cases(folder):
    a, b = source("a", 5), source("b", 7, left_out=("long",))
    weighted = [source("a", 5, weight=2.0), source("b", 7, weight=0.7)]
    mixed = [
        source("a", 5, order="sequential", count=3),
        source("b", 7, order=order_file(folder), left_out=("long",)),
        source("c", 4, weight=0.2, count=2),
    ]
    unweighted = [source("a", 5, order="shuffle"), source("b", 7, count=4)]
    return [
        (Shuffle, [a, b], {}),
        (Shuffle, weighted, {}),
        (Sequential, [a, b], {}),
        (Curriculum, [a, b], {"order": order_file(folder)}),
        (Mixture, mixed, {}),
        (Mixture, mixed, {"mode": "epoch"}),
        (Mixture, unweighted, {"mode": "sequential"}),
    ]


@pytest.mark.parametrize("number", range(7))
def test_the_order_is_that_of_the_sampler(tmp_path, number):
    kind, sources, options = cases(tmp_path)[number]
    sampler, guard = started(kind, sources, options)
    for step, sizes in enumerate([(4,), (4, 2), (4, 3, 1), (1,), (4, 4)] * 6):
        assert take(sampler, guard, step, *sizes)["draws/unexpected"] == 0


def test_the_order_by_hand():
    """Sorted by the BLAKE2b of seed, source, epoch and id; another order in each epoch."""

    def epoch(number):
        texts = {f"a{i}": repr((7, 0, number, f"a{i}")).encode() for i in range(5)}
        digests = {id_: hashlib.blake2b(text, digest_size=8) for id_, text in texts.items()}
        return sorted(digests, key=lambda id_: int(digests[id_].hexdigest(), 16))

    sampler, _ = started(Shuffle, [source("a", 5)])
    found = list(islice(expected_order(config(), sampler, [source("a", 5)]), 10))
    assert found == epoch(0) + epoch(1)
    assert epoch(0) != epoch(1)


class Own(Shuffle):
    """Derived from ours, and free to choose."""


def test_the_order_of_another_sampler_is_not_known():
    sampler, guard = started(Own, [source("a", 5)])
    odd = [group(source("a", 5).problems[0])] * P
    guard.on_groups(GroupsScored(0, 0, tuple(odd)))
    assert expected_order(config(), sampler, [source("a", 5)]) is None


def others(groups):
    known = {one.problem.id for one in groups}
    spare = [p for p in source("a", 40).problems if p.id not in known]
    return [*groups[:-1], group(spare[0])]


def one_for_all(groups):
    return [groups[0]] * len(groups)


@pytest.mark.parametrize(
    ("change", "words"),
    [(others, "whose turn it is not"), (one_for_all, "one problem is drawn for all of the step")],
)
def test_problems_whose_turn_it_is_not(change, words):
    sampler, guard = started(Shuffle, [source("a", 40)])
    take(sampler, guard, 0, P)
    with pytest.raises(RunError, match="guard draws") as caught:
        take(sampler, guard, 1, P, change=change)
    assert words in str(caught.value)


def test_data_in_the_order_of_the_file_and_sources_without_their_weight():
    sources = [source("a", 40)]
    _, guard = started(Shuffle, sources)
    with pytest.raises(RunError, match="they come in the order of the data"):
        guard.on_groups(GroupsScored(0, 0, tuple(map(group, sources[0].problems[:P]))))
    sources = [source("a", 40, weight=3.0), source("b", 40, weight=1.0)]
    _, guard = started(Mixture, sources)
    with pytest.raises(RunError, match="another share than their weight"):
        guard.on_groups(GroupsScored(0, 0, tuple(map(group, sources[1].problems[:P]))))


def test_what_the_filter_took_out_and_what_nobody_knows():
    _, guard = started(Own, [source("a", 5, left_out=("long",))])
    out, strange = (Problem(id_, "?", "core/exact", {}, "a") for id_ in ("long", "strange"))
    with pytest.raises(RunError, match="the filter on prompt lengths took it out"):
        guard.on_groups(GroupsScored(0, 0, (group(out),)))
    with pytest.raises(RunError, match=r"data.max_prompt_tokens is 5"):
        guard.on_groups(GroupsScored(0, 0, (group(source("a", 1).problems[0], prompt=(1,) * 6),)))
    with pytest.raises(RunError, match="no source of the training data has it"):
        guard.on_groups(GroupsScored(0, 0, (group(strange),)))


def test_groups_of_another_size():
    one = source("a", 5)
    _, guard = started(Own, [one])
    with pytest.raises(RunError, match=r"has 2 completions, and sampling.n is 3"):
        guard.on_groups(GroupsScored(0, 0, (group(one.problems[0], n=2),)))
    adaptive = {"adaptive": {"k_success": 1, "max_completions": 6}}
    _, guard = started(Shuffle, [one], adaptive)
    guard._order = None
    guard.on_groups(GroupsScored(0, 0, (group(one.problems[0], n=6),)))
    with pytest.raises(RunError, match="the sampler says 1 to 6"):
        guard.on_groups(GroupsScored(0, 0, (group(one.problems[0], n=7),)))


GROWING = {"k_success": 1, "k_failure": 1, "chunk_size": 2, "max_completions": 6}


def grown(outcomes, rule=GROWING, tokens=1, **train):
    """Show the guard a group with these outcomes: + passed, - failed, ? not known."""
    one = source("a", 5)
    _, guard = started(Shuffle, [one], {"adaptive": rule}, **train)
    guard._order = None
    done = Completion((1, 2), (2,) * tokens, (-1.0,) * tokens, (True,) * tokens, "x", "stop", 0)
    known = {"+": (1.0, True), "-": (0.0, False), "?": (None, None)}
    members = tuple(Judged(done, {}, *known[mark]) for mark in outcomes)
    made = Group(one.problems[0], members, 0)
    guard.on_groups(GroupsScored(0, 0, (made,)))
    guard.begin(StepView(SimpleNamespace(), [made] * bool(train), 0, 0))


NO_REPLACEMENT = "the step drew 1 groups"


@pytest.mark.parametrize("outcomes", ["+-", "-+", "++-+", "------", "++++-+", "??+-"])
def test_groups_that_grow_as_the_rule_says(outcomes):
    with pytest.raises(RunError, match=NO_REPLACEMENT):  # one group is too few, its size is right
        grown(outcomes)
    grown(outcomes, max_staleness=2)


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ("--", "has 2 completions and ended after 2, 0 passed and 2 failed"),
        ("---+-", "has 5 completions and went on after 4, 1 passed and 3 failed"),
        ("+--+", "has 4 completions and went on after 2, 1 passed and 1 failed"),
        ("-+?", "has 3 completions and went on after 2"),
        ("-", r"has 1 completions and ended after 1, 0 passed and 1 failed, in a chunk of 2"),
    ],
)
def test_groups_that_end_at_something_else(outcomes, words):
    for train in ({}, {"max_staleness": 2}):
        with pytest.raises(RunError, match=words):
            grown(outcomes, **train)


def test_groups_that_grow_up_to_so_many_tokens():
    """Chunks of one completion of 3 tokens: the third reaches 7."""
    rule = {"max_total_tokens": 7, "max_completions": 5}
    grown("---", rule, tokens=3, max_staleness=1)
    for outcomes in ("--", "----"):
        with pytest.raises(RunError, match="max_total_tokens"):
            grown(outcomes, rule, tokens=3)


@pytest.mark.parametrize(
    ("kept", "right"), [([4], 4), ([3, 1], 5), ([3, 0, 1], 6), ([2, 0], 6), ([0, 0], 6)]
)
def test_groups_in_the_place_of_dropped_ones(kept, right):
    """4 a step, half as many replacements: 2 at most; ``kept`` are those of each round."""
    one = source("a", 9)
    rounds, left = [], 2
    for number, n in enumerate(kept):
        size = 4 if number == 0 else min(4 - sum(kept[:number]), left)
        left -= size * (number > 0)
        rounds.append((size, n))
    for lost in (0, 1):
        _, guard = started(Shuffle, [one], {"refill": 0.5})
        guard._order = None
        drawn, trained = [], []
        for size, n in rounds:
            made = [group(one.problems[place]) for place in range(size)]
            drawn, trained = drawn + made, trained + made[:n]
        assert len(drawn) == right
        drawn = drawn[: len(drawn) - lost]
        guard.on_groups(GroupsScored(0, 0, tuple(drawn)))
        view = StepView(SimpleNamespace(), [g for g in trained if g in drawn], 0, 0)
        if lost:
            with pytest.raises(RunError, match=f"drew {right - 1} groups"):
                guard.begin(view)
        else:
            guard.begin(view)


def test_difficulty_draws_no_problem_twice_at_once():
    one = source("a", 9)
    sampler, guard = started(Difficulty, [one])
    take(sampler, guard, 0, P)
    with pytest.raises(RunError, match="1 different problems, and the sampler draws 4"):
        take(sampler, guard, 1, P, change=one_for_all)
    few = source("a", 2)
    sampler, guard = started(Difficulty, [few])
    take(sampler, guard, 0, P)


def step_with(guard, groups, step, *, applied=True):
    view = StepView(SimpleNamespace(), groups, step, step)
    guard.begin(view)
    guard.updated(view, 1.0, applied=applied)
    view.update = 1
    guard.end(view)


@pytest.mark.parametrize("most", [1, 2])
def test_groups_that_are_read_too_often(most):
    sampler = SimpleNamespace(traits=SamplerTraits(max_reads=most), drawn=0)
    guard = Draws(config(), sampler, [])
    one = [group(source("a", 1).problems[0])]
    for step in range(most):
        step_with(guard, one, step)
    step_with(guard, [group(source("a", 1).problems[0], version=9)], most)
    with pytest.raises(RunError, match=f"the sampler's max_reads is {most}"):
        step_with(guard, one, most + 1)


def test_a_step_whose_update_was_skipped_is_no_read():
    sampler = SimpleNamespace(traits=SamplerTraits(), drawn=0)
    guard = Draws(config(), sampler, [])
    one = [group(source("a", 1).problems[0])]
    step_with(guard, one, 0, applied=False)
    step_with(guard, one, 1)


def test_groups_that_come_ahead_late_and_again():
    """Ahead of training draws arrive in any order, and stale ones twice."""
    sampler, guard = started(Shuffle, [source("a", 40)], max_staleness=1)
    problems = [draw.problem for draw in sampler.draw(8, step=0)]
    late = [problems[i] for i in (5, 1, 3)]
    guard.on_groups(GroupsScored(0, 0, tuple(map(group, late))))
    stale = group(problems[0], version=0)
    new = [group(problems[i], version=2) for i in (0, 2)]
    guard.on_groups(GroupsScored(1, 2, (stale, *new)))
    with pytest.raises(RunError, match="whose turn it is not"):
        guard.on_groups(GroupsScored(2, 2, (group(problems[1], version=2),)))


def test_groups_that_are_older_than_they_may_be():
    """At version 5 with max_staleness 2, a group of version 3 may be trained on, one of 2 not."""
    guard = Draws(config(max_staleness=2), SimpleNamespace(traits=SamplerTraits(), drawn=0), [])
    problem = source("a", 1).problems[0]
    guard.begin(StepView(SimpleNamespace(), [group(problem, version=3)], 4, 5))
    old = [group(problem, version=4), group(problem, version=2)]
    with pytest.raises(RunError, match=r"1 of 2 groups are up to 3 updates old, .* is 2"):
        guard.begin(StepView(SimpleNamespace(), old, 4, 5))


@pytest.mark.parametrize("fault", [False, True])
def test_a_resumed_run_goes_on_in_the_order(fault):
    sources = [source("a", 40)]
    sampler, guard = started(Shuffle, sources)
    take(sampler, guard, 0, P, 2)
    kept, state = sampler.state_dict(), guard.state_dict()
    again, watching = started(Shuffle, sources)
    again.load_state_dict(kept)
    watching.load_state_dict(state)
    watching.run_started(RunStarted(Path(), {}, 1, resumed=True))
    if fault:
        again._pools[0].seek(0, 0)
        with pytest.raises(RunError, match="going on from the checkpoint"):
            take(again, watching, 1, P)
    else:
        take(again, watching, 1, P)


# -- pools of difficulty ---------------------------------------------------------------------------

POOLED = [
    {},
    {"hard": 0.0, "easy": 0.5, "solved_after": 2, "window": 1},
    {
        "tier_by": "dataset",
        "phases": [{"until_step": 4, "tiers": {"a": 1}}, {"tiers": {"a": 0.2, "b": 0.8}}],
        "hard_threshold": 0.3,
        "easy_threshold": 0.6,
    },
]


def pooled(options, change=None):
    """A sampler by difficulty and its guard, and steps that draw, judge and refill."""
    sources = [source("a", 11), source("b", 9)]
    sampler, guard = started(Difficulty, sources, options)
    if change is not None:
        change(sampler)

    def step(number):
        seen, kept, wanted = [], [], P
        while wanted > 0:
            round_ = []
            for draw in sampler.draw(wanted, step=number):
                # problem a3 always passes, b0 never does, others at times
                skill = int(draw.problem.id[1:]) % 4
                passed = [skill == 3 or (skill and (draw.index + i) % 3 == 0) for i in range(N)]
                done = group(draw.problem).members[0].completion
                members = tuple(Judged(done, {}, float(p), bool(p)) for p in passed)
                round_.append((draw, Group(draw.problem, members, 0)))
            kept += [one for _, one in round_ if isinstance(sampler.observe(one), Keep)]
            sampler.update([
                Outcome(draw.index, one.problem.id, *counts(one), kept=True)
                for draw, one in round_
            ])  # fmt: skip
            seen += [one for _, one in round_]
            wanted = sampler.refill(len(kept), len(seen))
        guard.on_groups(GroupsScored(number, 0, tuple(seen)))
        view = StepView(None, tuple(kept), number, 0)
        guard.begin(view)
        line = {f"sampler/{name}": size for name, size in sampler.metrics().items()}
        guard.finished(StepFinished(number, 0, line, {}))
        guard.state_dict()  # a checkpoint

    return step


def counts(one):
    passed = [member.passed for member in one.members]
    return passed.count(True), passed.count(False)


@pytest.mark.parametrize("options", POOLED)
def test_draws_by_pass_rate_are_followed(options):
    step = pooled(options)
    for number in range(30):
        step(number)


def other_weights(sampler):
    weights = sampler._weights() | {"normal": 0.1, "easy": 1.0, "hard": 1.0}
    sampler._weights = lambda: weights


def last_first(sampler):
    sampler._ranks = {id_: -rank for id_, rank in sampler._ranks.items()}


def failures_forgotten(sampler):
    real = sampler.update
    sampler.update = lambda told: real([replace(one, failures=0) for one in told])


def miscounted(sampler):
    real = sampler.metrics
    sampler.metrics = lambda: real() | {"easy": real()["hard"] + 1}


def last_draws_forgotten(sampler):
    real = sampler.position
    sampler.position = lambda: {id_: [-1, *rest] for id_, (_, *rest) in real().items()}


def windows_too_long(sampler):
    real = sampler.position
    sampler.position = lambda: {id_: [a, b, [*c, *c]] for id_, (a, b, c) in real().items()}


def never_drawn(sampler):
    real = sampler.position
    sampler.position = lambda: dict(list(real().items())[1:])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (last_draws_forgotten, "remembers -1 as the last draw of problem .*, and its groups make "),
        (windows_too_long, "as the window of problem .*, and its groups make"),
        (never_drawn, "the sampler remembers -1 as the last draw of problem .., "),
        (other_weights, "by their weights"),
        (last_first, "it was the turn of another one of that pool"),
        (failures_forgotten, "by their weights"),
        (miscounted, "sampler/easy is reported as"),
    ],
)
def test_draws_that_are_not_by_pass_rate(change, words):
    step = pooled({}, change)

    def run():
        for number in range(30):
            step(number)

    with pytest.raises(RunError, match=f"guard draws: .*{words}"):
        run()


def test_a_pool_is_drawn_by_hand():
    """Of pools that weigh 1 and .1, the second has the last eleventh of the hash."""
    sampler, guard = started(Difficulty, [source("a", 2)])
    pools = guard._pools
    del sampler
    for number in range(40):
        pools._drawn = number
        text = repr((7, "pool", number)).encode()
        share = int(hashlib.blake2b(text, digest_size=8).hexdigest(), 16) / 2**64
        wanted = "normal" if share < 1 / 1.1 else "hard"
        assert pools._pick({"normal": 1.0, "hard": 0.1}, "pool") == wanted


# -- samplers of plugins -------------------------------------------------------------------------


class Restarting(Own):
    """Its position is restored, and its iterator begins anew."""

    def begin(self, sources):
        super().begin(sources)
        self._all = iter([*sources[0].problems, *sources[0].problems])

    def choose(self, n_problems, step):
        for _ in range(n_problems):
            super().turn()
            self._pools[0].next()
            yield next(self._all)


class Drawn(Own):
    """Each copy draws something else."""

    def begin(self, sources):
        super().begin(sources)
        global COPIES
        COPIES += 1
        self._first = COPIES

    def choose(self, n_problems, step):
        problems = self._pools[0]._problems
        return [problems[f"a{(self._first + n) % 9}"] for n in range(n_problems)]


class Leaving(Own):
    """It leaves out the last problem of its data."""

    def begin(self, sources):
        super().begin([replace(one, problems=one.problems[:-1]) for one in sources])


COPIES = 0


def test_copies_of_a_plugins_sampler_go_on_where_it_was(capsys):
    for kind in (Own, Drawn):
        sampler, _ = started(kind, [source("a", 9)])
        assert sampler.drawn == 0
    assert capsys.readouterr().err == ""


def test_a_plugins_sampler_that_does_not_restore_what_it_draws_from(capsys):
    sampler, guard = started(Restarting, [source("a", 9)])
    words = "the sampler does not go on where it was"
    assert words in capsys.readouterr().err
    assert sampler.drawn == 0  # copies were tried
    with pytest.raises(RunError, match=f"going on from the checkpoint, {words}"):
        guard.run_started(RunStarted(Path(), {}, 3, True))


@pytest.mark.parametrize(("kind", "out"), [(Leaving, "a11"), (Own, "")])
def test_problems_that_are_left_out_of_even_rounds(kind, out, capsys):
    """Of 12 problems 11 come; after 22 draws each of them has come twice."""
    sampler, guard = started(kind, [source("a", 12)])
    for step in range(5):
        take(sampler, guard, step, P)
    assert capsys.readouterr().err == ""
    for step in range(5, 9):
        take(sampler, guard, step, P)
    told = capsys.readouterr().err
    assert ("1 of 12 problems were never drawn" in told) == bool(out)
    assert out in told
    assert told.count("never drawn") <= 1


def test_rounds_that_are_not_even_say_nothing():
    """One problem comes whenever another has: which are left out may be chance."""
    rounds = Rounds(f"a{n}" for n in range(20))
    ids = [f"a{n}" for n in range(10) for _ in range(3)]
    assert rounds.left_out([*ids, "a0", "a0"]) == ""
    assert "10 of 20 problems were never drawn" in Rounds(rounds._ids).left_out(ids)
