"""Data that pages carry for machines: JSON-LD, microdata, Open Graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import ClassVar

from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import Element, Node, Raw, h
from rlvr_bs4.schema import STRING, record
from rlvr_bs4.site import Site, attr, one, text
from rlvr_bs4.task import Difficulty
from rlvr_bs4.world import World
from rlvr_core.api import Json

_LD = "application/ld+json"


class _Structured(Archetype):
    category = "structured"
    difficulty: ClassVar[Difficulty] = "medium"
    phase = 1
    schema = STRING


def script_json(value: Json, **attrs: str) -> Element:
    """JSON in a script that no text of it can close."""
    body = json.dumps(value, indent=1, ensure_ascii=False).replace("</", "<\\/")
    return h("script", Raw(f"\n{body}\n"), **attrs)


def _product(w: World) -> Json:
    offer = {"@type": "Offer", "price": w.price()[1:], "priceCurrency": w.pick(("USD", "EUR"))}
    brand = {"@type": "Brand", "name": w.company()}
    return {
        "@type": "Product",
        "name": w.product(),
        "sku": w.code(),
        "brand": brand,
        "offers": offer,
    }


def _article(w: World) -> Json:
    author = {"@type": "Person", "name": w.person()}
    date = f"20{w.between(10, 25)}-0{w.between(1, 9)}-{w.between(10, 28)}"
    return {"@type": "Article", "headline": w.sentence(), "author": author, "datePublished": date}


def _recipe(w: World) -> Json:
    food = {"@type": "NutritionInformation", "calories": f"{w.number(90, 900)} kcal"}
    return {
        "@type": "Recipe",
        "name": w.title(),
        "cookTime": f"PT{w.number(5, 90)}M",
        "nutrition": food,
    }


def _business(w: World) -> Json:
    address = {"@type": "PostalAddress", "addressLocality": w.city(), "postalCode": w.code()}
    phone = f"+1-555-{w.number(1000, 9999)}"
    return {"@type": "LocalBusiness", "name": w.company(), "telephone": phone, "address": address}


def _organization(w: World) -> Json:
    founder = {"@type": "Person", "name": w.person()}
    return {"@type": "Organization", "legalName": w.company(), "founder": founder}


_MAKERS: tuple[Callable[[World], Json], ...] = (
    _product,
    _article,
    _recipe,
    _business,
    _organization,
)


def _paths(value: Json, before: str = "") -> list[str]:
    """Dotted paths to the texts of a block."""
    paths = []
    for key, one_value in value.items():
        if isinstance(one_value, dict):
            paths += _paths(one_value, f"{before}{key}.")
        elif not key.startswith("@"):
            paths.append(before + key)
    return paths


def _at(value: Json, path: str) -> Json:
    for key in path.split("."):
        value = value[key]
    return value


class JsonLd(_Structured):
    """One field of a JSON-LD block among several blocks."""

    id = "mvp.json_ld_extraction"
    asks = Ask(
        'The page has JSON-LD blocks. What is "{path}" of the one of type "{kind}"? Give it as '
        "written there.",
        'From the "{kind}" block of the page\'s JSON-LD, give the value at "{path}" as written.',
        'Return the value at "{path}" in the JSON-LD block whose type is "{kind}", as it is '
        "written.",
    )

    def build(self, w: World) -> Draft:
        makers = w.sample(_MAKERS, w.between(2, 4))
        blocks: list[Json] = [{"@context": "https://schema.org", **make(w)} for make in makers]
        if not w.training or w.chance(0.3):
            blocks[0]["description"] = f"{w.sentence()} </script> is escaped <b>here</b>"
        target = blocks[-1]
        # an earlier block has a field of the same name, where fields are looked for by name alone
        path = w.pick(_paths(target))
        blocks[0] |= {} if "." in path or path in blocks[0] else {path: w.phrase()}
        question = w.ask(self.asks, path=path, kind=str(target["@type"]))
        head = tuple(script_json(block, type=_LD) for block in blocks)
        body = Body((h("p", w.sentence()),), head, (Claim(f'[type="{_LD}"]', len(blocks)),))
        return Draft(question, _at(target, path), body)

    def _blocks(self, site: Site) -> list[Json]:
        scripts = site.soup().find_all("script", type=_LD)
        return [json.loads(one_tag.string or "null") for one_tag in scripts]

    def solve(self, site: Site) -> str:
        slots = self.slots(site)
        block = next(block for block in self._blocks(site) if block["@type"] == slots["kind"])
        return str(_at(block, slots["path"]))

    def bug_first_block(self, site: Site) -> str:
        return str(_at(self._blocks(site)[0], self.slots(site)["path"]))


class JsonLdArray(_Structured):
    """A field of one type where several nodes share a block."""

    id = "mvp.json_ld_array"
    difficulty = "hard"
    phase = 2
    asks = Ask(
        'In the page\'s JSON-LD several nodes share blocks. What is "{path}" of the "{kind}" '
        "node, as written?",
        'Find the JSON-LD node of type "{kind}", wherever it is nested, and give its "{path}".',
        'Return "{path}" of the "{kind}" node in the JSON-LD of this page, as it is written.',
    )

    def build(self, w: World) -> Draft:
        nodes = [make(w) for make in w.shuffled(_MAKERS)]
        target = nodes[-1]
        path = w.pick(_paths(target))
        listed, graph = nodes[:2], {"@context": "https://schema.org", "@graph": nodes[2:]}
        scripts = [script_json(listed, type=_LD), script_json(graph, type=_LD)]
        head = tuple(w.shuffled(scripts))
        body = Body((h("p", w.sentence()),), head, (Claim(f'[type="{_LD}"]', 2),))
        question = w.ask(self.asks, path=path, kind=str(target["@type"]))
        return Draft(question, _at(target, path), body)

    def solve(self, site: Site) -> str:
        slots = self.slots(site)
        for script in site.soup().find_all("script", type=_LD):
            block = json.loads(script.string or "null")
            nodes = block if isinstance(block, list) else block["@graph"]
            for node in nodes:
                if node["@type"] == slots["kind"]:
                    return str(_at(node, slots["path"]))
        return ""

    def bug_one_node_per_block(self, site: Site) -> str:
        slots = self.slots(site)
        for script in site.soup().find_all("script", type=_LD):
            block = json.loads(script.string or "null")
            node = block[0] if isinstance(block, list) else block["@graph"][0]
            if node["@type"] == slots["kind"]:
                return str(_at(node, slots["path"]))
        return ""


class Microdata(_Structured):
    """Properties of one item, not those of the item nested in it."""

    id = "web.microdata"
    twins = 8
    phase = 3
    schema = record(name=STRING, price=STRING, rating=STRING)
    asks = Ask(
        'From the microdata item with id "{id}" give its own name, and the price and the '
        "ratingValue of the items nested in it, as written (content attributes count).",
        'Read the microdata of "{id}": its own name, its offer\'s price, its ratingValue.',
        'Return name, price and ratingValue that the microdata item "{id}" has: the name its '
        "own, the others from within.",
    )

    def build(self, w: World) -> Draft:
        target = w.ident()
        truth = {
            "name": w.product(),
            "price": w.price()[1:],
            "rating": f"{w.between(1, 4)}.{w.between(1, 9)}",
        }
        brand = h("div", h("span", w.company(), itemprop="name"), itemprop="brand", itemscope=None)
        offer = h(
            "div",
            h("span", f"from {w.price()}", itemprop="price", content=truth["price"]),
            itemprop="offers",
            itemscope=None,
        )
        rating = h(
            "p", "rated ", h("b", truth["rating"], itemprop="ratingValue"), itemprop="review"
        )
        name = h("h3", truth["name"], itemprop="name")
        item = h(f"div#{target}", brand, name, offer, rating, itemscope=None, itemtype="Product")
        other = h("div", h("h3", w.product(), itemprop="name"), itemscope=None, itemtype="Product")
        body = Body((other, item), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), truth, body)

    def solve(self, site: Site) -> Json:
        item = site.one(f'[id="{self.slots(site)["id"]}"]')
        name = next(
            tag
            for tag in item.select('[itemprop="name"]')
            if tag.find_parent(itemscope=True) is item
        )
        price, rating = one(item, '[itemprop="price"]'), one(item, '[itemprop="ratingValue"]')
        return {"name": text(name), "price": attr(price, "content"), "rating": text(rating)}

    def bug_first_name_and_visible_price(self, site: Site) -> Json:
        item = site.one(f'[id="{self.slots(site)["id"]}"]')
        properties = {"name": "name", "price": "price", "rating": "ratingValue"}
        return {key: text(one(item, f'[itemprop="{prop}"]')) for key, prop in properties.items()}


class OpenGraph(_Structured):
    """A property of the page's Open Graph tags."""

    id = "web.opengraph"
    phase = 3
    asks = Ask(
        'What is the Open Graph property "{name}" of the page?',
        'Give the content of the meta tag with the property "{name}".',
        'Return what the page says in its Open Graph tag "{name}".',
    )

    def build(self, w: World) -> Draft:
        title = w.title()
        known = {
            "og:title": title,
            "og:description": w.sentence(),
            "og:image": f"https://cdn.example/{w.path()}.jpg",
            "og:site_name": w.company(),
            "og:url": f"https://{w.path()}.example/{w.path()}",
            "og:video": f"https://cdn.example/{w.path()}-{w.path()}.mp4",
            "og:audio": f"https://cdn.example/{w.path()}.mp3",
            "og:type": w.word(),
            "og:determiner": w.sentence(),
            "og:section": w.sentence(),
        }
        wanted = w.pick(list(known))
        metas: list[Node] = [h("meta", name=wanted, content=w.phrase())]
        metas += w.shuffled(
            [h("meta", property=key, content=value) for key, value in known.items()]
        )
        metas.insert(1, h("meta", property=wanted.replace("og:", "twitter:"), content=w.phrase()))
        main = (h("h1", w.title()), h("p", w.sentence()))
        body = Body(main, tuple(metas), (Claim(f'[property="{wanted}"]'),))
        return Draft(w.ask(self.asks, name=wanted), known[wanted], body)

    def solve(self, site: Site) -> str:
        return attr(site.one(f'meta[property="{self.slots(site)["name"]}"]'), "content")

    def bug_name_attribute(self, site: Site) -> str:
        meta = site.soup().find("meta", attrs={"name": self.slots(site)["name"]})
        return str(meta["content"]) if meta is not None else ""

    def bug_visible_heading(self, site: Site) -> str:
        return text(site.one("h1"))
