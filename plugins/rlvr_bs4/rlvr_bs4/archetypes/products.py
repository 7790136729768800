"""Questions about a list of products: filter, count, compare, take a record together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import Element, h
from rlvr_bs4.schema import INTEGER, MONEY, STRING, record
from rlvr_bs4.site import Site, attr, one, text
from rlvr_bs4.world import World, cents, dollars
from rlvr_core.api import Json

if TYPE_CHECKING:
    from bs4 import Tag


@dataclass(frozen=True, slots=True)
class Product:
    """The facts on a product's card; price in cents, rating in tenths."""

    name: str
    sku: str
    price: int
    rating: int
    in_stock: bool

    def card(self, w: World, mark: str = "") -> Element:
        """Return the product's card; an old price above the price is struck through."""
        spec = f"div.product.{mark}" if mark else "div.product"
        return h(
            spec,
            h("h3.name", h("a", self.name, href=f"/p/{self.sku.lower()}")),
            h("p", "SKU ", h("span.sku", self.sku)),
            h("s.was", dollars(self.price + 100 * w.between(1, 40) + w.between(0, 99))),
            h("span.price", f" {dollars(self.price)} "),
            h("span.rating", f"{self.rating // 10}.{self.rating % 10}"),
            h("span.stock", "In stock" if self.in_stock else "Not in stock"),
            data_sku=self.sku,
        )


def product(w: World) -> Product:
    """One with any rating and stock."""
    return Product(w.product(), w.code(), w.number(500, 90_000), w.between(25, 49), w.chance(0.5))


def divided(
    w: World, meets: Callable[[Product], bool], n_good: int, n_bad: int
) -> tuple[list[Product], list[Product]]:
    """So many products that meet a condition, and so many that do not."""
    good: list[Product] = []
    bad: list[Product] = []
    while len(good) < n_good or len(bad) < n_bad:
        candidate = product(w)
        (good if meets(candidate) else bad).append(candidate)
    return good[:n_good], bad[:n_bad]


class _Shop(Archetype):
    category = "hard"
    difficulty = "hard"
    phase = 2

    def page(self, w: World, target: str, cards: list[Element]) -> Body:
        """The list asked for between offers that do not belong to it."""
        others = [product(w).card(w) for _ in range(2)]
        listing = h(f"section#{target}", *cards)
        return Body(
            (h("aside", h("h4", w.word()), others[0]), listing, others[1]),
            claims=(Claim(f"#{target}"),),
        )

    def cards(self, site: Site) -> list[Tag]:
        """The cards of the list asked for."""
        return list(site.soup().select(f'[id="{self.slots(site)["id"]}"] .product'))


class MultiHopFilter(_Shop):
    """One fact of the first product that meets a condition."""

    id = "mvp.multi_hop_filter"
    schema = STRING
    asks = Ask(
        'Of the products in the section with id "{id}", take the first, as displayed, that {rule}. '
        "Give its {what}.",
        'What is the {what} of the first product in "{id}" that {rule}?',
        'Return the {what} of the product that comes first among those in "{id}" of which '
        "each {rule}.",
    )
    _RULES = ("is in stock", "is rated above 4.0", "is rated 4.5 or better")

    def _meets(self, rule: str, rating: float, in_stock: bool) -> bool:
        if rule == self._RULES[0]:
            return in_stock
        return rating > 4.0 if rule == self._RULES[1] else rating >= 4.5

    def build(self, w: World) -> Draft:
        target, rule = w.ident(), w.pick(self._RULES)
        what = w.pick(("SKU", "name", "price"))
        good, bad = divided(
            w, lambda p: self._meets(rule, p.rating / 10, p.in_stock), 2, w.between(2, 4)
        )
        shown = [bad[0], *w.shuffled([*bad[1:], *good])]
        first = next(p for p in shown if p in good)
        truth = {"SKU": first.sku, "name": first.name, "price": dollars(first.price)}[what]
        body = self.page(w, target, [p.card(w) for p in shown])
        return Draft(w.ask(self.asks, id=target, rule=rule, what=what), truth, body)

    def _fact(self, card: Tag, what: str) -> str:
        return text(one(card, {"SKU": ".sku", "name": ".name", "price": ".price"}[what]))

    def solve(self, site: Site) -> str:
        slots = self.slots(site)
        for card in self.cards(site):
            rating = float(text(one(card, ".rating")))
            if self._meets(slots["rule"], rating, text(one(card, ".stock")) == "In stock"):
                return self._fact(card, slots["what"])
        return ""

    def bug_first_product(self, site: Site) -> str:
        return self._fact(self.cards(site)[0], self.slots(site)["what"])


