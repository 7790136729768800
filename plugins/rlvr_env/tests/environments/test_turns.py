"""Conversations: tokens as the model saw them, limits, failures, and nothing left behind."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace

import pytest

from plugins.rlvr_env.tests.environments.stand_ins import (
    PARAMS,
    Engine,
    plan_of,
    play,
    problem,
    suffix,
)
from rlvr_core.api import (
    Draw,
    EngineTraits,
    Generation,
    GenerationRequest,
    Message,
    PluginError,
    Problem,
    RunError,
    SamplingParams,
    Usage,
    Verdict,
)
from rlvr_core.engines.sampling import completion_seed
from rlvr_env.environments.plan import EnvironmentPlan
from rlvr_env.environments.seeds import turn_seed
from rlvr_env.environments.turns import TurnTaking
from tests.support.tables import table


def test_tokens_are_what_the_model_saw_and_only_its_own_are_trained():
    script = {"q0!": "ab", "q0!ab<1:ab>": "cd", "q0!ab<1:ab>cd<2:cd>": "P"}
    plan = plan_of(config={"replies": 2})
    ((one,),), engine, (group,), _ = play(
        lambda said, _: script[said], [Draw(problem(), 1, 0)], plan
    )
    text = "ab<1:ab>cd<2:cd>P"
    assert one.prompt_ids == tuple(map(ord, "q0!"))
    assert one.token_ids == tuple(map(ord, text))
    assert one.loss_mask == tuple(map(bool, [1, 1, *[0] * 6, 1, 1, *[0] * 6, 1]))
    assert one.logprobs == (-0.01, -0.02, *[0.0] * 6, -0.01, -0.02, *[0.0] * 6, -0.01)
    assert one.n_sampled == 5
    assert (one.text, one.finish_reason, one.version) == ("P", "stop", 7)
    script = one.transcript
    assert [(t.role, t.text, t.n_tokens) for t in script.turns] == [
        ("assistant", "ab", 2),
        ("tool", "<1:ab>", 6),
        ("assistant", "cd", 2),
        ("tool", "<2:cd>", 6),
        ("assistant", "P", 1),
    ]
    assert script.loss_mask(len(text)) == one.loss_mask
    assert (script.ended, script.environment, script.n_turns) == ("done", "toy/Echo", 3)
    assert script.verdict == Verdict(1.0, passed=True, parts={"n": 3.0})
    assert script.counts == {"calls": 2, "left": 7 + 6}
    assert group.group.members[0].reward == 1.0
    # the model always continues exactly the tokens recorded
    assert [r.prompt_ids for r in engine.requests] == [
        tuple(map(ord, s)) for s in ("q0!", "q0!ab<1:ab>", "q0!ab<1:ab>cd<2:cd>")
    ]
    assert {r.params.stop for r in engine.requests} == {("#",)}  # what present asked for


def test_one_turn_is_a_conversation_too_and_plain_problems_are_not_played():
    plan = plan_of(config={"replies": 0})
    ((one,),), _, _, _ = play(lambda *_: "P", [Draw(problem(), 1, 0)], plan)
    assert one.loss_mask == (True,)
    own = EnvironmentPlan(plan.section, plan.specs, {"toy/x": "toy/Echo"}, plan.instances)
    plain = Problem("plain", "q9", "v", {}, "toy")
    found, engine, _, _ = play(lambda *_: "P", [Draw(problem(), 1, 0), Draw(plain, 2, 1)], own)
    assert [[c.transcript is None for c in group] for group in found] == [[False], [True, True]]
    assert len(engine.requests) == 2


def test_what_is_presented_must_be_a_problem(monkeypatch):
    plan = plan_of()
    monkeypatch.setattr(plan.instances["toy/Echo"], "present", lambda problem: 7)
    with pytest.raises(PluginError, match="'toy/Echo': its present gave a int, not a Problem"):
        plan.present(problem())


def test_conversations_that_stand_at_the_same_point_are_one_request():
    def script(said, seed):
        return "same" if said.endswith("!") else "P" if seed % 2 else "F"

    (group,), engine, _, _ = play(script, [Draw(problem(), 6, 0)], plan_of())
    assert [len(r.seeds) for r in engine.requests] == [6, 6]
    seeds = [completion_seed(3, "p0", 5, 0, sample) for sample in range(6)]
    assert list(engine.requests[0].seeds) == seeds
    assert list(engine.requests[1].seeds) == [turn_seed(seed, 1) for seed in seeds]
    assert len({*engine.requests[0].seeds, *engine.requests[1].seeds}) == 12
    assert len(group) == 6


def test_a_draw_is_played_in_one_world_and_every_conversation_is_closed_once(tmp_path):
    log = tmp_path / "log"
    draws = [Draw(problem(0), 4, 0), Draw(problem(1), 4, 1), Draw(problem(0), 2, 2)]
    play(lambda *_: "P", draws, plan_of(config={"log": str(log)}))
    lines = [line.split() for line in log.read_text().splitlines()]
    worlds = Counter((what, id_, seed) for what, id_, seed, _ in lines)
    assert sorted(worlds.values()) == [2, 2, 4, 4, 4, 4]
    assert len({seed for _, _, seed, _ in lines}) == 3


@pytest.mark.parametrize(
    ("section", "params", "script", "ended", "text"),
    [
        ({"max_turns": 2}, PARAMS, lambda *_: "ab", "max_turns", "ab<1:ab>ab"),
        ({"max_turn_tokens": 3}, PARAMS, lambda *_: "abcd", "turn_length", "abc"),
        ({}, SamplingParams(max_tokens=3), lambda *_: "abcd", "budget", "abc"),
        # 2 + 6 leave one token, which is too long a turn; of 8 nothing is left for an answer
        ({}, SamplingParams(max_tokens=9), lambda *_: "ab", "budget", "ab<1:ab>a"),
        ({}, SamplingParams(max_tokens=8), lambda *_: "ab", "budget", "ab"),
    ],
)
@pytest.mark.parametrize("name", ["Echo", "Worth"])
def test_limits_end_a_conversation_with_a_reason(section, params, script, ended, text, name):
    plan = plan_of(name, {"replies": 5}, **section)
    ((one,),), _, _, pool = play(script, [Draw(problem(), 1, 0)], plan, params=params)
    assert "".join(map(chr, one.token_ids)) == text
    assert one.transcript.ended == ended
    assert one.finish_reason == "length"
    steps = one.transcript.n_turns - (ended in ("turn_length",) or text.endswith(("a", "c")))
    verdict = {
        "Echo": Verdict(0.0, passed=False, detail=f"not finished: {ended}"),
        "Worth": Verdict(0.25, passed=False, detail=f"{ended} after {steps}"),
    }[name]
    assert one.transcript.verdict == verdict
    assert pool.asked == [one]  # a limit is the model's doing: verifiers judge it


LIMIT = defaultdict(lambda: 300.0, hang=5.0)
"""Seconds: a sound answer may take as long as a busy machine likes."""


@pytest.mark.parametrize("hangs", [False, True])
def test_a_failing_environment_is_a_failure_and_never_a_reward_of_0(hangs):
    """Each conversation that fails is played between two that do not."""
    cases = [case for case in table(__file__, "failures") if (case[1] == "hang") is hangs]
    draws = [Draw(problem(0), 2, 0)]
    for i, (where, how, *_) in enumerate(cases, 1):
        draws += [Draw(problem(i, **{"in": where, "how": how}), 2, 2 * i - 1)]
        draws += [Draw(problem(0), 2, 2 * i)]
    timeout = LIMIT["hang" if hangs else ""]
    found, _, groups, pool = play(lambda *_: "P", draws, plan_of("Faulty", timeout=timeout))
    for sound in groups[::2]:
        assert [member.reward for member in sound.group.members] == [1.0, 1.0]
    for (*_, ended, detail), failed in zip(cases, groups[1::2], strict=True):
        for member in failed.group.members:
            assert member.completion.transcript.ended == ended
            assert detail in member.completion.transcript.detail
            assert member.completion.transcript.verdict is None
            assert member.completion.finish_reason == "error"
            assert (member.reward, member.passed) == (None, None)
            assert member.verdicts["v"].status == ended
            assert detail in member.verdicts["v"].detail
        assert failed.fates() == ["error", "error"]
    # nobody judges a conversation that failed
    assert sorted(map(repr, pool.asked)) == sorted(repr(one) for some in found[::2] for one in some)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "error: step: RuntimeError: broken on purpose"),
        ("exit", "error: step: its process ended, exit code 3"),
        ("hang", "error: step took longer than 5 s"),
        ("silent", "error: step: ValueError: an Observation has at least one message"),
    ],
)
def test_where_the_model_reads_errors_a_world_that_fails_ends_nothing(how, said):
    """The model is told, the state is as before the call, and the conversation goes on."""
    draws = [Draw(problem(i, **({"how": how} if i == 1 else {})), 2, i) for i in range(5)]
    plan = plan_of("Forgiving", timeout=LIMIT[how], max_turns=4)
    _, _, groups, _ = play(lambda *_: "P", draws, plan, params=replace(PARAMS, max_tokens=999))
    for i, one in enumerate(groups):
        for member in one.group.members:
            transcript = member.completion.transcript
            assert transcript.ended == "done"
            assert transcript.verdict.detail == "calls: 1"  # the failed one left no trace
            if i == 1:
                assert transcript.turns[1].text == said
                assert transcript.turns[1].role == "user"
                assert transcript.counts["failed_calls"] == 1
                assert member.completion.n_tokens > 0


def test_a_tool_of_core_lookup_that_raises_is_told_in_the_form_of_its_answers():
    """In one world of two; the model's next turn then stands where it stands behind an answer."""
    call = '<tool_call>{"name": "count", "arguments": {"of": "old hens"}}</tool_call>'
    draws = [Draw(problem(i, of="red cats"), 2, i) for i in range(2)]
    params = replace(PARAMS, max_tokens=999)
    plan = plan_of("BrokenLookup", max_turns=2)
    _, _, (sound, broken), _ = play(
        lambda said, _: "7" if "tool_response" in said else call, draws, plan, params=params
    )
    for one in (sound, broken):
        for member in one.group.members:
            (_, tool, answer) = member.completion.transcript.turns
            told = "error: step: KeyError: 'old hens'" if one is broken else r"\d\d"
            assert re.fullmatch(rf"\n<tool_response>\n{told}\n</tool_response>\n", tool.text)
            assert (tool.role, answer.text) == ("tool", "7")
    for member in sound.group.members:
        assert member.completion.transcript.ended == "done"
        assert member.completion.transcript.counts == {"tool_calls": 1, "tool_errors": 0}
    # without numbers no answer can be judged either
    for member in broken.group.members:
        assert member.completion.transcript.ended == "max_turns"
        assert member.completion.transcript.counts == {"failed_calls": 2}


