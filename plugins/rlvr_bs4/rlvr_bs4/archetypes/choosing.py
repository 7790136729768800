"""Choosing the right one of several that look right: labels, selectors, variants."""

from __future__ import annotations

import re
from typing import ClassVar

from rlvr_bs4 import words
from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import Node, h
from rlvr_bs4.schema import STRING, array
from rlvr_bs4.site import Site, attr, one, text
from rlvr_bs4.task import Difficulty
from rlvr_bs4.world import World, dollars


class _Choosing(Archetype):
    category = "advanced"
    difficulty: ClassVar[Difficulty] = "medium"
    phase = 2
    twins = 8
    schema = STRING


class SemanticAmbiguity(_Choosing):
    """One of several prices of a product."""

    id = "mvp.semantic_ambiguity"
    difficulty = "hard"
    asks = Ask(
        'The box with id "{id}" shows several prices. Give the {kind} as written.',
        'Which amount is the {kind} in "{id}"?',
        'Return the {kind} from the box "{id}", as written.',
    )
    _KINDS = ("original price", "sale price", "shipping cost", "tax")

    def build(self, w: World) -> Draft:
        target = w.ident()
        amounts = {kind: w.price() for kind in self._KINDS}
        labels = {
            "original price": ("was", h("s", amounts["original price"])),
            "sale price": ("now", h("strong", amounts["sale price"])),
            "shipping cost": ("shipping", h("span", amounts["shipping cost"])),
            "tax": ("incl. tax of", h("span", amounts["tax"])),
        }
        rows = [
            h("div.line", h("span.label", labels[kind][0]), " ", labels[kind][1])
            for kind in w.shuffled(self._KINDS)
        ]
        kind = w.pick(self._KINDS)
        box = h(f"div#{target}", h("h3", w.product()), h("p.note", f"from {w.price()}"), *rows)
        body = Body((box,), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target, kind=kind), amounts[kind], body)

    def solve(self, site: Site) -> str:
        slots = self.slots(site)
        label = {"original price": "was", "sale price": "now", "shipping cost": "shipping"}
        wanted = label.get(slots["kind"], "incl. tax of")
        lines = site.soup().select(f'[id="{slots["id"]}"] .line')
        line = next(tag for tag in lines if text(one(tag, ".label")) == wanted)
        return text(line).removeprefix(wanted).strip()

    def bug_first_price(self, site: Site) -> str:
        box = site.one(f'[id="{self.slots(site)["id"]}"]')
        return str(re.findall(r"\$[\d.]+", text(box))[0])


class AttributeSelector(_Choosing):
    """An element by an attribute's exact value."""

    id = "mvp.attribute_selector"
    asks = Ask(
        'Give the text of the element whose attribute {name} is exactly "{value}".',
        'Which text has the element with {name} equal to "{value}"?',
        'Return the text of the one element that has {name} set to "{value}".',
    )

    def build(self, w: World) -> Draft:
        name = w.pick(("data-product-id", "name", "href", "data-type"))
        value = {"data-product-id": w.code(), "href": f"/{w.path()}"}.get(name, w.ident())
        tag = "a" if name == "href" else "button" if name == "name" else "div"
        truth, blocks = w.phrase(), []
        for one_value in (f"{value}-{w.word()}", *w.lookalikes(value, 2), value):
            element = h(tag, truth if one_value == value else w.phrase())
            element.attrs[name] = one_value
            blocks.append(h("p", element) if tag != "div" else element)
        body = Body((blocks[0], *w.shuffled(blocks[1:])), claims=(Claim(f'[{name}="{value}"]'),))
        return Draft(w.ask(self.asks, name=name, value=value), truth, body)

    def solve(self, site: Site) -> str:
        slots = self.slots(site)
        return text(site.one(f'[{slots["name"]}="{slots["value"]}"]'))

    def bug_begins_with(self, site: Site) -> str:
        slots = self.slots(site)
        return text(site.one(f'[{slots["name"]}^="{slots["value"]}"]'))


class CssCombinator(_Choosing):
    """The top level of a menu, without its submenus."""

    id = "mvp.css_combinator"
    difficulty = "hard"
    schema = array(STRING, ordered=False)
    asks = Ask(
        'Give the link texts of the top level of the menu with id "{id}", without submenus.',
        'Which entries does the menu "{id}" have on its first level (no submenu entries)?',
        'Return the texts of the first-level links of menu "{id}"; links of submenus do not count.',
    )

    def build(self, w: World) -> Draft:
        target = w.ident()
        truth = [w.phrase().capitalize() for _ in range(w.between(3, 5))]
        items: list[Node] = []
        for index, name in enumerate(truth):
            item = h("li", h("a", name, href=f"/{w.path()}"))
            if index % 2 == 0:
                below = [h("li", h("a", w.phrase(), href=f"/{w.path()}")) for _ in range(2)]
                item.kids.append(h("ul.submenu", *below))
            items.append(item)
        menu = h(f"ul#{target}.main-menu", *items)
        body = Body((h("nav", menu),), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), truth, body)

    def solve(self, site: Site) -> list[str]:
        id = self.slots(site)["id"]
        return [text(a) for a in site.soup().select(f'[id="{id}"] > li > a')]

    def bug_descendants(self, site: Site) -> list[str]:
        return [text(a) for a in site.soup().select(f'[id="{self.slots(site)["id"]}"] li a')]


