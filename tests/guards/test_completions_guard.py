"""The guard ``completions``: text, finish reason and version that do not follow from the tokens."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

sys.path.insert(0, str(Path(__file__).parent))

from custody import Run, byte_level, group, problem, sentence_pieces  # type: ignore

from rlvr_core.api import RunError, Transcript, Verdict
from rlvr_core.api.completions import Turn
from rlvr_core.builtin.invariants.check import StepView
from rlvr_core.builtin.invariants.conversations import wrong_conversation

CAP = 12
LONG = "a text of 12"  # as many bytes as the cap


def small(folder, made=None, *, stop=(), ends=(), **more):
    """A run with a cap of 12 tokens."""
    sampling = {"max_tokens": CAP, "stop": list(stop)}
    return Run(folder, made or byte_level("</s>"), ends=ends, sampling=sampling, **more)


def answered(run, *completions, step=0, version=0, of=None, **more):
    run.step(
        [group(of or problem(), *completions, version=version)], step, version, only="completions",
        **more,
    )  # fmt: skip


def test_healthy_endings_are_quiet(tmp_path):
    run = small(tmp_path, stop=["]", "<pad>"], ends=["</s>", "<|im_start|>"])
    answered(
        run,
        run.completion("it is [4]"),
        run.completion("it is 4</s>"),
        run.completion("it is 4<|im_start|>"),  # of the generation config
        run.completion("it is 4<pad>"),  # a stop string that is a token
        run.completion("</s>"),
        run.completion("it <s>is</s>"),  # special tokens are no text
        run.completion(LONG, "length"),
        run.completion(LONG[:-1] + "</s>"),
        run.completion(LONG[:-1] + "]"),
        run.completion("\u2211" * 4, "length"),
        run.completion(run.ids("\u2211" * 5)[:CAP], "length"),
    )
    found = run.checks["completions"].end(None)
    assert found["completions/end_token"] == pytest.approx(6 / 11)
    assert found["completions/stop_string"] == pytest.approx(2 / 11)
    assert found["completions/decoded"] == 11
    cut = run.completion(run.ids("x\u2211\u2211\u2211\u2211")[:CAP], "length")  # half a character
    assert cut.text.endswith("\ufffd")
    answered(run, cut, replace(cut, text=cut.text.rstrip("\ufffd")))
    own = problem("p1", max_tokens=5, stop=("!",))
    answered(run, run.completion("it is", "length"), run.completion("no!"), of=own)
    full = (9,) * 207  # the engine was told to make room for 200 + 12 tokens
    answered(run, run.completion("it is", "length", prompt=full))


def test_a_stop_string_inside_a_token_and_behind_half_a_character(tmp_path):
    made = byte_level("</s>", merges=[("]", "."), ("].", "\u00e2")])
    run = small(tmp_path, made, stop=["]"])
    assert len(run.ids("].")) == 1
    answered(run, run.completion("[4]."))
    late = run.ids("[4].\u2211")  # the first byte of the sum sign is in the token of the bracket
    assert len(late) == 5
    answered(run, run.completion(late), run.completion(late[:3]))


def test_pieces_with_bytes_and_spaces(tmp_path):
    run = small(tmp_path, sentence_pieces())
    one = run.completion("a b \u2211 x</s>")
    answered(run, one, replace(one, text=" " + one.text))
    cut = run.completion(run.ids("a \u2211\u2211\u2211\u2211\u2211\u2211")[:CAP], "length")
    answered(run, cut)
    with pytest.raises(RunError, match="disagree in 1 of 1"):
        answered(run, replace(one, text=one.text.replace(" ", "", 1)))


def _as(reason):
    return lambda run, one: replace(one, finish_reason=reason)


def _tokens(change):
    def changed(run, one):
        ids = change(run, one.token_ids)
        return replace(
            one, token_ids=ids, logprobs=(-1.0,) * len(ids), loss_mask=(True,) * len(ids),
            text=run.tokenizer.decode(list(ids), skip_special_tokens=True),
        )  # fmt: skip

    return changed


ENDINGS = {
    "cut off, says stop": (LONG, "length", _as("stop"), "all 12 tokens .* must say 'length'"),
    "ended, says length": ("4</s>", "stop", _as("length"), "says that it was cut off"),
    "stop string, says length": ("[4]", "stop", _as("length"), "says that it was cut off"),
    "EOS taken off": ("4 5</s>", "stop", _tokens(lambda run, ids: ids[:-1]), r"taken off"),
    "EOS alone taken off": ("</s>", "stop", _tokens(lambda run, ids: ()), r"it is empty"),
    "stop string taken off": ("[4]", "stop", _tokens(lambda run, ids: ids[:-1]), "no stop string"),
    "EOS is padding": ("4</s>", "stop", _tokens(lambda run, ids: (*ids[:-1], 0)), r"0 \('<pad>'\)"),
    "goes on": ("4</s>", "stop", _tokens(lambda run, ids: (*ids, *ids)), "goes on for 2 tokens"),
    "EOS twice": ("4</s>", "stop", _tokens(lambda run, ids: (*ids, 2)), "goes on for 1 tokens"),
    "behind the stop string": (
        "[4]", "stop", _tokens(lambda run, ids: (*ids, 9, 2)), "goes on behind the stop strings",
    ),
    "over the cap": (
        LONG, "length", _tokens(lambda run, ids: (*ids, 9)), "has 13 tokens, and the cap is 12",
    ),
    "cut off early": (
        LONG, "length", _tokens(lambda run, ids: ids[:6]), "cap of 6 .*, not that of sampling",
    ),
    "the cap counts the prompt": (
        LONG, "length", _tokens(lambda run, ids: ids[:-2]), "the cap counts the prompt's tokens",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", ENDINGS)
def test_endings_that_contradict_their_tokens(tmp_path, fault):
    text, reason, change, said = ENDINGS[fault]
    run = small(tmp_path, stop=["]"])
    right = run.completion(text, reason)
    answered(run, right, run.completion("fine</s>"))
    with pytest.raises(RunError, match=f"(?s){said}") as caught:
        answered(run, change(run, right), run.completion("fine</s>"), step=1)
    assert "the finish reason of 1 of 2 completions contradicts" in str(caught.value)
    assert "guards.completions: false" in str(caught.value)


def test_one_more_stop_token_is_named(tmp_path):
    run = small(tmp_path)
    with pytest.raises(
        RunError, match=r"(?s)24 .'4'.*stops at a token that the model does not end"
    ):
        answered(run, *(run.completion(f"{n}4") for n in range(4)), run.completion("no</s>"))


TEXTS = {
    "last character lost": (lambda run, one: one.text[:-1], "lost on the way"),
    "stripped": (lambda run, one: one.text.strip(), "lost on the way"),
    "first token lost": (lambda run, one: one.text[1:], "lost on the way"),
    "spaces collapsed": (lambda run, one: " ".join(one.text.split()), "text is changed|lost"),
    "with special tokens": (
        lambda run, one: run.tokenizer.decode(list(one.token_ids)), "skip_special_tokens",
    ),
    "token by token": (
        lambda run, one: "".join(run.tokenizer.decode([i]) for i in one.token_ids[:-1]),
        "one by one",
    ),
    "joined by spaces": (
        lambda run, one: " ".join(
            run.tokenizer.decode([i], skip_special_tokens=True) for i in one.token_ids
        ),
        "one by one",
    ),
    "of another": (lambda run, one: " 7 \u2211", "that of another completion"),
    "upper case": (lambda run, one: one.text.upper(), "the text is changed"),
    "repaired": (lambda run, one: one.text + "]", "the text is changed"),
}  # fmt: skip


@pytest.mark.parametrize("fault", TEXTS)
def test_texts_that_are_not_those_of_the_tokens(tmp_path, fault):
    change, said = TEXTS[fault]
    run = small(tmp_path)
    one = run.completion(" a \u2211  b </s>")
    answered(run, one)
    with pytest.raises(RunError, match=f"(?s)disagree in 1 of 2 .*({said})"):
        answered(run, replace(one, text=change(run, one)), one, step=1)


def test_ends_that_are_written_over_where_answers_are_cut_off(tmp_path):
    """The last token of each truncated completion is made the end of sequence."""
    run = small(tmp_path)
    whole, cut = run.completion("4</s>"), run.completion(LONG, "length")
    answered(run, whole, cut)
    ids = (*cut.token_ids[:-1], whole.token_ids[-1])
    with pytest.raises(
        RunError, match=r"(?s)in 1 of 2 .*all of them are truncated.*the last token"
    ):
        answered(run, whole, replace(cut, token_ids=ids), step=1)


def talk(run, *turns, ended="done", reason="stop", text=None):
    """A conversation: the model's turns are texts, those of its environment in brackets."""
    ids, mask, script = (), (), ()
    for turn in turns:
        role = "tool" if turn.startswith("(") else "assistant"
        own = run.ids(turn)
        shown = run.tokenizer.decode(list(own), skip_special_tokens=True)
        ids, mask = ids + own, mask + (role == "assistant",) * len(own)
        script += (Turn(role, shown, len(own)),)
    said = [turn.text for turn in script if turn.role == "assistant"][-1]
    one = run.completion(ids, reason, judged=said if text is None else text)
    logps = tuple(logp * own for logp, own in zip(one.logprobs, mask, strict=True))
    transcript = Transcript("e", script, ended)
    return replace(one, loss_mask=mask, logprobs=logps, transcript=transcript)


