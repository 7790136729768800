"""The reward of ``wide.yaml``."""


def share(text: str, answer: str) -> float:
    """Share of letters that are vowels."""
    return sum(letter in "aeiou" for letter in text) / max(1, len(text))
