"""Texts in other scripts and directions, and emoji."""

from __future__ import annotations

import re
from typing import ClassVar

from rlvr_bs4 import words
from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import h
from rlvr_bs4.schema import STRING
from rlvr_bs4.site import Site, text
from rlvr_bs4.task import Difficulty
from rlvr_bs4.world import World


class _I18n(Archetype):
    category = "i18n"
    difficulty: ClassVar[Difficulty] = "medium"
    phase = 2
    twins = 8
    schema = STRING


def foreign(w: World, language: str) -> str:
    """Four to seven words of a language."""
    return " ".join(w.sample(words.LANGUAGES[language], w.between(4, 7)))


class Multilingual(_I18n):
    """A paragraph in one of ten languages."""

    id = "mvp.extract_multilingual"
    asks = Ask(
        'Give the text of the paragraph in the language "{language}" inside the element with id '
        '"{id}".',
        'What does the paragraph with lang "{language}" in "{id}" say?',
        'Return the text inside "{id}" that is marked as being in "{language}".',
    )

    def build(self, w: World) -> Draft:
        target = w.ident()
        languages = w.sample(list(words.LANGUAGES), 4)
        texts = {language: foreign(w, language) for language in languages}
        wanted = languages[-1]
        region = h("p", foreign(w, wanted), lang=f"{wanted}-x-{w.word()}")
        paragraphs = [h("p", texts[language], lang=language) for language in languages]
        shown = [region, paragraphs[0], *w.shuffled(paragraphs[1:])]
        outside = h("p", foreign(w, wanted), lang=wanted)
        body = Body((outside, h(f"div#{target}", *shown)), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target, language=wanted), texts[wanted], body)

    def solve(self, site: Site) -> str:
        slots = self.slots(site)
        paragraph = site.one(f'[id="{slots["id"]}"]').find(True, attrs={"lang": slots["language"]})
        return paragraph.get_text() if paragraph is not None else ""

    def bug_language_anywhere(self, site: Site) -> str:
        return text(site.one(f'[lang="{self.slots(site)["language"]}"]'))

    def bug_ascii_only(self, site: Site) -> str:
        return self.solve(site).encode("ascii", "ignore").decode()


class Rtl(_I18n):
    """A right-to-left text in logical order."""

    id = "mvp.extract_rtl"
    asks = Ask(
        'Give the text of the element with id "{id}" in the order of its characters.',
        'What does the right-to-left element "{id}" say? Keep the order of characters.',
        'Return the text of "{id}" character by character as it is stored.',
    )

    def build(self, w: World) -> Draft:
        target, language = w.ident(), w.pick(words.RTL)
        truth = f"{foreign(w, language)} {w.number(10, 99)} {w.code()}"
        like = w.lookalikes(target, 2)
        blocks = [h("p", foreign(w, language), dir="rtl", lang=language)]
        blocks += [h(f"p#{name}", w.sentence(), dir="ltr") for name in like]
        blocks.append(h(f"p#{target}", truth, dir="rtl", lang=language))
        body = Body(tuple(blocks), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), truth, body)

    def solve(self, site: Site) -> str:
        return text(site.one(f'[id="{self.slots(site)["id"]}"]'))

    def bug_reversed(self, site: Site) -> str:
        return self.solve(site)[::-1]

    def bug_first_rtl(self, site: Site) -> str:
        return text(site.one('[dir="rtl"]'))


class Emoji(_I18n):
    """A text with emoji, zero-width characters and currency signs, kept whole."""

    id = "mvp.extract_emoji_content"
    difficulty = "easy"
    asks = Ask(
        'Give the text of the element with id "{id}" with its emoji and special characters.',
        'What exactly does "{id}" say? Keep emoji and symbols.',
        'Return the text of "{id}", emoji and signs included.',
    )

    def build(self, w: World) -> Draft:
        target = w.ident()
        parts = [*w.phrase().split(), w.word(), w.word()]
        for symbol in w.sample(words.EMOJI, w.between(2, 3)):
            parts.insert(w.between(1, len(parts)), symbol)
        if w.chance(0.3):
            parts.append(f"{w.pick(('€', '£', '₹', '¥'))}{w.number(2, 90)}")
        if w.chance(0.3):  # three emoji joined into one picture by zero-width joiners
            parts.insert(1, "\N{WOMAN}\u200d\N{WOMAN}\u200d\N{GIRL}")
        truth = " ".join(parts)
        blocks = (h("p", w.sentence()), h(f"p#{target}", truth), h("p", w.pick(words.EMOJI)))
        return Draft(
            w.ask(self.asks, id=target), truth, Body(blocks, claims=(Claim(f"#{target}"),))
        )

    def solve(self, site: Site) -> str:
        return text(site.one(f'[id="{self.slots(site)["id"]}"]'))

    def bug_letters_only(self, site: Site) -> str:
        return " ".join(re.findall(r"[\w€£₹¥]+", self.solve(site)))