class ListExtraction(_Choosing):
    """The items of one list among many lists."""

    id = "mvp.list_extraction"
    difficulty = "easy"
    schema = array(STRING, ordered=False)
    asks = Ask(
        'Give the texts of all li in the list of class "item-list" inside the element with id '
        '"{id}".',
        'Which items does the "item-list" in "{id}" have?',
        'Return the texts of the li elements of the "item-list" that is inside "{id}".',
    )

    def build(self, w: World) -> Draft:
        target = w.ident()
        truth = [w.phrase() for _ in range(w.between(4, 8))]
        wanted = h("ul.item-list", *(h("li", h("span", item)) for item in truth))
        beside = h("ul.item-links", *(h("li", w.phrase()) for _ in range(3)))
        outside = h("ul.item-list", *(h("li", w.phrase()) for _ in range(3)))
        box = h(f"div#{target}", *w.shuffled([wanted, beside]))
        body = Body((outside, box), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), truth, body)

    def solve(self, site: Site) -> list[str]:
        id = self.slots(site)["id"]
        return [text(li) for li in site.soup().select(f'[id="{id}"] .item-list li')]

    def bug_every_item(self, site: Site) -> list[str]:
        return [text(li) for li in site.soup().select("li")]

    def bug_first_list_of_the_class(self, site: Site) -> list[str]:
        return [text(li) for li in site.one(".item-list").select("li")]


class RelationalQuery(_Choosing):
    """The amount beside a label, in a table, a definition list or boxes."""

    id = "mvp.relational_query"
    category = "hard"
    difficulty = "hard"
    asks = Ask(
        'In the summary with id "{id}", which amount belongs to the label "{label}"? As written.',
        'Give the amount that the summary "{id}" shows for exactly "{label}".',
        'Return the amount next to the label that reads "{label}" and nothing else, in '
        'summary "{id}".',
    )
    _LABELS = ("Total", "Tax", "Shipping", "Discount")

    def build(self, w: World) -> Draft:
        target, layout = w.ident(), w.pick(("table", "dl", "div"))
        wanted = w.pick(self._LABELS)
        labels = [f"{wanted} before changes", f"Estimated {wanted.lower()}"]
        labels += w.shuffled(self._LABELS)
        rows = []
        for label in labels:
            amount = w.price()
            rows.append((label, f"-{amount}" if label == "Discount" else amount))
        nodes: list[Node] = []
        for label, amount in rows:
            if layout == "table":
                nodes.append(h("tr", h("td", label), h("td", amount)))
            elif layout == "dl":
                nodes += [h("dt", label), h("dd", amount)]
            else:
                nodes.append(h("div.row", h("span", label), h("span", amount)))
        summary = h(f"{layout}#{target}", *nodes)
        body = Body((h("p", w.sentence()), summary), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target, label=wanted), dict(rows)[wanted], body)

    def _amount(self, site: Site, *, exact: bool) -> str:
        slots = self.slots(site)
        cells = [text(t) for t in site.soup().select(f'[id="{slots["id"]}"] :is(td,dt,dd,span)')]
        label = slots["label"]
        at = next(
            i for i, cell in enumerate(cells) if cell == label or (not exact and label in cell)
        )
        return cells[at + 1]

    def solve(self, site: Site) -> str:
        return self._amount(site, exact=True)

    def bug_label_contains(self, site: Site) -> str:
        return self._amount(site, exact=False)


class SemanticDecoyExtreme(_Choosing):
    """The price of one colour and size among variants."""

    id = "mvp.semantic_decoy_extreme"
    category = "hard"
    difficulty = "hard"
    asks = Ask(
        'In the list with id "{id}", what does the variant in {colour} and size {size} cost?',
        'Price of size {size} in {colour}, from the variants in "{id}"?',
        'Return the price of the variant of colour {colour} and size {size} in list "{id}".',
    )

    def build(self, w: World) -> Draft:
        target = w.ident()
        colour, other = w.sample(words.COLOURS, 2)
        size, near = w.sample(words.GARMENT_SIZES, 2)
        first = [(colour, near), (other, size)]
        rest = [(c, s) for c in words.COLOURS for s in words.GARMENT_SIZES]
        rest = [variant for variant in rest if variant not in first and variant != (colour, size)]
        variants = w.shuffled(first) + w.shuffled(
            [(colour, size), *w.sample(rest, w.between(2, 5))]
        )
        prices = {variant: dollars(w.number(900, 9900)) for variant in variants}
        rows = [
            h("li", h("span.c", c), " ", h("span.s", s), " ", h("b", prices[c, s]), data_colour=c)
            for c, s in variants
        ]
        body = Body((h(f"ul#{target}", *rows),), claims=(Claim(f"#{target}"),))
        question = w.ask(self.asks, id=target, colour=colour, size=size)
        return Draft(question, prices[colour, size], body)

    def solve(self, site: Site) -> str:
        slots = self.slots(site)
        for li in site.soup().select(f'[id="{slots["id"]}"] li'):
            if (text(one(li, ".c")), text(one(li, ".s"))) == (slots["colour"], slots["size"]):
                return text(one(li, "b"))
        return ""

    def bug_colour_only(self, site: Site) -> str:
        slots = self.slots(site)
        rows = site.soup().select(f'[id="{slots["id"]}"] li')
        return text(one(next(r for r in rows if attr(r, "data-colour") == slots["colour"]), "b"))
