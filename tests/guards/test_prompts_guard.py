"""The guard ``prompts``: prompts that are not what problem, config and tokenizer make."""

import re
import sys
import unicodedata
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

sys.path.insert(0, str(Path(__file__).parent))

from custody import (  # type: ignore
    CHATML,
    DATED,
    Run,
    byte_level,
    group,
    problem,
    sentence_pieces,
)

from rlvr_core.api import (
    Completion,
    Group,
    Judged,
    LossTraits,
    Message,
    Problem,
    RunError,
    TeacherTraits,
    Transcript,
    Turn,
)
from rlvr_core.builtin.invariants.check import StepView

TURNS = (Message("user", "2+2?"),)
SHOTS = (
    Message("system", "Add."),
    Message("user", "1+1?"),
    Message("assistant", "2"),
    Message("user", "2+2?"),
    Message("assistant", "It is"),
)
MAKERS = {
    "bytes": lambda: byte_level("</s>"),
    "bos": lambda: byte_level("</s>", "<s>"),
    "bos and eos": lambda: byte_level("</s>", "<s>", post_eos=True),
    "chat": lambda: byte_level("<|im_end|>", "<s>"),
    "pieces": sentence_pieces,
}


def rendered(run, *problems, change=lambda ids: ids):
    """Groups as the run's own renderer makes their prompts, changed or not."""
    return [
        group(one, run.completion("4</s>", prompt=change(run.renderer.render(one))))
        for one in problems
    ]


SECTIONS = [
    (None, {}),
    (None, {"chat_template": "never", "system": ""}),
    (CHATML, {"system": "Add.", "prefix": " It is"}),
    (CHATML, {"chat_template": "never", "system": "Add."}),
    (CHATML, {"chat_template": "always"}),
    (CHATML + "{% if deep %}<|im_start|>{% endif %}", {"template_options": {"deep": True}}),
]


@pytest.mark.parametrize(("template", "section"), SECTIONS)
@pytest.mark.parametrize("maker", MAKERS)
def test_every_rendering_of_the_run_is_right(tmp_path, maker, template, section):
    for stored in (None, True, False):
        for name in ("model", "model-base"):
            folder = tmp_path / f"{stored}" / name
            folder.mkdir(parents=True)
            problems = [problem("p0"), problem("p1", "<s>2+2?"), problem("p2", "\u00e9\u2211 x\n ")]
            chats = template is not None
            if chats and section.get("chat_template") != "never":
                problems += [problem("p3", TURNS), problem("p4", SHOTS)]
            run = Run(
                folder, MAKERS[maker](), template=template, stored=stored, prompt=section,
                problems=problems,
            )  # fmt: skip
            run.step(rendered(run, *problems), only="prompts")
            assert run.checks["prompts"].end(None) == {"prompts/checked": len(problems)}


def _swapped(ids):
    return (*ids[:2], ids[3], ids[2], *ids[4:])


TEXT = {
    "another case": (str.lower, "letters in another case"),
    "full width": (
        lambda text: text.translate({ord("0") + n: 0xFF10 + n for n in range(10)}),
        "another width",
    ),
    "decomposed": (lambda text: unicodedata.normalize("NFD", text), "another width or form"),
    "space behind": (lambda text: text + " ", "white space"),
    "newline before": (lambda text: "\n" + text, "white space"),
    "cut right": (lambda text: text[:-3], "cut on the right"),
    "cut left": (lambda text: text[3:], "cut on the left"),
    "instruction": (lambda text: text + " Be brief.", "behind it, ' Be brief.'"),
    "system": (lambda text: "You are an AI.\n\n" + text, "before it, 'You are an AI"),
    "foreign template": (lambda text: f"### User: {text}\n### Bot:", "before it, '### User: '"),
    "a letter lost": (lambda text: text.replace("w", ""), "in the place of"),
}  # fmt: skip


@pytest.mark.parametrize("fault", TEXT)
@pytest.mark.parametrize("maker", ["bytes", "bos"])
def test_a_changed_text_is_named(tmp_path, maker, fault):
    change, said = TEXT[fault]
    asked = [problem("p0", "After 45, how many caf\u00e9s?"), problem("p1", "How much is 7 x 12?")]
    run = Run(tmp_path, MAKERS[maker](), problems=asked)
    groups = rendered(run, *(replace(one, prompt=change(one.prompt)) for one in asked))
    groups = [replace(one, problem=of) for one, of in zip(groups, asked, strict=True)]
    with pytest.raises(RunError, match=re.escape(said)) as caught:
        run.step(groups)
    assert "guard prompts: " in str(caught.value)
    assert "guards.prompts: false" in str(caught.value)