def test_conversations(tmp_path):
    run = Run(tmp_path, byte_level("</s>"), sampling={"max_tokens": 30},
              environment={"max_turn_tokens": CAP, "max_turns": 2})  # fmt: skip
    quiet = [
        talk(run, "ask</s>", "(4</s>)", "it is 4</s>"),
        talk(run, "ask</s>", "(4)", "more</s>", ended="max_turns", reason="length"),
        talk(run, LONG, ended="turn_length", reason="length"),
        talk(run, "ask</s>", "(44444444444444444)", "seven 7", ended="budget", reason="length"),
        talk(run, "ask</s>", ended="budget", reason="length"),  # no room for the next turn
        talk(run, "ask</s>", "(4)", "hm", ended="timeout", reason="error"),
    ]
    answered(run, *quiet)
    for bad, said in (
        (talk(run, "ask", "(4)", "it is 4</s>"), "says that it stopped"),
        (talk(run, "ask</s>", "(4)", "it is 4"), "says that it stopped"),
        (talk(run, "a</s>k</s>", "(4)", "it is 4</s>"), "goes on for 2 tokens"),
        (talk(run, "ask", ended="turn_length", reason="length"), "after 3 tokens, and the cap"),
        (talk(run, LONG + "</s>", "(4)", "4</s>"), "has 13 tokens, and the cap is 12"),
        (talk(run, "ask</s>", "(4)", "it is 4</s>", text="ask"), "disagree in 1 of 1"),
        (
            talk(run, "ask</s>", "(4)", "seven 7", ended="budget"),
            "reason stop, and ended by budget",
        ),
        (talk(run, "ask</s>", reason="length"), "finish reason length, and ended by done"),
        (
            talk(run, "ask</s>", ended="max_turns", reason="length"),
            r"after 1 turns .*max_turns is 2",
        ),
        (talk(run, "a</s>", "(4)", "b</s>", "(4)", "c</s>"), r"ended \(done\) after 3 turns"),
    ):
        with pytest.raises(RunError, match=said):
            answered(run, bad, step=1)


