"""Where Beautiful Soup surprises: class lists, white space between tags, strings without tags."""

from __future__ import annotations

from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import Comment, Node, h
from rlvr_bs4.schema import STRING
from rlvr_bs4.site import Site, attr, text
from rlvr_bs4.world import World


class _Gotcha(Archetype):
    category = "gotcha"
    difficulty = "medium"
    phase = 1
    twins = 8
    schema = STRING


class MultivalueClass(_Gotcha):
    """One of several classes of an element."""

    id = "mvp.multivalue_class"
    asks = Ask(
        'Give the text of the div that has "{name}" among its classes.',
        'Which text is in the div with the class token "{name}"?',
        'Return the text of the one div among whose classes is "{name}".',
    )

    def build(self, w: World) -> Draft:
        name, truth = w.klass(), w.sentence()
        tokens = [w.klass() for _ in range(w.between(2, 3))]
        tokens.insert(w.between(0, len(tokens)), name)
        target = h("div", truth, class_=" ".join(tokens))
        near = [
            h("div", w.sentence(), class_=f"{w.klass()} {near_name}")
            for near_name in w.lookalikes(name, 2)
        ]
        first = h("div", w.sentence(), class_=f"{name}-{w.word()}", data_class=name)
        blocks = (first, *w.shuffled([target, *near]))
        return Draft(w.ask(self.asks, name=name), truth, Body(blocks, claims=(Claim(f".{name}"),)))

    def solve(self, site: Site) -> str:
        return text(site.one(f"div.{self.slots(site)['name']}"))

    def bug_class_is_a_string(self, site: Site) -> str:
        name = self.slots(site)["name"]
        return next(
            (text(div) for div in site.soup().select("div") if div.get("class") == name), ""
        )

    def bug_class_contains(self, site: Site) -> str:
        name = self.slots(site)["name"]
        return next(text(div) for div in site.soup().select("div") if name in attr(div, "class"))


class WhitespaceSibling(_Gotcha):
    """The next element, behind the white space that is the next sibling."""

    id = "mvp.whitespace_sibling"
    asks = Ask(
        'Give the text of the element that follows the element with id "{id}" on the same level.',
        'What does the next sibling element of "{id}" say?',
        'An element has the id "{id}". Return the text of the element after it under the same '
        "parent.",
    )

    def build(self, w: World) -> Draft:
        target, n = w.ident(), w.between(4, 6)
        at = w.between(0, n - 2)
        texts = [w.phrase() for _ in range(n)]
        items: list[Node] = []
        for index, phrase in enumerate(texts):
            items += ["\n    ", h(f"li#{target}" if index == at else "li", phrase)]
            if index == at and w.chance(0.5):
                items += ["\n    ", Comment(w.phrase())]
        body = Body((h("ul", *items, "\n"),), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), texts[at + 1], body)

    def solve(self, site: Site) -> str:
        sibling = site.one(f'[id="{self.slots(site)["id"]}"]').find_next_sibling(True)
        return text(sibling) if sibling is not None else ""

    def bug_next_sibling(self, site: Site) -> str:
        return str(site.one(f'[id="{self.slots(site)["id"]}"]').next_sibling).strip()


class NavigablestringParent(_Gotcha):
    """The parent of a text that a comment and near misses have as well."""

    id = "mvp.navigablestring_parent"
    asks = Ask(
        'One element has exactly the text "{mark}". What is its {what}?',
        'Find the visible text "{mark}" (nothing more, nothing less) and give the {what} of the '
        "element around it.",
        'Return the {what} of the element whose whole text is "{mark}".',
    )

    def build(self, w: World) -> Draft:
        mark, what = w.sentence(), w.pick(("tag name", "id", "class"))
        tag, id, name = w.pick(("p", "span", "td", "h3", "em")), w.ident(), w.klass()
        inner: Node = h(f"{tag}#{id}.{name}", mark)
        if tag == "td":
            inner = h("table", h("tr", inner))
        decoy = h(f"blockquote#{w.ident()}.{w.klass()}", Comment(mark), w.sentence())
        near = [h(f"div#{w.ident()}.{w.klass()}", f"{mark} {w.word()}")]
        near.append(h(f"div#{w.ident()}.{w.klass()}", mark[:-1]))
        truth = {"tag name": tag, "id": id, "class": name}[what]
        blocks = (h("section", decoy), *w.shuffled([*near, inner]))
        body = Body(blocks, claims=(Claim(f"#{id}"), Claim(f".{name}")))
        return Draft(w.ask(self.asks, mark=mark, what=what), truth, body)

    def solve(self, site: Site) -> str:
        slots = self.slots(site)
        for tag in site.soup().find_all(True):
            if tag.find(True) is None and tag.get_text().strip() == slots["mark"]:
                return tag.name if slots["what"] == "tag name" else attr(tag, slots["what"])
        return ""

    def bug_comment_is_a_string_too(self, site: Site) -> str:
        slots = self.slots(site)
        string = next(
            string for string in site.soup().find_all(string=True) if slots["mark"] in str(string)
        )
        tag = string.parent
        assert tag is not None
        return tag.name if slots["what"] == "tag name" else attr(tag, slots["what"])


class SiblingNavigation(_Gotcha):
    """The value of a label in a definition list where some labels have two values."""

    id = "mvp.sibling_navigation"
    category = "advanced"
    phase = 2
    asks = Ask(
        'In the definition list with id "{id}", what is the first value after the label "{label}"?',
        'Look up "{label}" in the list "{id}": its first value?',
        'Return the first dd that belongs to the dt "{label}" in list "{id}".',
    )
    _LABELS = ("Material", "Origin", "Weight", "Warranty", "Finish", "Maker")

    def build(self, w: World) -> Draft:
        target = w.ident()
        labels = w.sample(self._LABELS, 4)
        values = {label: [w.phrase()] for label in labels}
        values[labels[0]].append(w.phrase())
        wanted = w.pick(labels[1:])
        rows: list[Node] = []
        for label in labels:
            rows += ["\n  ", h("dt", label)]
            rows += [node for value in values[label] for node in ("\n  ", h("dd", value))]
        other = h("dl", h("dt", wanted), h("dd", w.phrase()))
        body = Body((other, h(f"dl#{target}", *rows, "\n")), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target, label=wanted), values[wanted][0], body)

    def solve(self, site: Site) -> str:
        slots = self.slots(site)
        for dt in site.soup().select(f'[id="{slots["id"]}"] dt'):
            if text(dt) == slots["label"] and (dd := dt.find_next_sibling("dd")) is not None:
                return text(dd)
        return ""

    def bug_labels_and_values_zipped(self, site: Site) -> str:
        slots = self.slots(site)
        box = site.one(f'[id="{slots["id"]}"]')
        pairs = zip(box.select("dt"), box.select("dd"), strict=False)
        return {text(dt): text(dd) for dt, dd in pairs}[slots["label"]]

    def bug_first_on_the_page(self, site: Site) -> str:
        label = self.slots(site)["label"]
        dt = next(dt for dt in site.soup().select("dt") if text(dt) == label)
        dd = dt.find_next_sibling("dd")
        return text(dd) if dd is not None else ""