TOKENS = {
    "BOS twice": ("bos", lambda ids: (ids[0], *ids), r"\['<s>', '<s>'\] \(BOS\)"),
    "BOS missing": ("bos", lambda ids: ids[1:], r"begins with the special tokens \[\]"),
    "padding before": ("bytes", lambda ids: (0, *ids), r"\['<pad>'\] \(BOS\)"),
    "EOS behind": ("bytes", lambda ids: (*ids, 2), "end-of-sequence token or padding"),
    "two tokens swapped": ("bytes", _swapped, "from token 2 on"),
    "other ids": ("bytes", lambda ids: tuple(5 + (i + 6) % 256 for i in ids), "in the place of"),
    "a merge undone": ("merged", lambda ids: (*ids[:-1], 5, 6), "and other tokens"),
}  # fmt: skip


@pytest.mark.parametrize("fault", TOKENS)
def test_changed_tokens_are_named(tmp_path, fault):
    maker, change, said = TOKENS[fault]
    made = byte_level("</s>", merges=[("!", '"')]) if maker == "merged" else MAKERS[maker]()
    asked = problem("p0", 'Add 2!"')
    run = Run(tmp_path, made, problems=[asked])
    with pytest.raises(RunError, match=said):
        run.step(rendered(run, asked, change=change))


def test_a_template_where_there_should_be_none_and_the_reverse(tmp_path):
    asked, folder = problem(), tmp_path / "small-base"
    folder.mkdir()
    base = Run(folder, MAKERS["chat"](), template=CHATML, problems=[asked])
    chat = Run(tmp_path, MAKERS["chat"](), template=CHATML, problems=[asked])
    assert (base.renderer.text_as_chat, chat.renderer.text_as_chat) == (False, True)
    with pytest.raises(RunError, match=r"is a chat by its template, and with .*auto it is raw"):
        base.step(rendered(chat, asked))
    with pytest.raises(RunError, match=r"is raw text, and with .*auto it is a chat"):
        chat.step(rendered(base, asked))


@pytest.mark.parametrize(
    ("ends", "model_end", "chat"),
    [((), None, False), (("<|im_end|>",), None, True), ((), "<|im_end|>", False)],
)
def test_what_decides_for_the_template_is_what_decides_in_the_run(tmp_path, ends, model_end, chat):
    asked = problem()
    run = Run(tmp_path, byte_level("</s>"), template=CHATML, ends=ends, model_end=model_end,
              problems=[asked])  # fmt: skip
    assert run.renderer.text_as_chat == chat
    run.step(rendered(run, asked))


def test_prompts_of_other_problems_and_of_no_problem_of_the_data(tmp_path):
    asked = [problem("p0", "2+2?"), problem("p1", "3+3?")]
    run = Run(tmp_path, byte_level("</s>"), problems=asked)
    first, second = rendered(run, *asked)
    mixed = replace(first, members=second.members)
    with pytest.raises(RunError, match="p0 is that of problem p1"):
        run.step([mixed, second])
    other = replace(asked[0], prompt="2+2? (in French)")
    with pytest.raises(RunError, match=r"p0 is not that of the data: '2\+2\? \(in French\)'"):
        run.step(rendered(run, other))
    half = replace(first, members=first.members + second.members)
    with pytest.raises(RunError, match="another one for some of its completions"):
        run.step([half])


def test_a_fault_in_a_few_of_many_prompts_is_met(tmp_path):
    asked = [problem(f"p{n}", f"{n}+{n}?") for n in range(100)]
    run = Run(tmp_path, byte_level("</s>"), problems=asked)
    groups = rendered(run, *asked)
    bad = [
        rendered(run, one, change=lambda ids: ids[:-1])[0] if n % 20 == 3 else groups[n]
        for n, one in enumerate(asked)
    ]
    met = [step for step in range(2) if _stops(run, bad, step)]  # 64 at most in a step
    assert met


def _stops(run, groups, step):
    try:
        run.step(groups, step)
    except RunError:
        return True
    return False


def test_a_template_with_the_date_may_be_of_yesterday(tmp_path, monkeypatch):
    from transformers.utils import chat_template_utils as clock

    asked = problem()
    run = Run(tmp_path, MAKERS["chat"](), template=DATED, problems=[asked])
    day = re.search(r"\d\d \w{3} \d{4}", run.tokenizer.decode(run.renderer.render(asked)))[0]
    assert run.renderer.text_as_chat
    run.step(rendered(run, asked), only="prompts")
    moved = [timedelta(days=1)]

    class Moved(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) - moved[0]

    monkeypatch.setattr(clock, "datetime", Moved)
    yesterday = rendered(run, asked)
    assert day not in run.tokenizer.decode(yesterday[0].members[0].completion.prompt_ids)
    run.step(yesterday, 1, only="prompts")
    moved[0] = timedelta(days=40)
    with pytest.raises(RunError, match="prompts are not what"):
        run.step(rendered(run, asked), 2, only="prompts")


def test_a_tokenizer_that_was_changed_in_the_run(tmp_path):
    from tokenizers import normalizers

    asked = problem(prompt="Add 2")
    run = Run(tmp_path, byte_level("</s>"), problems=[asked])
    run.tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    with pytest.raises(RunError, match="letters in another case"):
        run.step(rendered(run, asked))


