"""Things that are not there, and calls that fail where one expects them."""

from __future__ import annotations

from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import h
from rlvr_bs4.schema import STRING, array, nullable, record
from rlvr_bs4.site import Site, one, text
from rlvr_bs4.world import World
from rlvr_core.api import Json


class NoneAttributeError(Archetype):
    """An element that the first of several boxes lacks."""

    id = "mvp.none_attribute_error"
    twins = 8
    category = "error_bait"
    difficulty = "easy"
    phase = 1
    schema = STRING
    asks = Ask(
        'Some boxes of class "{name}" have no em element. Give the text of the first em inside a '
        "box of that class.",
        'What does the first em within any "{name}" box say? Not every such box has one.',
        'Return the text of the first em that is inside a box of class "{name}"; some of '
        "these boxes have none.",
    )

    def build(self, w: World) -> Draft:
        name, truth = w.klass(), w.phrase()
        without = [h(f"div.{name}", h("p", w.sentence())) for _ in range(w.between(1, 3))]
        stray = h("div", h("p", h("em", w.phrase())))
        with_it = [h(f"div.{name}", h("p", w.word(), " ", h("em", truth)))]
        with_it.append(h(f"div.{name}", h("p", h("em", w.phrase()))))
        claim = Claim(f".{name}", len(without) + 2)
        body = Body((stray, *without, *with_it), claims=(claim,))
        return Draft(w.ask(self.asks, name=name), truth, body)

    def solve(self, site: Site) -> str:
        return text(site.one(f".{self.slots(site)['name']} em"))

    def bug_first_box_only(self, site: Site) -> str:
        return text(one(site.one(f".{self.slots(site)['name']}"), "em"))

    def bug_first_em(self, site: Site) -> str:
        return text(site.one("em"))


class ClassReservedWord(Archetype):
    """Selecting by class, where ``class`` is a reserved word."""

    id = "mvp.class_reserved_word"
    twins = 8
    category = "error_bait"
    difficulty = "easy"
    phase = 1
    schema = STRING
    asks = Ask(
        'Give the text of the paragraph with the CSS class "{name}".',
        'Which text is in the p element of class "{name}"?',
        'Return the text of the p whose class is "{name}".',
    )

    def build(self, w: World) -> Draft:
        name, truth = w.klass(), w.sentence()
        blocks = [
            h(f"p.{w.klass()}", w.sentence(), cls=name),
            h(f"div.{name}", h("b", w.sentence())),
            h(f"p.{name}", truth),
            h(f"p.{w.klass()}", w.sentence(), class_name=name),
        ]
        body = Body(tuple(w.shuffled(blocks)), claims=(Claim(f"p.{name}"),))
        return Draft(w.ask(self.asks, name=name), truth, body)

    def solve(self, site: Site) -> str:
        return text(site.one(f"p.{self.slots(site)['name']}"))

    def bug_attribute_cls(self, site: Site) -> str:
        paragraph = site.soup().find("p", attrs={"cls": self.slots(site)["name"]})
        return paragraph.get_text() if paragraph is not None else ""


class PartialData(Archetype):
    """Cards of which some lack a part."""

    id = "mvp.partial_data_extraction"
    twins = 8
    category = "advanced"
    difficulty = "medium"
    phase = 2
    schema = array(record(name=STRING, price=nullable(STRING), description=nullable(STRING)))
    asks = Ask(
        'List the cards inside the element with id "{id}" in order with name, price and '
        "description; what a card lacks is null.",
        'Give name, price and description of every card in "{id}", in order; null where missing.',
        'Return the cards in "{id}" in order, each with name, price and description, or null '
        "for what is missing.",
    )

    def build(self, w: World) -> Draft:
        target, n = w.ident(), w.between(3, 5)
        bare = w.between(0, n - 2)
        truth, cards = [], []
        for index in range(n):
            card: dict[str, str | None] = {"name": w.product(), "price": None, "description": None}
            parts = [h("h3.name", str(card["name"]))]
            if index != bare and w.chance(0.7):
                card["price"] = w.price()
                parts.append(h("span.price", str(card["price"])))
            if index != bare and (w.chance(0.6) or index == n - 1):
                card["description"] = w.sentence()
                parts.append(h("p.description", str(card["description"])))
            truth.append(card)
            cards.append(h("div.card", *parts))
        other = h("div.card", h("h3.name", w.product()), h("span.price", w.price()))
        box = h(f"section#{target}", *cards)
        body = Body(tuple(w.shuffled([other, box])), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), truth, body)

    def solve(self, site: Site) -> Json:
        cards = []
        for card in site.soup().select(f'[id="{self.slots(site)["id"]}"] .card'):
            parts = {name: card.select_one(f".{name}") for name in ("name", "price", "description")}
            cards.append({name: text(tag) if tag else None for name, tag in parts.items()})
        return cards

    def bug_lists_zipped(self, site: Site) -> Json:
        names = ("name", "price", "description")
        box = site.one(f'[id="{self.slots(site)["id"]}"]')
        columns = [[text(tag) for tag in box.select(f".{name}")] for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=False)]
