"""Detects the language of a text, deterministically."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

_LONGEST = 40_000
"""Characters read; the detector itself stops at 10,000 after taking out addresses."""

_CODES = (
    "af ar bg bn ca cs cy da de el en es et fa fi fr gu he hi hr hu id it ja kn ko lt lv mk ml mr "
    "ne nl no pa pl pt ro ru sk sl so sq sv sw ta te th tl tr uk ur vi zh-cn zh-tw"
)
CODES = frozenset(_CODES.split())
"""ISO 639-1 codes that can be detected."""


def _known(code: str) -> str:
    if code != "zh" and code not in CODES:
        raise ValueError(f"cannot be detected; known are {', '.join(sorted(CODES))} and zh")
    return code


Language = Annotated[str, StringConstraints(strict=True), AfterValidator(_known)]
"""A code of ``CODES``, or ``zh`` for either Chinese."""


def detect(text: str) -> str | None:
    """The code of a text's language, or None if it has no letters to tell it by.

    The detector draws random numbers; it is seeded at each call, so that the same text gets the
    same answer wherever it is asked.
    """
    return _detector()(text[:_LONGEST])


def is_language(text: str, code: str) -> bool | None:
    """Whether a text is in a language; None if its language cannot be told."""
    detected = detect(text)
    if detected is None:
        return None
    return detected.startswith("zh-") if code == "zh" else detected == code


@cache
def _detector() -> Callable[[str], str | None]:
    from langdetect import DetectorFactory, LangDetectException
    from langdetect.detector_factory import PROFILES_DIRECTORY

    factory = DetectorFactory()
    factory.load_profile(PROFILES_DIRECTORY)

    def detected(text: str) -> str | None:
        detector = factory.create()
        detector.seed = 0
        detector.append(text)
        try:
            return str(detector.detect())
        except LangDetectException:
            return None

    return detected


NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "de": "German", "en": "English",
    "es": "Spanish", "fa": "Persian", "fi": "Finnish", "fr": "French", "gu": "Gujarati",
    "hi": "Hindi", "it": "Italian", "ja": "Japanese", "kn": "Kannada", "ko": "Korean",
    "mr": "Marathi", "ne": "Nepali", "pa": "Punjabi", "pt": "Portuguese", "ru": "Russian",
    "sw": "Swahili", "ta": "Tamil", "te": "Telugu", "th": "Thai", "ur": "Urdu",
    "vi": "Vietnamese", "zh": "Chinese", "zh-cn": "Chinese", "zh-tw": "Chinese",
}  # fmt: skip


def name(code: str) -> str:
    """The language's English name where it has one here, else its code."""
    return NAMES.get(code, code)
