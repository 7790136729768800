"""Primers: short documents that teach parse, select, extract."""

from __future__ import annotations

from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import h
from rlvr_bs4.schema import INTEGER, STRING
from rlvr_bs4.site import Site, attr, one, text
from rlvr_bs4.world import World


class _Primer(Archetype):
    category = "primer"
    difficulty = "primer"
    phase = 1
    schema = STRING
    twins = 8


class ExtractById(_Primer):
    """The text of the element with an id."""

    id = "primer.extract_by_id"
    asks = Ask(
        'What is the text of the element with id "{id}"?',
        'Read the element "#{id}".',
        'One element has the id "{id}". Give its text.',
    )

    def build(self, w: World) -> Draft:
        target, truth = w.ident(), w.word()
        others = [h(f"span#{w.ident()}", w.word()) for _ in range(w.between(1, 2))]
        line = h("p", *others, h(f"span#{target}", truth))
        body = Body((line,), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), truth, body)

    def solve(self, site: Site) -> str:
        return text(site.one(f'[id="{self.slots(site)["id"]}"]'))

    def bug_first_of_the_tag(self, site: Site) -> str:
        return text(site.one("span"))


class ExtractByClass(_Primer):
    """The text of the element with a class."""

    id = "primer.extract_by_class"
    asks = Ask(
        'What is the text of the element with class "{name}"?',
        'Read ".{name}".',
        'One element has the class "{name}". Give its text.',
    )

    def build(self, w: World) -> Draft:
        target, truth = w.klass(), w.word()
        others = [h(f"div.{w.klass()}", w.word()) for _ in range(w.between(1, 2))]
        body = Body((*others, h(f"div.{target}", truth)), claims=(Claim(f".{target}"),))
        return Draft(w.ask(self.asks, name=target), truth, body)

    def solve(self, site: Site) -> str:
        return text(site.one(f".{self.slots(site)['name']}"))

    def bug_first_div(self, site: Site) -> str:
        return text(site.one("div"))


class ExtractByTag(_Primer):
    """The text of the only element with a tag."""

    id = "primer.extract_by_tag"
    twins = 0
    asks = Ask(
        "What does the {tag} element say?",
        "What is the text of the only {tag} element?",
        "Give the text of the {tag}.",
    )
    _TAGS = ("h1", "h2", "h6", "code", "q", "dfn", "kbd", "samp", "var", "cite", "mark", "ins")

    def build(self, w: World) -> Draft:
        tags = w.sample(self._TAGS, 10)
        texts = {tag: w.phrase() for tag in tags}
        wanted = w.pick(tags[1:])
        blocks = tuple(
            h(tag, phrase) if tag[0] == "h" else h("p", h(tag, phrase))
            for tag, phrase in texts.items()
        )
        body = Body(blocks, claims=(Claim(wanted),))
        return Draft(w.ask(self.asks, tag=wanted), texts[wanted], body)

    def solve(self, site: Site) -> str:
        return text(site.one(self.slots(site)["tag"]))

    def bug_first_of_any_tag(self, site: Site) -> str:
        return text(site.one(", ".join(self._TAGS)))


class ExtractAttribute(_Primer):
    """Where a link leads."""

    id = "primer.extract_attribute"
    asks = Ask(
        'What is the href of the link with id "{id}"?',
        'Where does the link "#{id}" lead?',
        'Give the href of the a element whose id is "{id}".',
    )

    def build(self, w: World) -> Draft:
        target, truth = w.ident(), f"/{w.path()}/{w.word()}"
        other = h(f"a#{w.ident()}", w.word(), href=f"/{w.path()}")
        link = h(f"a#{target}", w.word(), href=truth)
        body = Body((h("p", other, " ", link),), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), truth, body)

    def solve(self, site: Site) -> str:
        return attr(site.one(f'[id="{self.slots(site)["id"]}"]'), "href")

    def bug_text_instead(self, site: Site) -> str:
        return text(site.one(f'[id="{self.slots(site)["id"]}"]'))


class CountElements(_Primer):
    """How many items a list has."""

    id = "primer.count_elements"
    schema = INTEGER
    asks = Ask(
        'How many li elements are in the list with id "{id}"?',
        'Count the items of "#{id}".',
        'Give the number of li elements inside "{id}".',
    )

    def build(self, w: World) -> Draft:
        target, n = w.ident(), w.between(2, 12)
        items = [h("li", w.word()) for _ in range(n)]
        other = h("ul", *(h("li", w.word()) for _ in range(w.between(1, 3))))
        body = Body((other, h(f"ul#{target}", *items)), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), n, body)

    def solve(self, site: Site) -> int:
        return len(one(site.soup(), f'[id="{self.slots(site)["id"]}"]').select("li"))

    def bug_whole_page(self, site: Site) -> int:
        return len(site.soup().select("li"))
