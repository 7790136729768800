"""Getting clean text out of markup."""

from __future__ import annotations

import re

from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import Comment, Node, Raw, h
from rlvr_bs4.schema import STRING, array
from rlvr_bs4.site import Site, text
from rlvr_bs4.world import World


class RemoveScriptsStyles(Archetype):
    """Visible text of a block that has scripts, styles and comments in it."""

    id = "mvp.remove_scripts_styles"
    twins = 8
    category = "output"
    difficulty = "medium"
    phase = 1
    schema = STRING
    asks = Ask(
        'Give the readable text of the element with id "{id}", without scripts, styles and '
        "comments; paragraphs separated by one space.",
        'What does "{id}" say to a reader? Leave out scripts, styles and comments, and put one '
        "space between paragraphs.",
        'Return the text of "{id}" as a reader sees it: no script, no style, no comment, one '
        "space between paragraphs.",
    )

    def build(self, w: World) -> Draft:
        target = w.ident()
        sentences = [w.sentence() for _ in range(w.between(2, 4))]
        style = h("style", f".{w.klass()} {{ color: red; }}")
        script = h("script", f'var label = "<p>{w.phrase()}</p>"; track("{w.word()}");')
        blocks: list[Node] = [h("p", sentence) for sentence in sentences]
        blocks.insert(w.between(0, len(blocks)), script)
        blocks.insert(w.between(0, len(blocks)), style)
        blocks.insert(w.between(0, len(blocks)), Comment(f"was: {w.sentence()}"))
        spaced: list[Node] = ["\n"]
        for block in blocks:
            spaced += [block, "\n"]
        body = Body((h(f"div#{target}", *spaced),), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), " ".join(sentences), body)

    def solve(self, site: Site) -> str:
        tag = site.one(f'[id="{self.slots(site)["id"]}"]')
        for code in tag.select("script, style"):
            code.decompose()
        return text(tag)

    def bug_every_string(self, site: Site) -> str:
        """``find_all(string=True)`` has scripts, styles and comments in it."""
        tag = site.one(f'[id="{self.slots(site)["id"]}"]')
        return " ".join(" ".join(map(str, tag.find_all(string=True))).split())

    def bug_tags_by_regex(self, site: Site) -> str:
        tag = site.one(f'[id="{self.slots(site)["id"]}"]')
        return " ".join(re.sub(r"<[^>]+>", " ", str(tag)).split())


class StringReturnsNone(Archetype):
    """Text that is spread over several elements."""

    id = "mvp.string_returns_none"
    twins = 8
    category = "error_bait"
    difficulty = "medium"
    phase = 1
    schema = STRING
    asks = Ask(
        'Give the whole text of the element with id "{id}", its parts joined by single spaces.',
        'What is the complete text of "{id}"? Join its pieces with one space each.',
        'Return everything "{id}" says, with one space between the pieces.',
    )

    def build(self, w: World) -> Draft:
        target = w.ident()
        pieces = [w.phrase() for _ in range(w.between(3, 5))]
        tags = ("span", "em", "strong", "b", "span")
        inside: list[Node] = []
        for index, piece in enumerate(pieces):
            inside.append(piece if index == 1 else h(tags[index], piece))
        # the pieces touch: only a separator keeps their words apart
        element = h(f"p#{target}", *inside)
        block = h("section", h("p", w.sentence()), element, h("p", w.sentence()))
        body = Body((block,), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), " ".join(pieces), body)

    def solve(self, site: Site) -> str:
        return site.one(f'[id="{self.slots(site)["id"]}"]').get_text(" ", strip=True)

    def bug_dot_string(self, site: Site) -> str | None:
        return site.one(f'[id="{self.slots(site)["id"]}"]').string

    def bug_no_separator(self, site: Site) -> str:
        return site.one(f'[id="{self.slots(site)["id"]}"]').get_text(strip=True)


