"""Guard ``completions``: a conversation with a deterministic environment, played again."""

from dataclasses import replace

import pytest

from rlvr_core.api import (
    Completion,
    Done,
    EnvironmentTraits,
    Group,
    GroupsScored,
    Judged,
    Message,
    NoConfig,
    Observation,
    Problem,
    Reply,
    Transcript,
    Turn,
    Verdict,
)
from rlvr_core.builtin.environments.lookup import LookupWorld
from rlvr_core.builtin.invariants import replays
from rlvr_core.builtin.invariants.replays import AT_LEAST, Replays
from rlvr_core.builtin.invariants.seeds import Seeds
from rlvr_core.config.model import RunConfig, TrainSection
from rlvr_core.engines.sampling import WORLD, completion_seed

CONFIG = RunConfig.model_validate(
    {
        "model": {"path": "m"},
        "data": {"sources": ["a"]},
        "run": {"seed": 7},
        "train": {"steps": 1},
        "environment": {"max_turns": 3},
    }
)
PROBLEM = Problem("p", "How many?", "core/environment", {"of": "pears"}, "toy")


class Counting:
    """Says how many turns are left and how often it was called; twice, and it judges."""

    traits = EnvironmentTraits(deterministic=True)
    calls = 0

    def start(self, problem, seed):
        return {"seed": seed, "heard": []}

    def step(self, state, reply):
        type(self).calls += 1
        state["heard"].append(reply.text)
        if len(state["heard"]) == 2:
            return Done(Verdict(float(reply.text == "b"), passed=reply.text == "b"))
        counts = f"{reply.prompt_tokens} {reply.completion_tokens}"
        text = f"{state['seed'] % 97} {reply.turn} {reply.turns_left} {counts} {reply.text}"
        return Observation((Message("user", text),))


class Cut(Counting):
    def cut(self, state, reason):
        return Verdict(len(state["heard"]) / 10, passed=False)


def played(environment, replies, problem=PROBLEM, draw=0, version=3, max_turns=3, ended=None):
    """The transcript of a conversation, by its rules written out here."""
    seed = completion_seed(7, problem.id, version, draw, WORLD)
    state, turns, verdict, end = environment.start(problem, seed), [], None, ended
    for number, text in enumerate(replies):
        turns.append(Turn("assistant", text, 1))
        if ended == "turn_length" and number == len(replies) - 1:
            break
        # the prompt is one token, and so is each turn and each answer
        reply = Reply(text, number, max_turns - number - 1, 1 + 2 * number, 1)
        found = environment.step(state, reply)
        if isinstance(found, Done):
            verdict, end = found.verdict, "done"
            break
        if number == max_turns - 1:
            end = "max_turns"
            break
        turns += [Turn(m.role, m.content, 1) for m in found.messages]
    if verdict is None:
        verdict = environment.cut(state, end) if isinstance(environment, Cut) else Verdict(0.0)
    return Transcript("e", tuple(turns), end, verdict=verdict)


def event(*scripts, problem=PROBLEM, version=3, now=3, copies=1):
    members = tuple(
        Judged(
            Completion((1,), (2,), (-1.0,), (True,), "x", "stop", version, transcript=one),
            {},
            0.0,
            None,
        )
        for one in scripts
    )
    return GroupsScored(5, now, (Group(problem, members, version),) * copies)


class Drawn:
    """A sampler, which counts its draws, and what follows them."""

    def __init__(self, config, before=0):
        self.drawn = before
        turns = CONFIG.environment.max_turns
        self.replays = Replays(turns, lambda problem: self.environment, Seeds(config, self))
        self.replays.run_started()

    def wrong(self, environment, event):
        self.drawn += len(event.groups)
        self.environment = environment
        return self.replays.wrong(event)


def wrong(environment, *scripts, **more):
    return Drawn(CONFIG).wrong(environment, event(*scripts, **more))


CALL = '<tool_call>{"name": "count", "arguments": {"of": "pears"}}</tool_call>'


