"""Answers that are some pages away; every link of the content leads somewhere."""

from __future__ import annotations

from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import Element, Node, h
from rlvr_bs4.schema import INTEGER, MONEY, STRING, record
from rlvr_bs4.site import Site, attr, one, text
from rlvr_bs4.task import Par
from rlvr_bs4.world import World, cents, dollars
from rlvr_core.api import Json


class _Journey(Archetype):
    category = "hard"
    difficulty = "hard"
    phase = 2
    schema = STRING

    def links(self, w: World, links: dict[str, str]) -> Element:
        """A list of links by text; ids and classes do not tell them apart."""
        return h("ul.links", *(h("li", h("a", name, href=href)) for name, href in links.items()))

    def facts(self, facts: dict[str, str]) -> Element:
        """A definition list."""
        rows: list[Node] = []
        for label, value in facts.items():
            rows += [h("dt", label), h("dd", value), "\n"]
        return h("dl.facts", *rows)

    def fact(self, site: Site, label: str) -> str:
        """The value of a label on the current page."""
        for dt in site.soup().select("dl.facts dt"):
            if text(dt) == label and (dd := dt.find_next_sibling("dd")) is not None:
                return text(dd)
        return ""

    def follow(self, site: Site, name: str) -> None:
        """Go where the link with exactly this text leads."""
        link = next(a for a in site.soup().select(".links a") if text(a) == name)
        site.go(attr(link, "href"))


class SearchThenDetail(_Journey):
    """A fact of a product that only its own page has."""

    id = "mvp.search_then_detail"
    asks = Ask(
        'Find the product "{name}" in the list and give the {what} that its own page states.',
        'Open the page of exactly "{name}". What is its {what}?',
        'Return the {what} that is stated on the page of the product called exactly "{name}".',
    )
    _FACTS = ("Manufacturer", "Warranty", "SKU")

    def build(self, w: World) -> Draft:
        name, what = w.product(), w.pick(self._FACTS)
        others = [w.product() for _ in range(w.between(2, 5))]
        names = [f"{name} Pro", *w.shuffled([name, f"{name} Mini", *others])]
        paths = {one_name: f"/p/{w.path()}" for one_name in names}
        values = {
            one_name: dict(
                zip(self._FACTS, (w.company(), f"{w.number(6, 90)} months", w.code()), strict=True)
            )
            for one_name in names
        }
        more = {
            paths[one_name]: Body(
                (h("h1", one_name), self.facts(values[one_name]), h("a", "Back", href="/list"))
            )
            for one_name in names
        }
        start = Body((h("h1", w.title()), self.links(w, paths)), claims=(Claim("h1"),))
        question = w.ask(self.asks, name=name, what=what)
        return Draft(question, values[name][what], start, more, "/list", par=Par(2, 1))

    def solve(self, site: Site) -> str:
        slots = self.slots(site)
        self.follow(site, slots["name"])
        return self.fact(site, slots["what"])

    def bug_first_link_that_has_the_name(self, site: Site) -> str:
        slots = self.slots(site)
        link = next(a for a in site.soup().select(".links a") if slots["name"] in text(a))
        site.go(attr(link, "href"))
        return self.fact(site, slots["what"])

    def bug_start_page_only(self, site: Site) -> str:
        return self.fact(site, self.slots(site)["what"])


