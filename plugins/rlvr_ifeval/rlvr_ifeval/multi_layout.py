"""Added constraints on layout, and on copying a text."""

from __future__ import annotations

from rlvr_ifeval import matching
from rlvr_ifeval.arguments import Composition, Copies, Phrase, PromptToRepeat, Span
from rlvr_ifeval.constraint import Constraint, NoArgs
from rlvr_ifeval.rule_sentences import rule_sentences
from rlvr_ifeval.substance import substantial
from rlvr_ifeval.text import tokens


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


def _bigrams(response: str, _: NoArgs) -> bool:
    words = response.split()
    pairs = zip(words[::2], words[1::2], strict=False)
    return all(a.startswith("<<") and b.endswith(">>") for a, b in pairs)


def _copies(response: str, args: Copies) -> bool:
    parts = response.split("******")
    return len(parts) == args.N and all(_same(part, args.prompt_to_repeat) for part in parts)


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


CONSTRAINTS = (
    Constraint(
        "detectable_format:sentence_hyphens",
        NoArgs,
        _hyphened,
        lambda _: "Join all sentences with hyphens, without spaces between them.",
        has_content=_several_sentences,
    ),
    Constraint(
        "detectable_format:square_brackets",
        NoArgs,
        lambda response, _: all(
            word.startswith("[") and word.endswith("]") for word in response.split()
        ),
        lambda _: "Put every word in square brackets.",
    ),
    Constraint(
        "detectable_format:bigram_wrapping",
        NoArgs,
        _bigrams,
        lambda _: "Put every two words in double angular brackets: <<like this>> <<one here>>.",
    ),
    Constraint(
        "paragraphs:paragraphs",
        NoArgs,
        lambda response, _: matching.filled(matching.divided(response)) == 2,
        lambda _: "Write 2 paragraphs, with *** between them.",
    ),
    Constraint(
        "paragraphs:paragraphs2",
        NoArgs,
        lambda response, _: matching.filled(response.split("\n\n")) == 2,
        lambda _: "Write 2 paragraphs, with an empty line between them.",
    ),
    Constraint(
        "count:counting_composition",
        Composition,
        _composition,
        lambda args: (
            f"Write 3 paragraphs with *** between them, each of exactly {args.n_sent} "
            f"sentences of exactly {args.n_words} words, the punctuation mark counted as one."
        ),
        has_content=None,
    ),
    Constraint(
        "copy:repeat_phrase",
        Phrase,
        _repeat_phrase,
        lambda args: (
            f"Write the phrase '{args.phrase}' exactly {args.small_n} times, each time with "
            "one word in its middle replaced."
        ),
        has_content=None,
    ),
    Constraint(
        "copy:copy",
        PromptToRepeat,
        lambda response, args: _same(response, args.prompt_to_repeat),
        lambda args: (
            f"Only repeat this request word for word; do not answer it: {args.prompt_to_repeat}"
        ),
        has_content=None,
    ),
    Constraint(
        "copy:copying_multiple",
        Copies,
        _copies,
        lambda args: (
            f"Only repeat this request {args.N} times, with six asterisks, ******, between "
            f"the copies; do not answer it: {args.prompt_to_repeat}"
        ),
        has_content=None,
    ),
    Constraint(
        "new:copy_span_idx",
        Span,
        lambda response, args: _same(response, args.prompt_to_repeat[args.n_start : args.n_end]),
        lambda args: (
            f"Only copy the characters from index {args.n_start} up to {args.n_end} of: "
            f"{args.prompt_to_repeat}"
        ),
        has_content=None,
    ),
)
"""All of this family."""
