"""Moving through the tree: children, descendants, siblings, ancestors, document order."""

from __future__ import annotations

from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import Node, h
from rlvr_bs4.schema import STRING, array
from rlvr_bs4.site import Site, attr, one, text
from rlvr_bs4.world import World


class _Traversal(Archetype):
    category = "traversal"
    difficulty = "medium"
    phase = 1
    twins = 8
    schema = STRING


class DirectChildren(_Traversal):
    """Only the direct children, not what is nested deeper."""

    id = "mvp.direct_children"
    schema = array(STRING)
    asks = Ask(
        'Give the texts of the "div.item" elements that are direct children of the element with '
        'id "{id}", in order.',
        'Which "div.item" are immediate children of "{id}"? Give their texts in order.',
        'Return the texts of the "div.item" children of "{id}", grandchildren and deeper ones '
        "left out, in order.",
    )

    def build(self, w: World) -> Draft:
        target = w.ident()
        truth = [w.phrase() for _ in range(w.between(3, 5))]
        direct: list[Node] = [h("div.item", phrase) for phrase in truth]
        nested = h("div.group", *(h("div.item", w.phrase()) for _ in range(3)))
        direct.insert(w.between(0, len(direct)), nested)
        body = Body((h(f"div#{target}", *direct),), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), truth, body)

    def _items(self, site: Site, *, recursive: bool) -> list[str]:
        box = site.one(f'[id="{self.slots(site)["id"]}"]')
        return [text(item) for item in box.find_all("div", class_="item", recursive=recursive)]

    def solve(self, site: Site) -> list[str]:
        return self._items(site, recursive=False)

    def bug_all_descendants(self, site: Site) -> list[str]:
        return self._items(site, recursive=True)


class DescendantsFilter(_Traversal):
    """Items whose text has a word in it."""

    id = "mvp.descendants_filter"
    schema = array(STRING)
    asks = Ask(
        'Which li elements below the element with id "{id}" contain the word "{word}"? Give their '
        "full texts in order.",
        'Give, in order, the full texts of the li inside "{id}" that have the word "{word}".',
        'Inside "{id}", return the full text of each li in which the word "{word}" occurs, in '
        "order.",
    )

    def build(self, w: World) -> Draft:
        target, word = w.ident(), w.word()
        with_it = [f"{w.phrase()} {word}", f"{word} and {w.phrase()}", f"a {word}"]
        others = [w.phrase() for _ in range(3)]
        items = w.shuffled(with_it + others)
        nodes: list[Node] = []
        for one_text in items:
            head, _, tail = one_text.rpartition(" ")
            nodes.append(h("li", head, " ", h("em", tail)) if head else h("li", one_text))
        outside = h("ul", h("li", f"{word} of {w.phrase()}"))
        box = h(f"div#{target}", h("ul", *nodes[:3]), h("ol", *nodes[3:]))
        body = Body(tuple(w.shuffled([outside, box])), claims=(Claim(f"#{target}"),))
        truth = [item for item in items if word in item.split()]
        return Draft(w.ask(self.asks, id=target, word=word), truth, body)

    def solve(self, site: Site) -> list[str]:
        slots = self.slots(site)
        items = site.soup().select(f'[id="{slots["id"]}"] li')
        return [text(li) for li in items if slots["word"] in text(li).split()]

    def bug_string_argument(self, site: Site) -> list[str]:
        """``string=`` looks at tags with a single string only."""
        slots = self.slots(site)
        box = site.one(f'[id="{slots["id"]}"]')
        return [text(li) for li in box.find_all("li", string=slots["word"])]

    def bug_whole_page(self, site: Site) -> list[str]:
        word = self.slots(site)["word"]
        return [text(li) for li in site.soup().select("li") if word in text(li)]


class PreviousSibling(_Traversal):
    """The element before another one."""

    id = "web.previous_sibling"
    phase = 3
    asks = Ask(
        'Give the text of the element right before the element with id "{id}", on the same level.',
        'What does the previous sibling element of "{id}" say?',
        'An element has the id "{id}". Return the text of the element before it under the '
        "same parent.",
    )

    def build(self, w: World) -> Draft:
        target, n = w.ident(), w.between(4, 6)
        at = w.between(2, n - 1)
        texts = [w.phrase() for _ in range(n)]
        rows: list[Node] = []
        for index, one_text in enumerate(texts):
            rows += ["\n  ", h(f"div#{target}" if index == at else "div", h("b", one_text))]
        body = Body((h("section", *rows, "\n"),), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), texts[at - 1], body)

    def solve(self, site: Site) -> str:
        tag = site.one(f'[id="{self.slots(site)["id"]}"]').find_previous_sibling(True)
        return text(tag) if tag is not None else ""

    def bug_previous_sibling_is_white_space(self, site: Site) -> str:
        return str(site.one(f'[id="{self.slots(site)["id"]}"]').previous_sibling).strip()

    def bug_first_sibling(self, site: Site) -> str:
        parent = site.one(f'[id="{self.slots(site)["id"]}"]').parent
        return text(parent.select("div")[0]) if parent is not None else ""


