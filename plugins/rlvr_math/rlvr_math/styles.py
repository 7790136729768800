r"""Prompt styles by name: markers, worked examples, the form of the answer, and stop strings.

A style's stop strings cover the marker that opens a problem in it, because base models like to go
on with a problem of their own; they say nothing else, so that good answers are not cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StyleName = Literal["plain", "minerva", "gsm8k-cot", "qwen-cot", "r1"]


@dataclass(frozen=True, slots=True)
class Example:
    """A worked problem: question, reasoning, final answer."""

    question: str
    reasoning: str
    answer: str


@dataclass(frozen=True, slots=True)
class Style:
    """How problems are put.

    Attributes:
        before: In front of a question.
        between: Between question and answer.
        ending: How a worked example states its ``{answer}``.
        stop: Strings that end a completion.
        shots: Worked examples in front by default.
    """

    before: str
    between: str
    ending: str
    stop: tuple[str, ...]
    shots: int

    def prompt(self, question: str, examples: tuple[Example, ...]) -> str:
        """The prompt of one question after worked examples."""
        worked = [
            f"{self.before}{example.question}{self.between} {example.reasoning} "
            + self.ending.replace("{answer}", example.answer)
            for example in examples
        ]
        return "\n\n".join([*worked, f"{self.before}{question}{self.between}"])


STYLES: dict[StyleName, Style] = {
    "plain": Style(
        before="Problem:\n",
        between="\n\nReason step by step, then write the final answer inside \\boxed{}.\n\n"
        "Solution:",
        ending="\\boxed{{answer}}",
        stop=("Problem:",),
        shots=0,
    ),
    "minerva": Style(
        before="Problem:\n",
        between="\n\nSolution:",
        ending="So it is $\\boxed{{answer}}$.\n"
        "Final Answer: The final answer is ${answer}$. I hope it is correct.",
        stop=("Problem:",),
        shots=4,
    ),
    "gsm8k-cot": Style(
        before="Q: ",
        between="\nA:",
        ending="The answer is {answer}.",
        stop=("Q:",),
        shots=4,
    ),
    "qwen-cot": Style(
        before="Question: ",
        between="\nAnswer: Let's think step by step.",
        ending="The answer is $\\boxed{{answer}}$.",
        stop=("Question:",),
        shots=4,
    ),
    "r1": Style(
        before="Question: ",
        between="\nReason inside <think> </think> tags, then write the final answer alone inside "
        "<answer> </answer> tags.\nResponse:",
        ending="<answer>{answer}</answer>",
        stop=("Question:",),
        shots=0,
    ),
}

WORD_PROBLEMS: tuple[Example, ...] = (
    Example(
        "A bakery fills 14 trays with 12 rolls each and sells 120 rolls. How many are left?",
        "It bakes 14 * 12 = 168 rolls. After selling 120 there are 168 - 120 = 48 left.",
        "48",
    ),
    Example(
        "Nadia reads 25 pages a day for 6 days of a 200 page book. How many pages remain?",
        "In 6 days she reads 25 * 6 = 150 pages. So 200 - 150 = 50 remain.",
        "50",
    ),
    Example(
        "A bus ticket is $3, a train ticket twice as much. What do 2 of each cost in dollars?",
        "A train ticket costs 3 * 2 = 6 dollars. One of each costs 3 + 6 = 9, two of each 9 * 2 = "
        "18 dollars.",
        "18",
    ),
    Example(
        "Omar has 5 fewer marbles than Li. Together they have 31. How many does Li have?",
        "Without the difference both would have 31 + 5 = 36 in all. So Li has 36 / 2 = 18.",
        "18",
    ),
)
"""For grade-school problems; written for this package."""

MATHS_PROBLEMS: tuple[Example, ...] = (
    Example(
        "Solve $3x - 7 = 2x + 5$ for $x$.",
        "Taking $2x$ from both sides gives $x - 7 = 5$, and adding $7$ gives $x = 12$.",
        "12",
    ),
    Example(
        "What is the probability that two fair dice show a sum of $5$?",
        "Of the $36$ equally likely pairs, $(1,4)$, $(2,3)$, $(3,2)$ and $(4,1)$ have that sum, "
        "so the probability is $\\frac{4}{36} = \\frac{1}{9}$.",
        "\\frac{1}{9}",
    ),
    Example(
        "Simplify $\\sqrt{75} - \\sqrt{12}$.",
        "We have $\\sqrt{75} = 5\\sqrt{3}$ and $\\sqrt{12} = 2\\sqrt{3}$, and their difference is "
        "$3\\sqrt{3}$.",
        "3\\sqrt{3}",
    ),
    Example(
        "For which real $x$ is $x^2 - 4x + 3 < 0$?",
        "The polynomial is $(x-1)(x-3)$, which is negative exactly between its roots, for "
        "$1 < x < 3$.",
        "(1,3)",
    ),
)
"""For competition problems; written for this package."""


def render(
    name: StyleName, question: str, examples: tuple[Example, ...], shots: int | None
) -> tuple[str, tuple[str, ...]]:
    """Prompt and stop strings of a question in a style.

    Args:
        name: The style.
        question: The problem's text.
        examples: Worked problems in the style.
        shots: How many of them come first; None for the style's own number.
    """
    style = STYLES[name]
    used = examples[: style.shots if shots is None else shots]
    return style.prompt(question, used), style.stop
