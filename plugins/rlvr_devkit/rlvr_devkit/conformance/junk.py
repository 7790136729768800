"""Degenerate responses of models, on which no verifier may fail."""

from __future__ import annotations

LONG = 100_000


def junk(prompt: str, right: str, wrong: str) -> dict[str, str]:
    """Return degenerate responses by a short description of each.

    Args:
        prompt: Prompt of the problem, to echo.
        right: A right response, to repeat, cut and contradict.
        wrong: A wrong response.
    """
    return {
        "nothing": "",
        "blanks only": " \t\r\n" * 50,
        "NUL characters": "\0" * 100 + right + "\0",
        "lone surrogates": "\ud800 " + right + " \udfff",
        "control characters and escapes": "\x1b[31m\x07\x08\u202e" + right + "\x85\u2028",
        "letters without end": "a" * LONG,
        "digits without end": "9" * LONG,
        "an answer of digits without end": right + " " + "7" * LONG,
        "line breaks without end": "\n" * LONG,
        "open braces without end": "{" * LONG,
        "nested brackets": "[" * (LONG // 2) + "]" * (LONG // 2),
        "an unclosed box": "The answer is \\boxed{\\frac{1}{2",
        "a tower of powers": "\\boxed{9^{9^{9^{9^{9}}}}} #### 9**9**9**9**9",
        "a number beyond floats": "#### 1e999999999 \\boxed{10^{1000000000}}",
        "a factorial": "\\boxed{99999999!}",
        "not a number": "#### nan \\boxed{\\infty} inf -inf",
        "division by zero": "#### 1/0 \\boxed{\\frac{1}{0}}",
        "code": "__import__('os').abort() \\boxed{__import__('os').abort()}",
        "format directives": "%s%n{0}{x!r}%(a)d \\boxed{%s}",
        "markup": "<script>alert(1)</script><answer><answer></answer>",
        "JSON without end": '{"a":' * (LONG // 5),
        "the prompt": prompt,
        "the prompt and the answer": prompt + right,
        "the answer twice": right + "\n" + right,
        "several answers": "\n".join([right, wrong, right, wrong]),
        "many answers": "\n".join(f"#### {n} \\boxed{{{n}}}" for n in range(2_000)),
        "the first half of the answer": right[: len(right) // 2],
    }