@pytest.mark.parametrize(
    ("environment", "replies", "ended"),
    [
        (Counting(), ["a", "b"], None),
        (Counting(), ["a", "c"], None),
        (Cut(), ["a"], "turn_length"),
        (Cut(), ["a"] * 2, None),
        (LookupWorld(NoConfig()), [CALL, "nonsense"], None),
        (LookupWorld(NoConfig()), [CALL] * 3, None),
    ],
)
def test_what_was_really_said_is_said_again(environment, replies, ended):
    script = played(environment, replies, ended=ended)
    assert wrong(environment, script) == ""
    assert wrong(environment, script, script, script) == ""


LONG = "".join(map(str, range(100)))
"""190 characters."""


@pytest.mark.parametrize(
    ("given", "most", "due"),
    [
        (LONG, 190, True),
        (LONG[:100] + "\n[... 90 more characters are left out]", 100, True),
        (LONG[:60] + "\n[... the rest is left out]", 190, True),  # no room for more
        (LONG[:60] + "\n[... the rest is left out]", 100, True),  # nor for what the limit leaves
        (LONG[:100] + "\n[... 90 more characters are left out]", 190, False),
        (LONG, 100, False),
        (LONG[:100] + "\n[... 80 more characters are left out]", 100, False),
        ("z" * 100 + "\n[... 90 more characters are left out]", 100, False),
        ("z" * 60 + "\n[... the rest is left out]", 190, False),
        (LONG[:100], 190, False),
    ],
)
def test_a_message_is_cut_where_its_limit_is(given, most, due):
    assert replays._is_given(LONG, given, most) is due


def test_a_short_observation_that_was_cut():
    environment = Counting()
    script = played(environment, ["a", "b"])
    said = script.turns[1]
    cut = replace(said, text=f"{said.text}\n[... -49,990 more characters are left out]")
    turns = (script.turns[0], cut, *script.turns[2:])
    assert "its environment says" in wrong(environment, replace(script, turns=turns))


def test_each_draw_has_a_seed_of_its_own():
    """The draw is the number of problems drawn in the run before, of this problem or others."""
    environment = Counting()
    first, third = (event(played(environment, ["a", "b"], draw=n)).groups for n in (0, 2))
    other = replace(first[0], problem=replace(PROBLEM, id="q"), members=())
    step = replace(event(), groups=(*first, other, *third))
    assert Drawn(CONFIG).wrong(environment, step) == ""
    assert "says" in Drawn(CONFIG, before=1).wrong(environment, step)
    moved = replace(step, groups=(other, *first, *third))
    assert "says" in Drawn(CONFIG).wrong(environment, moved)


def test_the_draws_of_later_steps_go_on():
    environment, drawn = Counting(), Drawn(CONFIG, before=40)
    for draw in (40, 41, 42):
        script = played(environment, ["a", "b"], draw=draw)
        assert drawn.wrong(environment, event(script)) == ""
    assert "says" in drawn.wrong(environment, event(script))


class Settled(Counting):
    """Says what it does whatever its seed is, but for every 50th."""

    def start(self, problem, seed):
        return {"seed": int(seed % 50 == 0), "heard": []}


def test_beside_training_every_seed_of_recent_draws_is_tried(monkeypatch):
    """The draw is not known then: what none of them explains is reported, if time allows."""
    beside = CONFIG.model_copy(update={"train": TrainSection(steps=9, max_staleness=2)})
    for environment in (Counting(), Settled()):
        seeds = {n: completion_seed(7, "p", 2, n, WORLD) for n in range(200)}
        rare = next(n for n, seed in seeds.items() if seed % 50 == 0)
        script = played(environment, ["a", "b"], draw=rare, version=2)
        assert Drawn(beside, before=rare + 9).wrong(environment, event(script)) == ""
        false = replace(script, verdict=Verdict(0.25))
        monkeypatch.setattr(replays, "TRYING", 60.0)
        assert Drawn(beside, before=rare + 9).wrong(environment, event(false)) != ""
        monkeypatch.setattr(replays, "TRYING", 0.0)
        assert Drawn(beside, before=rare + 9).wrong(environment, event(false)) == ""


