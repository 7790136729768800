"""Applications that carry their data along: hydration JSON and test ids."""

from __future__ import annotations

import json

from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.archetypes.structured import script_json
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import h
from rlvr_bs4.schema import INTEGER, STRING, record
from rlvr_bs4.site import Site, attr, text
from rlvr_bs4.world import World
from rlvr_core.api import Json


class NextData(Archetype):
    """A record that is only in the hydration JSON of an application."""

    id = "web.next_data"
    category = "structured"
    difficulty = "hard"
    phase = 3
    schema = record(name=STRING, stock=INTEGER)
    asks = Ask(
        'The page is an application whose state is in the script "__NEXT_DATA__". Give name and '
        'stock of the product with sku "{sku}".',
        'Look into "__NEXT_DATA__": which name and stock does the product "{sku}" have?',
        'Return name and stock that the state in "__NEXT_DATA__" has for sku "{sku}".',
    )

    def build(self, w: World) -> Draft:
        items = [
            {"sku": w.code(), "name": w.product(), "stock": w.number(0, 900)}
            for _ in range(w.between(3, 5))
        ]
        chosen = w.pick(items[1:])
        entities = {str(w.number(1000, 9999)): item for item in items}
        state = {
            "props": {"pageProps": {"catalog": {"byId": entities, "order": list(entities)}}},
            "page": "/catalog",
            "query": {"sku": items[0]["sku"]},
        }
        root = h("div#__next", h("div.skeleton", "Loading"), h("noscript", w.sentence()))
        shown = h("div.card", h("h3", str(items[0]["name"])), h("span", "0 left"))
        script = script_json(state, id="__NEXT_DATA__", type="application/json")
        body = Body((root, shown, script), claims=(Claim("#__NEXT_DATA__"),))
        truth = {"name": chosen["name"], "stock": chosen["stock"]}
        return Draft(w.ask(self.asks, sku=str(chosen["sku"])), truth, body)

    def _items(self, site: Site) -> list[Json]:
        state = json.loads(site.one("#__NEXT_DATA__").string or "null")
        return list(state["props"]["pageProps"]["catalog"]["byId"].values())

    def solve(self, site: Site) -> Json:
        sku = self.slots(site)["sku"]
        item = next(item for item in self._items(site) if item["sku"] == sku)
        return {"name": item["name"], "stock": item["stock"]}

    def bug_first_record(self, site: Site) -> Json:
        item = self._items(site)[0]
        return {"name": item["name"], "stock": item["stock"]}

    def bug_what_is_shown(self, site: Site) -> Json:
        return {"name": text(site.one(".card h3")), "stock": 0}


class DataTestid(Archetype):
    """Selecting by test ids where classes are hashes of the build."""

    id = "web.data_testid"
    twins = 8
    category = "core"
    difficulty = "medium"
    phase = 3
    schema = record(title=STRING, price=STRING)
    asks = Ask(
        'Give title and price of the card whose data-testid is "{name}"; its parts have the '
        "test ids product-title and product-price.",
        'From the card with the test id "{name}": the text of product-title and of product-price.',
        "Return product-title and product-price (data-testid) of the card with data-testid "
        '"{name}".',
    )

    def build(self, w: World) -> Draft:
        name, cards = w.ident(), []
        for one_name in [w.ident(), *w.lookalikes(name, 2), name]:
            values = {"title": w.product(), "price": w.price()}
            old = h(f"s.{w.klass()}", w.price(), data_testid="product-price-old")
            title = h(f"div.{w.klass()}", values["title"], data_testid="product-title")
            price = h(f"div.{w.klass()}", values["price"], data_testid="product-price")
            cards.append((h(f"div.{w.klass()}", title, old, price, data_testid=one_name), values))
        truth = cards[-1][1]
        blocks = tuple(card for card, _ in (cards[0], *w.shuffled(cards[1:])))
        body = Body(blocks, claims=(Claim(f'[data-testid="{name}"]'),))
        return Draft(w.ask(self.asks, name=name), truth, body)

    def solve(self, site: Site) -> Json:
        name = self.slots(site)["name"]
        card = site.soup().select(f'[data-testid="{name}"] [data-testid]')
        parts = {attr(tag, "data-testid"): text(tag) for tag in card}
        return {"title": parts["product-title"], "price": parts["product-price"]}

    def bug_first_card(self, site: Site) -> Json:
        title = site.one('[data-testid="product-title"]')
        return {"title": text(title), "price": text(site.one('[data-testid="product-price"]'))}

    def bug_test_id_begins_with(self, site: Site) -> Json:
        name = self.slots(site)["name"]
        card = site.soup().select(f'[data-testid="{name}"] [data-testid^="product-"]')
        return {"title": text(card[0]), "price": text(card[1])}
