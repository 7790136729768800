"""``words:start_verb``: first sentences that begin with a verb, and ones that do not.

``first_sentences.tsv`` is written by hand: words that can be verb, noun, adjective or name, in
sentences that show which of these they are.
"""

from pathlib import Path

import pytest

from rlvr_core.testing.clock import cpu_limit
from rlvr_ifeval.ifbench_start_verb import starts_with_verb

LINES = (Path(__file__).parent / "first_sentences.tsv").read_text(encoding="utf-8").splitlines()
SENTENCES = [tuple(line.split("\t")) for line in LINES]
TOLD_WRONG = {
    "Deal makers gathered in the lobby.",  # "gathered" could belong to "makers"
    "Building trust takes years.",  # as "Building work takes years", where it is no verb
}


def test_hand_written_first_sentences():
    assert len(SENTENCES) == 614
    wrong = {text for kind, text in SENTENCES if starts_with_verb(text) != (kind == "verb")}
    assert wrong == TOLD_WRONG


@pytest.mark.parametrize(
    ("text", "verb"),
    [
        ("**Imagine** a sea.", True),
        ("# Explore Rome\n\nIt is old.", True),
        ("- Use it", True),
        ('"Go away," he said.', True),
        ("Think. Then act.", True),
        ("Design: a house", False),
        ("Travel Guide", False),
        ("Step 1: Go", False),
        ("Answers of mine", False),
        ("Put simply, it works.", True),
        ("[Name] runs", False),
        ("Don\u2019t go.", True),
        ("", False),
        ("...", False),
        ("東京へ行く", False),
        ("Ünser is big", False),
    ],
)
def test_marks_headings_and_other_scripts(text, verb):
    assert starts_with_verb(text) is verb


@pytest.mark.parametrize(
    "text", ["plant " * 50_000, "a" * 200_000, "plant—" * 50_000, "\n" * 200_000]
)
def test_a_huge_text_takes_little_time(text):
    with cpu_limit(2, "starts_with_verb"):
        starts_with_verb(text)