class PaginationAggregate(_Journey):
    """The lowest or highest price over all pages of a list."""

    id = "mvp.pagination_aggregate"
    schema = MONEY
    asks = Ask(
        'The list with id "{id}" goes over several pages. What is the {end} price on all of them?',
        'Go through all pages of list "{id}" and give the {end} price.',
        'Return the {end} price in list "{id}", all of its pages taken together.',
    )

    def build(self, w: World) -> Draft:
        target, end = w.ident(), w.pick(("lowest", "highest"))
        n, bodies = w.between(2, 4), {}
        pages = [[w.number(3_000, 60_000) for _ in range(w.between(7, 9))] for _ in range(n)]
        best = w.number(500, 2_900) if end == "lowest" else w.number(61_000, 99_000)
        pages[-1][w.between(0, len(pages[-1]) - 1)] = best
        for at, prices in enumerate(pages, 1):
            rows = [h("li", h("b", w.product()), " ", h("i", dollars(price))) for price in prices]
            pager = [h("a", str(k), href=f"?page={k}") for k in range(1, n + 1) if k != at]
            if at < n:
                pager.append(h("a", "Next", href=f"?page={at + 1}", rel="next"))
            listing = h(f"ul#{target}", *rows)
            outside = h("p", f"From {dollars(99)} in our other shop")
            main = (listing, h("div.pager", *pager), outside)
            bodies[f"/items?page={at}"] = Body(main, claims=(Claim(f"#{target}"),))
        start = bodies.pop("/items?page=1")
        question = w.ask(self.asks, id=target, end=end)
        return Draft(question, dollars(best), start, bodies, "/items?page=1", par=Par(n, n - 1))

    def _prices(self, site: Site) -> list[int]:
        tags = site.soup().select(f'[id="{self.slots(site)["id"]}"] i')
        return [cents(text(tag)) for tag in tags]

    def solve(self, site: Site) -> str:
        prices = self._prices(site)
        while (link := site.soup().select_one('.pager a[rel="next"]')) is not None:
            site.go(attr(link, "href"))
            prices += self._prices(site)
        return dollars((min if self.slots(site)["end"] == "lowest" else max)(prices))

    def bug_first_page_only(self, site: Site) -> str:
        return dollars((min if self.slots(site)["end"] == "lowest" else max)(self._prices(site)))


class LinkChain(_Journey):
    """From category to subcategory to product."""

    id = "mvp.link_chain"
    asks = Ask(
        'Go from "{category}" to "{sub}" to "{name}" and give the {what} on that product\'s page.',
        'What is the {what} of "{name}", under "{sub}" in "{category}"?',
        'Return the {what} of the product "{name}" that is listed under "{sub}", itself under '
        '"{category}".',
    )
    _FACTS = ("Price", "SKU", "Rating")

    def build(self, w: World) -> Draft:
        more: dict[str, Body] = {}
        product, what = w.product(), w.pick(self._FACTS)
        names = {key: w.title() for key in ("category", "sub")}
        truth, start_links = "", {}
        for category in w.shuffled([names["category"], w.title()]):
            start_links[category] = f"/c/{w.path()}"
            # the subcategory asked for is there twice, once in the wrong category
            pair = w.shuffled([names["sub"], w.title()])
            subs = {sub: f"{start_links[category]}/{w.path()}" for sub in pair}
            more[start_links[category]] = Body((h("h1", category), self.links(w, subs)))
            for sub, path in subs.items():
                wanted = category == names["category"] and sub == names["sub"]
                # the same name is on sale elsewhere too, at another price
                items = [f"{product} XL", w.product(), product]
                paths = {item: f"/p/{w.path()}" for item in items}
                more[path] = Body((h("h1", sub), self.links(w, paths)))
                for item in items:
                    rating = f"{w.between(1, 4)}.{w.between(0, 9)}"
                    facts = dict(zip(self._FACTS, (w.price(), w.code(), rating), strict=True))
                    more[paths[item]] = Body((h("h1", item), self.facts(facts)))
                    truth = facts[what] if wanted and item == product else truth
        start = Body((h("h1", w.company()), self.links(w, start_links)), claims=(Claim("h1"),))
        question = w.ask(self.asks, name=product, what=what, **names)
        return Draft(question, truth, start, more, "/", par=Par(4, 3))

    def solve(self, site: Site) -> str:
        slots = self.slots(site)
        for name in (slots["category"], slots["sub"], slots["name"]):
            self.follow(site, name)
        return self.fact(site, slots["what"])

    def bug_first_link_each_time(self, site: Site) -> str:
        for _ in range(3):
            site.go(attr(site.one(".links a"), "href"))
        return self.fact(site, self.slots(site)["what"])