def branched(run, side, main=None, *, turns=3, mask=None):
    """A conversation that tried its second turn twice: ``side`` is the other branch."""
    main = main or talk(run, "ask</s>", "(4)", "it is 4</s>")
    first = len(run.ids("ask</s>"))
    own = (False,) * first + side.loss_mask[first:]
    script = replace(main.transcript, counts={"sampled_turns": turns})
    other = replace(side, loss_mask=own if mask is None else mask)
    return replace(main, transcript=script, branches=(other,))


def test_branches_of_conversations(tmp_path):
    run = Run(tmp_path, byte_level("</s>"), sampling={"max_tokens": 30},
              environment={"max_turn_tokens": CAP, "max_turns": 4})  # fmt: skip
    side = talk(run, "ask</s>", "(4)", "or 5</s>")
    cut = {"ended": "turn_length", "reason": "length"}
    limited = talk(run, "ask</s>", "(4)", LONG, **cut)
    whole = talk(run, "ask</s>", "(4)", "it is 4</s>", **cut)
    same = talk(run, "ask</s>", "(4)", "it is 4</s>")
    # the limit was reached in the branch, and the judged reply was whole before; a second try may
    # come out as the first one
    answered(run, branched(run, side), branched(run, limited, whole), branched(run, same))
    n = len(side.token_ids)
    for bad, said in (
        (branched(run, talk(run, "ask</s>", "(4)", "or 5")), "says that it stopped"),
        (branched(run, side, mask=(False,) * n), "0 of its .* tokens, and the model wrote 5"),
        (
            branched(run, side, mask=side.loss_mask),
            "trains in its rows 4 turns of the model, and it wrote 3",
        ),
        (branched(run, side, turns=5), r"after 5 turns .*max_turns is 4"),
        (branched(run, talk(run, "ask</s>", "(4)", LONG), whole), "cut off|says that it stopped"),
    ):
        with pytest.raises(RunError, match=said):
            answered(run, bad, step=1)


