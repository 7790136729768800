"""In training, characters that nobody sees neither make a constraint hold nor break one."""

import pytest

from rlvr_core.api import Completion, Problem
from rlvr_ifeval import verifiers
from rlvr_ifeval.text import visible
from tests.support.tables import table

GAP, JOINER, NON_JOINER, SELECTOR = "\u200b", "\u200d", "\u200c", "\ufe0f"
HIDDEN = [GAP, JOINER, NON_JOINER, SELECTOR, "\u00ad", "\u2060", "\ufeff", "\u034f", "\U000e0061"]
HIDDEN += [
    "\0",
    "\x1b",
    "\x7f",
    "\x9f",
    GAP + JOINER,
    JOINER + GAP + SELECTOR,
    GAP + SELECTOR + GAP,
]
HIDDEN_NAMES = ["-".join(f"{ord(character):x}" for character in one) for one in HIDDEN]
MADE = {"multi": verifiers.Multi, "rlvr": verifiers.Rlvr, "ifeval": verifiers.Ifeval}


def follows(name, id, args, text):
    spec = {
        "ifeval": {"instruction_id_list": [id], "kwargs": [args]},
        "multi": {"ground_truth": [{"instruction_id": [id], "kwargs": [args]}]},
        "rlvr": {"ground_truth": {"func_name": id, **args}},
    }[name]
    verifier = MADE[name](MADE[name].Config())
    verdict = verifier.verify(Problem("p", "q", "v", spec, "d"), Completion.from_text(text))
    assert verdict.status == "ok", verdict.detail
    return verdict.passed


CHEATS = table(__file__, "cheats")


@pytest.mark.parametrize("hidden", HIDDEN, ids=HIDDEN_NAMES)
@pytest.mark.parametrize(("name", "id", "args", "text"), CHEATS)
def test_hidden_characters_make_nothing_pass(name, id, args, text, hidden):
    plain = follows(name, id, args, text.replace("@", "")) if text.strip("@") else False
    assert not plain
    assert not follows(name, id, args, text.replace("@", hidden))


@pytest.mark.parametrize("hidden", HIDDEN, ids=HIDDEN_NAMES)
def test_hidden_characters_break_nothing(hidden):
    assert follows("multi", "keywords:existence", {"keywords": ["bear"]}, f"a be{hidden}ar")
    assert follows("rlvr", "validate_end", {"end_phrase": "The end."}, f"So. The end.{hidden}")


def test_the_benchmarks_count_them_as_their_scripts_do():
    forbidden = {"forbidden_words": ["bear"]}
    assert follows("ifeval", "keywords:forbidden_words", forbidden, f"a be{GAP}ar")
    assert not follows("multi", "keywords:forbidden_words", forbidden, f"a be{GAP}ar")


@pytest.mark.parametrize("before", ["e\u0301", "C+", "<", "1", "\u0436"])
def test_a_joiner_joins_nothing_behind_an_accent_or_a_sign(before):
    assert visible(f"{before}{GAP}{JOINER}{SELECTOR}x") == f"{before}x"


def test_spaces_and_ends_of_lines_are_seen():
    text = "a\tb\r\nc\x0bd\x0ce\x1cf\x1dg\x1eh\x1fi\x85j\u2028k\u2029l\u00a0m\u3000n"
    assert visible(text) == text


@pytest.mark.parametrize("hidden", HIDDEN, ids=HIDDEN_NAMES)
def test_a_request_with_hidden_characters_is_copied_with_them(hidden):
    asked = f"Say wo{hidden}rd"
    assert follows("multi", "copy:copy", {"prompt_to_repeat": asked}, asked)
    assert not follows("multi", "copy:copy", {"prompt_to_repeat": asked}, "Say word")
    assert follows("multi", "copy:copy", {"prompt_to_repeat": "Say word"}, asked)


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",  # a family
        "1\ufe0f\u20e3",  # a keycap
        "\u2764\ufe0f",  # a red heart
        "\u2764\ufe0f\u200d\U0001f525",  # a heart on fire
        "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",  # a flag
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian, with a non-joiner
        "\u0915\u094d\u200d\u0937",  # Hindi, with a joiner
        "e\u0301 \u6f22\u5b57 \u00e9",
    ],
)
def test_joiners_stay_where_a_script_or_an_emoji_needs_them(text):
    assert visible(text) == text
    assert visible(f"Look: {text}.") == f"Look: {text}."