class CompareProducts(_Journey):
    """Which of two products is cheaper, by the prices on their own pages."""

    id = "mvp.compare_products"
    schema = record(cheaper=STRING, price_difference=MONEY)
    asks = Ask(
        'Compare the prices on the own pages of "{one}" and "{two}": which is cheaper (its name), '
        "and by how much?",
        'Open both products, "{one}" and "{two}". Name the cheaper one and the price difference.',
        'By the prices on their own pages, return the cheaper one of "{one}" and "{two}", and '
        "the difference.",
    )

    def build(self, w: World) -> Draft:
        names = [w.product(), w.product()]
        prices = [w.number(2_000, 50_000), w.number(2_000, 50_000)]
        paths = [f"/p/{w.path()}", f"/p/{w.path()}"]
        # the list shows prices of last year, which rank the other way round
        old = [prices[1] + 100 * w.between(1, 5), prices[0] + 100 * w.between(1, 5)]
        cards = [
            h("div.card", self.links(w, {name: path}), h("s", dollars(price)), h("p", "last year"))
            for name, path, price in zip(names, paths, old, strict=True)
        ]
        more = {
            path: Body((h("h1", name), self.facts({"Price": dollars(price), "SKU": w.code()})))
            for name, path, price in zip(names, paths, prices, strict=True)
        }
        cheaper = names[prices.index(min(prices))]
        truth = {"cheaper": cheaper, "price_difference": dollars(abs(prices[0] - prices[1]))}
        start = Body((h("h1", w.title()), *cards), claims=(Claim("h1"),))
        question = w.ask(self.asks, one=names[0], two=names[1])
        return Draft(question, truth, start, more, "/compare", par=Par(3, 3))

    def solve(self, site: Site) -> Json:
        slots = self.slots(site)
        prices: dict[str, int] = {}
        for name in (slots["one"], slots["two"]):
            if prices:
                site.go("/compare")
            self.follow(site, name)
            prices[name] = cents(self.fact(site, "Price"))
        return self._verdict(prices)

    def _verdict(self, prices: dict[str, int]) -> Json:
        low, high = sorted(prices.values())
        cheaper = min(prices, key=lambda name: prices[name])
        return {"cheaper": cheaper, "price_difference": dollars(high - low)}

    def bug_prices_of_the_list(self, site: Site) -> Json:
        cards = site.soup().select(".card")
        return self._verdict({text(one(c, "a")): cents(text(one(c, "s"))) for c in cards})


class PaginationTrap(_Journey):
    """Pages that go round in a circle and repeat an item."""

    id = "web.pagination_trap"
    phase = 3
    schema = INTEGER
    asks = Ask(
        'The list with id "{id}" goes over several pages, and the last links on to the first. How '
        "many different items, by data-sku, are on all pages?",
        'Count the different data-sku in list "{id}" over all its pages; items may be repeated, '
        "and the pages go round in a circle.",
        'Return how many distinct data-sku the list "{id}" has on all its pages together; the '
        "last page leads back to the first.",
    )

    def build(self, w: World) -> Draft:
        target, n = w.ident(), w.between(2, 4)
        pages = [[w.code() for _ in range(w.between(2, 5))] for _ in range(n)]
        truth = sum(map(len, pages))
        sponsored, bodies = w.code(), {}
        for at, skus in enumerate(pages, 1):
            shown = [*skus, sponsored, *([pages[at - 2][0]] if at > 1 else [])]
            rows = [h("li", h("b", w.product()), data_sku=sku) for sku in w.shuffled(shown)]
            following = at % n + 1
            pager = h("div.pager", h("a", "Next", href=f"?page={following}", rel="next"))
            main = (h("h1", w.title()), h(f"ul#{target}", *rows), pager)
            bodies[f"/items?page={at}"] = Body(main, claims=(Claim(f"#{target}"),))
        start = bodies.pop("/items?page=1")
        question = w.ask(self.asks, id=target)
        return Draft(question, truth + 1, start, bodies, "/items?page=1", par=Par(n, n))

    def _skus(self, site: Site) -> list[str]:
        rows = site.soup().select(f'[id="{self.slots(site)["id"]}"] li')
        return [attr(row, "data-sku") for row in rows]

    def _walk(self, site: Site) -> list[str]:
        skus: list[str] = []
        seen: set[str] = set()
        while site.url not in seen:
            seen.add(site.url)
            skus += self._skus(site)
            site.go(attr(site.one('.pager a[rel="next"]'), "href"))
        return skus

    def solve(self, site: Site) -> int:
        return len(set(self._walk(site)))

    def bug_repeated_items_counted(self, site: Site) -> int:
        return len(self._walk(site))

    def bug_first_page_only(self, site: Site) -> int:
        return len(set(self._skus(site)))