# -- observations --------------------------------------------------------------------------------


def conversation(run, asked, replies, said, change=lambda ids: ids):
    """A conversation as the run's renderer makes it: a reply, messages, another reply."""
    ids, turns = (), []
    for place, reply in enumerate(replies):
        own = run.ids(reply)
        if place:
            messages = said[place - 1]
            between = change(run.renderer.suffix_ids(asked, ids, messages))
            ids += between
            turns += [
                Turn(one.role, one.content, 0 if index else len(between))
                for index, one in enumerate(messages)
            ]
        ids += own
        turns.append(Turn("assistant", reply, len(own)))
    script = Transcript("e", tuple(turns), "done")
    prompt = run.renderer.render(asked)
    made = run.completion(ids, prompt=prompt, transcript=script)
    return group(asked, replace(made, loss_mask=script.loss_mask(len(ids))))


SAID = (
    (Message("user", "No.\n caf\u00e9"),),
    (Message("tool", "4 "), Message("user", " a b")),
)


@pytest.mark.parametrize(("template", "section"), SECTIONS)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("ended", [True, False])
def test_observations_of_the_run_are_right(tmp_path, maker, template, section, ended):
    asked = problem()
    run = Run(tmp_path, MAKERS[maker](), template=template, prompt=section, problems=[asked])
    end = run.tokenizer.eos_token if ended else ""
    replies = [f"3{end}", f"5{end}", f"4{end}"]
    run.step([conversation(run, asked, replies, SAID)], only="prompts")


OBSERVED = {
    "an end before": lambda ids: (2, *ids),
    "an end behind": lambda ids: (*ids, 2),
    "the first token lost": lambda ids: ids[1:],
    "cut": lambda ids: ids[:-2],
    "none": lambda ids: (),
}


@pytest.mark.parametrize("fault", OBSERVED)
@pytest.mark.parametrize("template", [None, CHATML])
def test_observations_that_are_other_tokens(tmp_path, template, fault):
    asked = problem()
    run = Run(tmp_path, byte_level("</s>"), template=template, problems=[asked])
    with pytest.raises(RunError, match="guard prompts: between two turns of a conversation"):
        run.step([conversation(run, asked, ["3", "5", "4"], SAID, OBSERVED[fault])])


def taught(run, shown, *prompts, branch=None):
    """Show the guard a micro-batch whose teacher has these prompts, a row for each problem.

    ``branch`` is the prompt of the last row, if it is a branch that begins otherwise.
    """

    def rows(texts):
        ids = [torch.tensor(run.ids(text)) for text in texts]
        return SimpleNamespace(
            prompt_of_row_B=torch.arange(len(ids)),
            prompt_ids_SP=pad_sequence(ids, batch_first=True),
            prompt_len_S=torch.tensor([len(one) for one in ids]),
            group_B=torch.arange(len(ids)),
        )

    asked = [one.prompt for one in shown]
    micro = SimpleNamespace(
        teacher_batch=SimpleNamespace(host=rows(prompts)) if prompts else None,
        host=rows(asked if branch is None else [*asked[:-1], branch]),
    )
    loss = SimpleNamespace(traits=LossTraits(teacher=TeacherTraits(4, prompt="[{a}] {prompt}")))
    groups = [
        Group(
            one,
            (Judged(Completion(run.ids(one.prompt), (), (), (), "", "stop"), {}, 1.0, True),),
            0,
        )
        for one in shown
    ]
    event = SimpleNamespace(micro_batch=micro, losses=[(loss, None, None)])
    run.checks["prompts"].computed(StepView(None, groups, 0, 0), event)


def test_a_teacher_is_told_what_its_template_says(tmp_path):
    two = [Problem(f"p{n}", f"1+{n}?", "v", {"a": 1 + n}, "d") for n in (1, 2)]
    run = Run(tmp_path, byte_level("</s>"), problems=two)
    taught(run, two, "[2] 1+1?", "[3] 1+2?")
    with pytest.raises(RunError, match=r"teacher's prompt for problem p2 is '\[2\] 1\+2\?'"):
        taught(run, two, "[2] 1+1?", "[2] 1+2?")
    with pytest.raises(RunError, match=r"for problem p1 is '1\+1\?', and its template makes"):
        taught(run, two, "1+1?", "[3] 1+2?")
    taught(run, two, "[2] 1+1?", "an aside", branch="an aside")
    # without prompts of its own a teacher is shown those of the policy
    with pytest.raises(RunError, match=r"p1 is '1\+1\?', and its template makes '\[2\] 1\+1\?'"):
        taught(run, two)
    with pytest.raises(RunError, match="and the branch begins with 'an aside'"):
        taught(run, two, "[2] 1+1?", "[3] 1+2?", branch="an aside")