class TextSeparator(Archetype):
    """Lines of an address that only ``<br>`` and inline boxes keep apart."""

    id = "web.text_separator"
    twins = 8
    category = "output"
    difficulty = "medium"
    phase = 3
    schema = array(STRING)
    asks = Ask(
        'The element with id "{id}" holds an address of several lines. Give its lines in order.',
        'Split the address in "{id}" into its lines, in order.',
        'Return the lines of the address "{id}" as a list, one entry per line.',
    )

    def build(self, w: World) -> Draft:
        target = w.ident()
        truth = [w.company(), f"{w.number(1, 199)} {w.word().capitalize()} Street", w.city()]
        if w.chance(0.5):
            truth.append(f"Floor {w.number(200, 240)}")
        lines: list[Node] = []
        for index, line in enumerate(truth):
            # one word of each line is marked up: splitting at every string cuts too often
            head, _, tail = line.partition(" ")
            lines += [h("br")] if index else []
            lines += [h("b", head), f" {tail}"] if tail else [line]
        body = Body(
            (h("p", w.sentence()), h(f"address#{target}", *lines)), claims=(Claim(f"#{target}"),)
        )
        return Draft(w.ask(self.asks, id=target), truth, body)

    def solve(self, site: Site) -> list[str]:
        tag = site.one(f'[id="{self.slots(site)["id"]}"]')
        for line_break in tag.select("br"):
            line_break.replace_with("\n")
        return [" ".join(line.split()) for line in tag.get_text().splitlines() if line.strip()]

    def bug_every_string(self, site: Site) -> list[str]:
        return list(site.one(f'[id="{self.slots(site)["id"]}"]').stripped_strings)

    def bug_no_separator(self, site: Site) -> list[str]:
        return [site.one(f'[id="{self.slots(site)["id"]}"]').get_text()]


class Entities(Archetype):
    """Text and an attribute written with character references."""

    id = "web.entities"
    twins = 8
    category = "output"
    difficulty = "medium"
    phase = 3
    schema = STRING
    asks = Ask(
        'Give the text of the element with id "{id}" with all character references decoded once.',
        'What does a reader see in "{id}"?',
        'Return the text of "{id}", character references decoded once.',
    )

    def build(self, w: World) -> Draft:
        target = w.ident()
        pairs = [
            ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"), ("&eacute;", "é"), ("&#8364;", "€"),
            ("&#x2014;", "—"), ("&frac12;", "½"), ("&copy;", "©"), ("&amp;lt;", "&lt;"),
        ]  # fmt: skip
        chosen = w.sample(pairs, w.between(3, 5))
        pieces = [(f"{w.word()}{written}", seen) for written, seen in chosen]
        source, truth = [], []
        for (written, seen), (reference, _) in zip(pieces, chosen, strict=True):
            source.append(written)
            truth.append(written.removesuffix(reference) + seen)
        element = h(f"p#{target}", Raw(" ".join(source)))
        body = Body((h("p", w.sentence()), element), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), " ".join(truth), body)

    def solve(self, site: Site) -> str:
        return text(site.one(f'[id="{self.slots(site)["id"]}"]'))

    def bug_markup_as_text(self, site: Site) -> str:
        id = self.slots(site)["id"]
        match = re.search(rf'id="{id}">(.*?)</p>', site.html)
        return match[1] if match else ""


class Mojibake(Archetype):
    """A text that was decoded in the wrong encoding, and can be put right."""

    id = "web.mojibake"
    twins = 8
    category = "output"
    difficulty = "hard"
    phase = 3
    schema = STRING
    asks = Ask(
        'The text of the element with id "{id}" is UTF-8 that was wrongly read as Latin-1. Give '
        "the text as it was meant.",
        'Repair the text of "{id}": its UTF-8 bytes were decoded as Latin-1.',
        '"{id}" holds UTF-8 bytes shown as Latin-1. Return the original text.',
    )
    # no letter whose UTF-8 has a second byte below 0xA1: as Latin-1 it would be a control or space
    _NAMES = (
        *("Café Müller", "Smörgås", "Señor Peña", "Château Brûlé", "Crème Noël", "Jalapeño"),
        *("Garçon", "Föhn", "Köln", "Tütü", "Piñata", "Hôtel", "Düssel", "Rhône", "Genève"),
    )

    def build(self, w: World) -> Draft:
        target = w.ident()
        truth = f"{w.pick(self._NAMES)} {w.phrase()} {w.pick(self._NAMES)}"
        element = h(f"p#{target}", truth.encode().decode("latin-1"))
        block = h("section", h("p", w.pick(self._NAMES)), element)
        body = Body((block,), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), truth, body)

    def solve(self, site: Site) -> str:
        tag = site.one(f'[id="{self.slots(site)["id"]}"]')
        return tag.get_text().encode("latin-1").decode()

    def bug_left_as_it_is(self, site: Site) -> str:
        return text(site.one(f'[id="{self.slots(site)["id"]}"]'))

    def bug_ascii_only(self, site: Site) -> str:
        return self.solve(site).encode("ascii", "ignore").decode()