class AggregationMinMax(_Shop):
    """The lowest or highest price, as a number and not as text."""

    id = "mvp.aggregation_min_max"
    schema = MONEY
    asks = Ask(
        'What is the {end} current price among the products in the section with id "{id}"?',
        'Find the {end} price (not the struck one) of the products in "{id}".',
        'Return the {end} of the current prices in section "{id}"; struck prices do not count.',
    )

    def build(self, w: World) -> Draft:
        target, end = w.ident(), w.pick(("lowest", "highest"))
        # as text $9.50 comes after $10.00, so both ends go wrong when compared as text
        prices = [w.number(500, 999), w.number(10_000, 19_999), w.number(80_000, 99_999)]
        prices += [w.number(110_000, 190_000)]
        prices += [w.number(2_000, 79_000) for _ in range(w.between(2, 5))]
        prices = w.shuffled(prices)
        shown = [replace(product(w), price=price) for price in prices]
        truth = dollars(min(prices) if end == "lowest" else max(prices))
        body = self.page(w, target, [p.card(w) for p in shown])
        return Draft(w.ask(self.asks, id=target, end=end), truth, body)

    def _prices(self, site: Site) -> list[str]:
        return [text(one(card, ".price")) for card in self.cards(site)]

    def solve(self, site: Site) -> str:
        best = min if self.slots(site)["end"] == "lowest" else max
        return dollars(best(map(cents, self._prices(site))))

    def bug_compared_as_text(self, site: Site) -> str:
        best = min if self.slots(site)["end"] == "lowest" else max
        return best(self._prices(site))


class StructuredOutput(_Shop):
    """One product's facts as a record."""

    id = "mvp.structured_output"
    schema = record(name=STRING, price=STRING, sku=STRING, url=STRING)
    asks = Ask(
        'In the section with id "{id}" one product has the class "{mark}". Give its name, price, '
        "sku, and the href of its link as url.",
        'Describe the "{mark}" product of "{id}": name, price, sku, url (its link\'s href).',
        'Return name, price, sku and link href (as url) of the product in "{id}" that carries '
        'the class "{mark}".',
    )

    def build(self, w: World) -> Draft:
        target, mark = w.ident(), w.pick(("featured", "recommended"))
        other = {"featured": "recommended", "recommended": "featured"}[mark]
        shown = [product(w) for _ in range(w.between(3, 5))]
        chosen = w.pick(shown[1:])
        cards = [p.card(w, mark if p is chosen else other if p is shown[0] else "") for p in shown]
        truth = {
            "name": chosen.name,
            "price": dollars(chosen.price),
            "sku": chosen.sku,
            "url": f"/p/{chosen.sku.lower()}",
        }
        return Draft(w.ask(self.asks, id=target, mark=mark), truth, self.page(w, target, cards))

    def _record(self, card: Tag) -> Json:
        parts = {name: text(one(card, f".{name}")) for name in ("name", "price", "sku")}
        return {**parts, "url": attr(one(card, ".name a"), "href")}

    def solve(self, site: Site) -> Json:
        mark = self.slots(site)["mark"]
        return self._record(next(c for c in self.cards(site) if mark in (c.get("class") or [])))

    def bug_first_product(self, site: Site) -> Json:
        return self._record(self.cards(site)[0])

    def bug_facts_of_different_cards(self, site: Site) -> Json:
        return self._record(self.cards(site)[0]) | {"url": attr(site.one(".name a"), "href")}


class CountElements(_Shop):
    """How many products meet a condition."""

    id = "mvp.count_elements"
    schema = INTEGER
    asks = Ask(
        'How many products in the section with id "{id}" are {rule}?',
        'Count the products in "{id}" that are {rule}.',
        'Return the number of products of "{id}" which are {rule}.',
    )

    def build(self, w: World) -> Draft:
        target, rule = w.ident(), w.pick(("in stock", "rated 4.0 or better"))
        n = w.between(12, 18)
        truth = w.between(2, n - 1)
        good, bad = divided(
            w, lambda p: p.in_stock if rule == "in stock" else p.rating >= 40, truth, n - truth
        )
        shown = w.shuffled([*good, *bad])
        body = self.page(w, target, [p.card(w) for p in shown])
        return Draft(w.ask(self.asks, id=target, rule=rule), truth, body)

    def solve(self, site: Site) -> int:
        stock = self.slots(site)["rule"] == "in stock"
        return sum(
            text(one(card, ".stock")) == "In stock"
            if stock
            else float(text(one(card, ".rating"))) >= 4.0
            for card in self.cards(site)
        )

    def bug_words_contained(self, site: Site) -> int:
        """``Not in stock`` has the words in it too."""
        return sum("in stock" in text(card).lower() for card in self.cards(site))

    def bug_whole_page(self, site: Site) -> int:
        return len(site.soup().select(".product"))
