"""Added constraints on layout, and on copying a text."""

from __future__ import annotations

from rlvr_ifeval import matching
from rlvr_ifeval.arguments import Composition, Copies, Phrase, PromptToRepeat, Span
from rlvr_ifeval.constraint import Family, NoArgs
from rlvr_ifeval.rule_sentences import rule_sentences
from rlvr_ifeval.substance import substantial
from rlvr_ifeval.text import tokens

CONSTRAINTS = Family()
"""All of this family."""


@CONSTRAINTS.add(
    "copy:repeat_phrase",
    Phrase,
    "Write the phrase '{phrase}' exactly {small_n} times, each time with "
    "one word in its middle replaced.",
    has_content=None,
)
def _repeat_phrase(response: str, args: Phrase) -> bool:
    given = args.phrase.split()
    copies = [part.split() for part in _between(response, given[0], given[-1])]
    return len(copies) == args.small_n and all(
        len(words) == len(given) and sum(a != b for a, b in zip(words, given, strict=True)) == 1
        for words in copies
    )


def _between(text: str, first: str, last: str) -> list[str]:
    """The shortest stretches within a line from one word to another, without overlap."""
    stretches = []
    for line in text.split("\n"):
        begin = line.find(first + " ")
        while begin >= 0:
            end = line.find(" " + last, begin + len(first) + 1)
            if end < 0:
                break
            end += 1 + len(last)
            stretches.append(line[begin:end])
            begin = line.find(first + " ", end)
    return stretches


def _same(a: str, b: str) -> bool:
    return a.strip().lower() == b.strip().lower()


def _hyphened(response: str, _: NoArgs) -> bool:
    wanted = rule_sentences(response.replace("-", " "))
    parts = response.split("-")
    return all(part == sentence for part, sentence in zip(parts, wanted, strict=False))


@CONSTRAINTS.add(
    "detectable_format:bigram_wrapping",
    NoArgs,
    "Put every two words in double angular brackets: <<like this>> <<one here>>.",
)
def _bigrams(response: str, _: NoArgs) -> bool:
    words = response.split()
    pairs = zip(words[::2], words[1::2], strict=False)
    return all(a.startswith("<<") and b.endswith(">>") for a, b in pairs)


@CONSTRAINTS.add(
    "copy:copying_multiple",
    Copies,
    "Only repeat this request {N} times, with six asterisks, ******, between "
    "the copies; do not answer it: {prompt_to_repeat}",
    has_content=None,
)
def _copies(response: str, args: Copies) -> bool:
    parts = response.split("******")
    return len(parts) == args.N and all(_same(part, args.prompt_to_repeat) for part in parts)


@CONSTRAINTS.add(
    "count:counting_composition",
    Composition,
    "Write 3 paragraphs with *** between them, each of exactly {n_sent} "
    "sentences of exactly {n_words} words, the punctuation mark counted as one.",
    has_content=None,
)
def _composition(response: str, args: Composition) -> bool:
    paragraphs = matching.divided(response)
    return matching.filled(paragraphs) == 3 and all(
        _composed(rule_sentences(paragraph), args) for paragraph in paragraphs
    )


def _composed(sentences: list[str], args: Composition) -> bool:
    return len(sentences) == args.n_sent and all(
        len(tokens(sentence)) == args.n_words for sentence in sentences
    )


def _several_sentences(response: str, _: NoArgs) -> bool:
    return len(rule_sentences(response.replace("-", " "))) > 1 and substantial(response)


CONSTRAINTS.add(
    "detectable_format:sentence_hyphens",
    NoArgs,
    "Join all sentences with hyphens, without spaces between them.",
    has_content=_several_sentences,
)(_hyphened)


@CONSTRAINTS.add("detectable_format:square_brackets", NoArgs, "Put every word in square brackets.")
def _square_brackets(response: str, _: NoArgs) -> bool:
    return all(word.startswith("[") and word.endswith("]") for word in response.split())


@CONSTRAINTS.add("paragraphs:paragraphs", NoArgs, "Write 2 paragraphs, with *** between them.")
def _paragraphs(response: str, _: NoArgs) -> bool:
    return matching.filled(matching.divided(response)) == 2


@CONSTRAINTS.add(
    "paragraphs:paragraphs2", NoArgs, "Write 2 paragraphs, with an empty line between them."
)
def _paragraphs2(response: str, _: NoArgs) -> bool:
    return matching.filled(response.split("\n\n")) == 2


@CONSTRAINTS.add(
    "copy:copy",
    PromptToRepeat,
    "Only repeat this request word for word; do not answer it: {prompt_to_repeat}",
    has_content=None,
)
def _copy(response: str, args: PromptToRepeat) -> bool:
    return _same(response, args.prompt_to_repeat)


@CONSTRAINTS.add(
    "new:copy_span_idx",
    Span,
    "Only copy the characters from index {n_start} up to {n_end} of: {prompt_to_repeat}",
    has_content=None,
)
def _copy_span_idx(response: str, args: Span) -> bool:
    return _same(response, args.prompt_to_repeat[args.n_start : args.n_end])