class ClosestAncestor(_Traversal):
    """The nearest ancestor of a kind, not the nearest one at all nor the farthest."""

    id = "web.closest_ancestor"
    phase = 3
    asks = Ask(
        'What is the "data-region" of the nearest section around the element with id "{id}"?',
        'Going up from "{id}", which "data-region" does the first section have?',
        'Return the "data-region" of the closest enclosing section of "{id}".',
    )

    def build(self, w: World) -> Draft:
        target, regions = w.ident(), [w.word() for _ in range(3)]
        inner: Node = h(f"em#{target}", w.phrase())
        inner = h("div", h("p", inner), data_region=w.word())
        inner = h("section", h("h3", w.title()), inner, data_region=regions[0])
        inner = h("section", h("section", w.word(), data_region=w.word()), inner)
        inner.attrs["data-region"] = regions[1]
        body = Body((h("section", inner, data_region=regions[2]),), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), regions[0], body)

    def solve(self, site: Site) -> str:
        section = site.one(f'[id="{self.slots(site)["id"]}"]').find_parent("section")
        return attr(section, "data-region") if section is not None else ""

    def bug_any_tag(self, site: Site) -> str:
        ancestor = site.one(f'[id="{self.slots(site)["id"]}"]').find_parent(
            attrs={"data-region": True}
        )
        return attr(ancestor, "data-region") if ancestor is not None else ""

    def bug_farthest(self, site: Site) -> str:
        sections = site.one(f'[id="{self.slots(site)["id"]}"]').find_parents("section")
        return attr(sections[-1], "data-region")


class DocumentOrder(_Traversal):
    """The next element of a kind in document order, which is no sibling."""

    id = "web.document_order"
    phase = 3
    asks = Ask(
        'Give the text of the first "p.note" that comes after the element with id "{id}" in the '
        "document.",
        'Reading on from "{id}", what does the next "p.note" say?',
        'Return the text of the "p.note" that follows "{id}" soonest in document order.',
    )

    def build(self, w: World) -> Draft:
        target, truth = w.ident(), w.sentence()
        earlier = h("div", h("p.note", w.sentence()), h("p", w.sentence()))
        anchor = h("div", h("p.note", w.sentence()), h(f"h3#{target}", w.title()), h("p", w.word()))
        follows = h("div", h("p", w.sentence()), h("div", h("p.note", truth)))
        sibling = h("p.note", w.sentence())
        blocks = (earlier, anchor, follows, sibling)
        body = Body((h("section", *blocks),), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), truth, body)

    def solve(self, site: Site) -> str:
        note = site.one(f'[id="{self.slots(site)["id"]}"]').find_next("p", class_="note")
        return text(note) if note is not None else ""

    def bug_siblings_only(self, site: Site) -> str:
        tag = site.one(f'[id="{self.slots(site)["id"]}"]')
        note = tag.find_next_sibling("p", class_="note")
        return text(note) if note is not None else ""

    def bug_first_of_the_page(self, site: Site) -> str:
        return text(site.one("p.note"))


class Breadcrumbs(_Traversal):
    """The trail of a page without its separators."""

    id = "web.breadcrumbs"
    phase = 3
    schema = array(STRING)
    asks = Ask(
        'Give the steps of the breadcrumb trail with id "{id}" from first to last, the current '
        "page included, without separators.",
        'Which steps does the trail "{id}" show, the current page last? Leave separators out.',
        'Return the names of all steps in the breadcrumbs "{id}", the current page last and '
        "no separators.",
    )

    def build(self, w: World) -> Draft:
        target, mark = w.ident(), w.pick(("|", "/", "»", ">"))
        truth = [w.phrase().capitalize() for _ in range(w.between(3, 5))]
        steps: list[Node] = []
        for step in truth[:-1]:
            link = h("a", step, href=f"/{w.path()}")
            separator = h("span.sep", mark, aria_hidden="true")
            steps += [h("li", link, " ", separator), "\n"]
        steps.append(h("li", h("span", truth[-1], aria_current="page")))
        other = h("nav", h("a", w.phrase(), href=f"/{w.path()}"))
        trail = h(f"nav#{target}", h("ol", *steps), aria_label="Breadcrumb")
        body = Body((other, trail), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), truth, body)

    def solve(self, site: Site) -> list[str]:
        trail = site.one(f'[id="{self.slots(site)["id"]}"]')
        return [text(one(li, "a, [aria-current]")) for li in trail.select("li")]

    def bug_links_only(self, site: Site) -> list[str]:
        return [text(a) for a in site.soup().select(f'[id="{self.slots(site)["id"]}"] a')]

    def bug_with_separators(self, site: Site) -> list[str]:
        return [text(li) for li in site.soup().select(f'[id="{self.slots(site)["id"]}"] li')]