def test_nothing_is_played_again_where_the_draws_are_counted_in_another_way():
    false = replace(played(Counting(), ["a", "b"]), verdict=Verdict(0.25))
    made = Replays(CONFIG.environment.max_turns, lambda problem: Counting(), None)
    assert made.wrong(event(false)) == ""


def test_observations_and_verdicts_of_another_conversation():
    environment = Counting()
    script = played(environment, ["a", "b"])
    other = played(environment, ["z", "b"])
    mixed = replace(script, turns=(script.turns[0], other.turns[1], script.turns[2]))
    assert "its environment says" in wrong(environment, mixed)
    kinder = replace(script, verdict=Verdict(0.5, passed=True))
    assert "has the score 1.0, and the recorded one 0.5" in wrong(environment, kinder)
    longer = replace(script, ended="max_turns")
    assert "ends the conversation" in wrong(environment, longer)
    shorter = replace(script, turns=script.turns[:1])
    assert "goes on" in wrong(environment, shorter)
    another = played(environment, ["a", "b"], problem=replace(PROBLEM, id="q"))
    assert "its environment says" in wrong(environment, another)
    cut = Cut()
    script = replace(played(cut, ["a"], ended="turn_length"), verdict=Verdict(0.5, passed=False))
    assert "cut off" in wrong(cut, script)


def test_a_message_is_heard_as_who_said_it():
    environment = Counting()
    script = played(environment, ["a", "b"])
    turns = (script.turns[0], replace(script.turns[1], role="tool"), script.turns[2])
    found = wrong(environment, replace(script, turns=turns))
    assert "its environment speaks as user, and was heard as tool" in found


def test_a_lookup_whose_numbers_come_from_another_seed():
    environment = LookupWorld(NoConfig())
    script = played(environment, [CALL, "11"], draw=4)
    assert "its environment" in wrong(environment, script)


def test_what_is_not_played_again(monkeypatch):
    class Plain(Counting):
        traits = EnvironmentTraits()

    class Asynchronous(Counting):
        traits = EnvironmentTraits(asynchronous=True, deterministic=True)

    script = played(Counting(), ["a", "b"])
    false = replace(script, verdict=Verdict(0.25))
    assert wrong(Counting(), false) != ""
    Counting.calls = 0
    for environment in (Plain(), Asynchronous(), None):
        assert wrong(environment, false) == ""
    assert wrong(Counting(), replace(false, ended="error")) == ""
    assert wrong(Counting(), replace(false, counts={"failed_calls": 1})) == ""
    in_branches = event(false)
    (group,) = in_branches.groups
    (member,) = group.members
    branched = replace(member.completion, branches=(member.completion,))
    group = replace(group, members=(replace(member, completion=branched),))
    assert Drawn(CONFIG).wrong(Counting(), replace(in_branches, groups=(group,))) == ""
    assert wrong(Counting(), false, now=4) == ""  # sampled under earlier weights
    assert Counting.calls == 0
    for seconds, least, most in ((0.0, AT_LEAST, AT_LEAST), (60.0, 40, 40)):
        monkeypatch.setattr(replays, "PLAYING", seconds)
        Counting.calls = 0
        assert wrong(Counting(), *[script] * 40) == ""
        assert 2 * least <= Counting.calls <= 2 * most  # two replies each


def test_a_message_that_had_no_room():
    script = played(Counting(), ["a", "b"])
    said = script.turns[1].text

    def given(text):
        turns = (script.turns[0], replace(script.turns[1], text=text), script.turns[2])
        return wrong(Counting(), replace(script, turns=turns))

    assert given(f"{said[:2]}\n[... the rest is left out]") == ""
    assert "its environment says" in given("z\n[... the rest is left out]")