def test_masks_of_conversations(tmp_path):
    run = Run(tmp_path, byte_level("</s>"), sampling={"max_tokens": 30})
    one = talk(run, "ask</s>", "(4)", "it is 4</s>")
    answered(run, one)
    for mask, n in (((True,) * 15, 15), ((True,) * 4 + (False,) * 11, 4)):
        with pytest.raises(RunError, match=f"has in its loss mask {n} of its 15 tokens, and"):
            answered(run, replace(one, loss_mask=mask), step=1)


def test_log_probs_of_what_an_environment_says(tmp_path):
    run = Run(tmp_path, byte_level("</s>"), sampling={"max_tokens": 30})
    one = talk(run, "ask</s>", "(4)", "it is 4</s>")
    with pytest.raises(RunError, match="has log-probs of tokens that its environment said"):
        answered(run, replace(one, logprobs=(-1.0,) * len(one.token_ids)), step=1)


def test_conversations_that_were_not_played_or_not_judged(tmp_path):
    class Judging:
        def cut(self, state, ended):
            """Judge an unfinished conversation."""

    run = Run(tmp_path, byte_level("</s>"), sampling={"max_tokens": 30})
    single = run.completion("ask</s>")
    assert wrong_conversation(single, None, 4) is None
    assert wrong_conversation(replace(single, finish_reason="error"), object(), 4) is None
    assert "it has no transcript" in wrong_conversation(single, object(), 4)[0]
    cut = talk(run, "ask</s>", LONG, ended="turn_length", reason="length")
    assert wrong_conversation(cut, Judging(), 4) is None
    assert "cut off (turn_length) and has no verdict" in wrong_conversation(cut, object(), 4)[0]
    script = replace(cut.transcript, verdict=Verdict(0.0, passed=False))
    assert wrong_conversation(replace(cut, transcript=script), object(), 4) is None