def test_errors_count_as_turns():
    draws = [Draw(problem(0, how="always"), 1, 0)]
    found, *_ = play(lambda *_: "P", draws, plan_of("Forgiving", max_turns=3))
    assert found[0][0].transcript.ended == "max_turns"
    assert found[0][0].transcript.counts["failed_calls"] == 3


def test_what_fails_in_one_world_of_five_is_no_error_of_a_verifier_and_ends_no_run():
    from rlvr_core.verify.judge import ErrorRate

    faulty = {"in": "step", "how": "raise"}
    draws = [Draw(problem(i, **(faulty if i % 5 == 0 else {})), 2, i) for i in range(60)]
    _, _, groups, _ = play(lambda *_: "P", draws, plan_of("Faulty"))
    errors = ErrorRate(0.05)
    for group in groups:
        for member in group.group.members:
            errors.observe_all(member.completion, member.verdicts)
    errors.check()
    assert len(errors.recent["v"]) == 48 * 2  # what was judged


def test_an_environment_that_fails_everywhere_ends_the_run():
    draws = [Draw(problem(i, **{"in": "step", "how": "raise"}), 2, i) for i in range(30)]
    with pytest.raises(RunError, match=r"'toy/Faulty' is broken: all .* in 20 of its last 20"):
        play(lambda *_: "P", draws, plan_of("Faulty"))
    draws = [Draw(problem(i, how="always"), 2, i) for i in range(30)]
    with pytest.raises(RunError, match="'toy/Forgiving' is broken"):
        play(lambda *_: "P", draws, plan_of("Forgiving", max_turns=8))


