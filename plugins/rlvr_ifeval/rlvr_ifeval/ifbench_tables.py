"""Word lists that IFBench's constraints need, compiled by hand from general knowledge of English.

IFBench reads most of these from NLTK; lists of our own need no download and can differ from it at
the margin.
"""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


STOP_WORDS = word_set(
    """
    a an the
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself
    she her hers herself it its itself they them their theirs themselves
    this that these those what which who whom why how where when
    am is are was were be been being have has had having do does did doing can will should
    and but or nor if because as until while than so
    of at by for with about against between into through during before after above below to from
    up down in out on off over under
    again further then once here there now just only too very not no own same such both each few
    more most all any some other
    s t d ll m o re ve y ma don ain aren couldn didn doesn hadn hasn haven isn mightn mustn needn
    shan shouldn wasn weren won wouldn
    """
)
"""Function words of English, and the pieces that contractions fall into at an apostrophe."""

CONJUNCTIONS = ("and", "but", "for", "nor", "or", "so", "yet")
"""The coordinating conjunctions."""

PRONOUNS = word_set(
    """
    i me my mine myself we us our ours ourselves you your yours yourself yourselves
    he him his himself she her hers herself it its itself they them their theirs themselves
    this that these those who whom whose which what whoever whomever whatever whichever
    anybody anyone anything everybody everyone everything nobody nothing somebody someone
    something each either neither both all some any none
    """
)
"""Personal, possessive, reflexive, demonstrative, interrogative, relative, indefinite pronouns."""

PERSON_NAMES = (
    "Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander "
    "Amelia Benjamin Harper Leo Zoe Daniel Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel "
    "Ella Jacob Scarlett Nathan Victoria Elijah Layla Nicholas Audrey David Hannah Christopher "
    "Penelope Thomas Nora Andrew Aria Joseph Claire Ryan Stella Jonathan"
)
"""The names that the prompts of ``count:person_names`` list, in their order."""