def imitated(run, *texts, untrained=0):
    """Show the guard a micro-batch of answers to imitate."""
    rows = [torch.tensor(run.ids(text)) for text in texts]
    ids_BT = pad_sequence(rows, batch_first=True)
    length_B = torch.tensor([len(row) for row in rows])
    mask_BT = torch.arange(ids_BT.shape[1]) < (length_B - untrained)[:, None]
    micro = SimpleNamespace(completion_ids_BT=ids_BT, completion_len_B=length_B)
    event = SimpleNamespace(
        micro_batch=micro, losses=[(None, SimpleNamespace(mask_BT=mask_BT), None)]
    )
    run.checks["completions"].given(StepView(None, (), 2, 0), event)


def test_answers_to_imitate_end(tmp_path):
    run = small(tmp_path)
    imitated(run, "it is 4</s>", "5</s>")
    with pytest.raises(RunError, match=r"1 of 2 given answers .* lack the end-of-sequence token"):
        imitated(run, "it is 4</s>", "5")
    with pytest.raises(RunError, match=r"2 of 2 given answers .* leave it out of the loss mask"):
        imitated(run, "it is 4</s>", "5</s>", untrained=1)


def test_versions_in_turns(tmp_path):
    run = small(tmp_path)

    def at(version, now, **more):
        one = run.completion("4</s>", version=version, **more)
        answered(run, one, one, step=now, version=now)

    for now in (0, 1, 2, 5):
        at(now, now)
    at(5, 5, token_versions=(5, 5))
    for version, said in ((4, "says version 4, and the engine"), (6, "says version 6"), (0, "0")):
        with pytest.raises(RunError, match=f"2 of 2 completions have a version label.*{said}"):
            at(version, 5)
    for versions in ((4, 5), (5, 4), (0, 0), (5, 6)):
        with pytest.raises(RunError, match="version label"):
            at(5, 5, token_versions=versions)


def test_versions_ahead(tmp_path):
    run = small(tmp_path, train={"steps": 9, "max_staleness": 4})
    guard = run.checks["completions"]

    def at(version, now, **more):
        answered(run, run.completion("4</s>", version=version, **more), step=now, version=now)

    at(2, 3)  # a resumed run: groups from before it
    guard.weights_loaded(0, 5, None)
    at(3, 5)
    at(3, 5, token_versions=(3, 5))
    for version, more in ((4, {}), (6, {}), (5, {"token_versions": (5, 3)}), (-1, {})):
        with pytest.raises(RunError, match="version label"):
            at(version, 5, **more)


# -- the first completions ----------------------------------------------------------------------


def sheet(run, texts, reason="stop", *, groups=8, parts=None, rewards=None, step=0, **own):
    """What is said of groups that all have these texts; ``own`` is of their problems."""
    made = [
        group(
            problem(f"p{n}", **own),
            *(run.completion(text, reason) for text in texts),
            parts=parts,
        )
        for n in range(groups)
    ]
    if rewards is not None:
        made = [
            replace(one, members=tuple(replace(m, reward=rewards) for m in one.members))
            for one in made
        ]
    run.step(made, step, only="completions")
    return run.said


EIGHT = [f"it is {n}</s>" for n in range(8)]