def test_long_messages_are_cut_with_a_mark():
    draws = [Draw(problem(0, how="long"), 1, 0)]
    params = replace(PARAMS, max_tokens=999)
    found, *_ = play(lambda *_: "P", draws, plan_of("Forgiving", max_turns=3), params=params)
    text = found[0][0].transcript.turns[1].text
    assert text == "x" * 100 + "\n[... 4,900 more characters are left out]"


@pytest.mark.parametrize(("left", "shown"), [(300, 1), (1000, 2)])
def test_what_is_too_long_for_the_conversation_is_cut_to_half_of_its_room(left, shown):
    """Not ended by it: a long answer of a tool is no fault of the model."""
    draws = [Draw(problem(0, how="long", size=10_000_000), 1, 0)]
    params = replace(PARAMS, max_tokens=left + 1)
    found, *_ = play(lambda *_: "P", draws, plan_of("Verbose", max_turns=shown + 1), params=params)
    transcript = found[0][0].transcript
    assert transcript.ended == "max_turns"
    turns = [turn for turn in transcript.turns if turn.role == "tool"]
    mark = "\n[... the rest is left out]"
    room = left
    for turn in turns:
        assert turn.text.endswith(mark)
        assert set(turn.text.removesuffix(mark)) == {"x"}
        assert room // 4 - len(mark) <= turn.n_tokens <= room // 2
        room -= turn.n_tokens + 1
    assert len(turns) == shown


