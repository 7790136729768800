"""Depth: the innermost box, and trees that depend on the parser."""

from __future__ import annotations

from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import Element, Node, h
from rlvr_bs4.schema import STRING, array
from rlvr_bs4.site import Site, text
from rlvr_bs4.world import World


class DeepNesting(Archetype):
    """The text in the innermost of many boxes."""

    id = "mvp.deep_nesting_extraction"
    twins = 8
    category = "advanced"
    difficulty = "medium"
    phase = 2
    schema = STRING
    asks = Ask(
        'Boxes are nested inside the element with id "{id}". Give the text of the span that is '
        "nested deepest.",
        'Which text is in the most deeply nested span of "{id}"?',
        'Return the text of the span with the most ancestors inside "{id}".',
    )

    def build(self, w: World) -> Draft:
        target, truth = w.ident(), w.phrase()
        inner: Node = h("div", h("div", h("span", truth)))
        for level in range(w.between(4, 6)):
            kids = [h("div", inner)]
            if level == 0 or w.chance(0.6):
                kids.insert(w.between(0, 1), h("div", h("span", w.phrase())))
            inner = h("div", *kids) if w.chance(0.3) else h("div", *kids, h("span", w.phrase()))
        block = h(f"div#{target}", h("span", w.phrase()), inner, h("p", h("span", w.phrase())))
        body = Body((block,), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), truth, body)

    def solve(self, site: Site) -> str:
        spans = site.soup().select(f'[id="{self.slots(site)["id"]}"] span')
        return text(max(spans, key=lambda span: len(list(span.parents))))

    def bug_first_span(self, site: Site) -> str:
        return text(site.soup().select(f'[id="{self.slots(site)["id"]}"] span')[0])

    def bug_last_span(self, site: Site) -> str:
        return text(site.soup().select(f'[id="{self.slots(site)["id"]}"] span')[-1])


class ParserDifferences(Archetype):
    """What a named parser makes of end tags that are left out."""

    id = "mvp.parser_differences"
    twins = 8
    category = "advanced"
    difficulty = "hard"
    phase = 2
    schema = array(STRING)
    asks = Ask(
        'The end tags of the {tag} elements in the div with id "{id}" are left out. As '
        'BeautifulSoup(HTML, "html.parser") builds the tree, what is the text of each {tag} there?',
        'With Python\'s "html.parser", which ends no {tag} before its parent ends, what does each '
        '{tag} in the div "{id}" hold, in order, inner elements included?',
        'Parse the page with "html.parser". Return the full text of every {tag} inside the '
        'div "{id}", in order; their end tags are missing.',
    )

    def build(self, w: World) -> Draft:
        target, tag = w.ident(), w.pick(("p", "li"))
        texts = [w.phrase() for _ in range(w.between(2, 4))]
        open_tags: list[Node] = []
        for phrase in texts:
            open_tags += [Element(tag, {}, [phrase], unclosed=True, unquoted=True), "\n"]
        inside: list[Node] = [h("ul", *open_tags)] if tag == "li" else open_tags
        block = h(f"div#{target}", *inside)
        # html.parser ends a p or li only where its parent ends: each holds all that follow
        truth = [" ".join(texts[index:]) for index in range(len(texts))]
        body = Body((block, h("p", w.sentence())), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target, tag=tag), truth, body)

    def solve(self, site: Site) -> list[str]:
        slots = self.slots(site)
        tags = site.soup("html.parser").select(f'[id="{slots["id"]}"] {slots["tag"]}')
        return [text(tag) for tag in tags]

    def bug_as_a_browser(self, site: Site) -> list[str]:
        """Browsers and lxml end an element where the next one of its kind begins."""
        slots = self.slots(site)
        tags = site.soup("html.parser").select(f'[id="{slots["id"]}"] {slots["tag"]}')
        return [str(tag.contents[0]).strip() for tag in tags]