@pytest.mark.parametrize(("how", "said"), [
    ({"texts": [LONG[:-1] + str(n) for n in range(8)], "reason": "length"},
     r"64 of 64 are cut off at sampling.max_tokens \(12\).*raise sampling.max_tokens"),
    ({"texts": [LONG[1:-1] + str(n) for n in range(8)], "reason": "length", "max_tokens": 11},
     r"cut off at max_tokens of the problems, .* \(11\).*raise max_tokens of the problems"),
    ({"texts": [f"42<|im_end|> is no 1{n}" for n in range(8)], "reason": "length"},
     r"64 write 4 \('<\|im_end\|>'\) and go on: make it an eos_token_id"),
    ({"texts": EIGHT, "parts": {"extracted": 0.0}}, "finds an answer in 0 of 64: prompt"),
    ({"texts": [f"{n}!" for n in range(8)], "parts": {"extracted": 0.0}},
     "finds an answer in 0 of 64, and 64 end by a stop string"),
    ({"texts": EIGHT[:1] * 8}, "8 of 64 are distinct.*raise sampling.temperature"),
    ({"texts": EIGHT, "rewards": 0.0}, "8 of 8 groups have rewards that do not differ"),
    ({"texts": ["</s>", " </s>"] * 4}, "64 of 64 are empty"),
    ({"texts": [f"4\nUser:{n}</s>" for n in range(8)]}, "64 of 64 begin another prompt"),
])  # fmt: skip
def test_what_keeps_a_run_from_learning_is_said(tmp_path, how, said):
    lines = sheet(small(tmp_path, stop=["!"]), **how)
    assert any(re.search(said, line) for line in lines), lines
    assert all("rlvr docs guards#completions" in line for line in lines)


@pytest.mark.parametrize(("prompt", "more", "said"), [
    ("2+2? ", {}, "8 of 8 prompts end in white space"),
    ("2\u00a0+ 2?", {}, r"8 of 8 prompts have characters that look like spaces.*U\+00A0"),
    ("\uff12+2?", {}, "8 of 8 prompts have digits or letters of full width"),
    ("2+2?", {"max_tokens": 5}, r"1 of 8 problems have a max_tokens of their own, as low as 5"),
])  # fmt: skip
def test_odd_problems_are_named(tmp_path, prompt, more, said):
    run = small(tmp_path)
    made = [
        group(
            problem(f"p{n}", prompt, **(more if n == 0 else {})),
            *(run.completion(text) for text in [f"{n}{k}</s>" for k in range(8)]),
        )
        for n in range(8)
    ]
    run.step(made, 0, only="completions")
    assert any(re.search(said, line) for line in run.said), run.said


def test_a_second_reward_that_is_the_same_for_all_is_named(tmp_path):
    run = small(tmp_path)
    members = group(problem(), *(run.completion(text) for text in EIGHT)).members
    twice = tuple(
        replace(one, verdicts=one.verdicts | {"toy/brief": Verdict(0.5)}) for one in members
    )
    groups = [replace(group(problem(f"p{n}")), members=twice) for n in range(8)]
    run.step(groups, 0, only="completions")
    assert any("the reward toy/brief is constant: it gives all 64" in one for one in run.said)


@pytest.mark.parametrize("penalty", [True, False])
def test_failures_with_unequal_scores_are_named(tmp_path, penalty):
    """Of each group's eight two pass, three fail with 0, and three without an answer with -1."""
    run = small(tmp_path)
    verdicts = [
        *[Verdict(1.0, passed=True, extracted="4")] * 2,
        *[Verdict(0.0, passed=False, extracted="5")] * 3,
        *[Verdict(-1.0 if penalty else 0.0, passed=False)] * 3,
    ]
    members = group(problem(), *(run.completion(text) for text in EIGHT)).members
    judged = tuple(
        replace(one, verdicts={"v": verdict})
        for one, verdict in zip(members, verdicts, strict=True)
    )
    run.step(
        [replace(group(problem(f"p{n}")), members=judged) for n in range(8)], 0, only="completions"
    )
    said = [line for line in run.said if "48 fail by the verifier v" in line]
    assert bool(said) == penalty
    for line in said:
        assert "from -1 (24 times) to 0 (24), not one; without an answer -1 in the mean" in line


def test_nothing_is_said_of_usual_completions(tmp_path):
    run = small(tmp_path, stop=["!"])
    assert sheet(run, EIGHT, parts={"extracted": 1.0}) == []
    assert sheet(run, [LONG] * 8, "length", rewards=0.0, step=1) == []  # of later steps
    few = small(tmp_path)
    assert sheet(few, [LONG], "length", groups=2) == []