def test_an_environment_that_cannot_be_constructed_says_so():
    found, *_ = play(lambda *_: "P", [Draw(problem(), 1, 0)], plan_of("Unready"))
    assert "cannot be constructed: RuntimeError: no licence" in found[0][0].transcript.detail


def test_a_slow_step_holds_up_no_other_conversation(tmp_path):
    """It ends only when all others have, so they cannot have waited for it."""
    plan = plan_of("Faulty", workers=2, straggler_timeout=0.3)
    taking = TurnTaking(Engine(lambda *_: "P"), plan, suffix)
    others = []

    def one_more(done):
        assert done.result()[0].transcript.ended == "done"
        others.append(done)
        if len(others) == 11:
            (tmp_path / "go").touch()

    try:
        for i in range(12):
            spec = {"in": "step", "how": "wait", "for": str(tmp_path / "go")} if i == 3 else {}
            request = GenerationRequest(f"r{i}", (0,), PARAMS, (i,), problem=problem(i, **spec))
            done = taking.submit(request)
            if i != 3:
                done.add_done_callback(one_more)
        taking.drain(600.0)
    finally:
        taking.close()
    assert len(others) == 11


def test_a_generation_that_fails_ends_the_rollout_with_its_error():
    def script(said, seed):
        return RunError("the engine broke") if "<1:" in said else "ab"

    with pytest.raises(RunError, match="the engine broke"):
        play(script, [Draw(problem(i), 2, i) for i in range(3)], plan_of())


def test_a_rollout_that_passes_its_deadline_says_so():
    draws = [Draw(problem(0, **{"in": "step", "how": "hang"}), 1, 0)]
    with pytest.raises(RunError, match=r"conversations were not finished within 1\.5 s"):
        play(lambda *_: "P", draws, plan_of("Faulty", timeout=300.0), deadline=1.5)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("concurrent", [1, 3, 256])
def test_any_number_at_a_time_gives_the_same_conversations(at_once, concurrent):
    def script(said, seed):
        return "P" if said.count("<") == 2 else chr(97 + seed % 20) * (1 + seed % 3)

    draws = [Draw(problem(i), 3, i) for i in range(5)]
    plan = plan_of(config={"replies": 2}, concurrent=concurrent)
    found, engine, _, _ = play(script, draws, plan, at_once=at_once)
    wanted, *_ = play(script, draws, plan_of(config={"replies": 2}))
    assert found == wanted
    assert sum(len(r.seeds) for r in engine.requests) == 5 * 3 * 3
    if concurrent == 1:
        assert all(len(r.seeds) == 1 for r in engine.requests)


def test_rounds_ask_in_the_order_of_the_draws():
    draws = [Draw(problem(i), 2, i) for i in range(6)]
    _, engine, _, _ = play(lambda *_: "P", draws, plan_of())
    ids = [request.id for request in engine.requests]
    assert ids == [f"p{i}@5#{i}/0.{turn}" for turn in range(2) for i in range(6)]
    assert engine.drains == 2  # one a round, also when environments start late


@pytest.mark.parametrize("takes_turns", [True, False])
def test_an_engine_that_takes_text_is_told_the_conversation(takes_turns):
    class Remote(Engine):
        def answer(self, request, seed):
            text = "P" if len(self.requests) == 2 else "ab"
            return Generation((), (), text, "stop", 0, Usage(1, 5, len(text)))

    engine = Remote(None)
    engine.traits = EngineTraits(text_only=True, takes_turns=takes_turns)
    taking = TurnTaking(engine, plan_of(), suffix)
    asked = (Message("user", "q0!"),)
    done = taking.submit(GenerationRequest("r", (), PARAMS, (1,), turns=asked, problem=problem(0)))
    try:
        taking.drain(600.0)
    finally:
        taking.close()
    (one,) = done.result()
    assert (one.token_ids, one.loss_mask, one.text) == ((), (), "P")
    assert one.usage == Usage(2, 10, 3)
    assert [turn.text for turn in one.transcript.turns] == ["ab", "<1:ab>", "P"]
    said = (*asked, Message("assistant", "ab"), Message("user", "<1:ab>"))
    wanted = said if takes_turns else (Message("user", "q0!ab<1:ab>"),)
    assert [request.turns for request in engine.requests] == [asked, wanted]
    assert engine.requests[1].params.max_tokens == 100 - 2
