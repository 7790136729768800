"""Core extraction: texts, attributes, links and images among look-alikes."""

from __future__ import annotations

from rlvr_bs4 import words
from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import Node, h
from rlvr_bs4.schema import STRING, array, record
from rlvr_bs4.site import Site, attr, one, text
from rlvr_bs4.world import World

_TAGS = ("p", "div", "span", "section", "strong", "em", "h3")


class _Core(Archetype):
    category = "core"
    phase = 1
    twins = 8
    schema = STRING


def _sentence(w: World) -> str:
    """A sentence; one in five has foreign words or an emoji in it."""
    extra = ""
    if w.chance(0.2):
        language = w.pick(list(words.LANGUAGES))
        extra = f" {w.pick(words.LANGUAGES[language])} {w.pick(words.EMOJI)}"
    return w.sentence() + extra


class TextById(_Core):
    """The text of the element with an id, behind look-alike ids."""

    id = "mvp.extract_text_by_id"
    difficulty = "easy"
    asks = Ask(
        'Extract the text of the element whose id is "{id}".',
        'What does the element with the id "{id}" say?',
        'Give the text content of the element identified by "{id}".',
    )

    def build(self, w: World) -> Draft:
        target, truth, tag = w.ident(), _sentence(w), w.pick(_TAGS)
        near = h(f"{tag}#{target}-{w.word()}", truth[:-1] + " today.")
        like = [h(f"{tag}#{name}", _sentence(w)) for name in w.lookalikes(target, 3)]
        last = like.pop()
        blocks = [near, *w.shuffled([*like, h(f"{tag}#{target}", truth)]), last]
        body = Body(tuple(blocks), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), truth, body)

    def solve(self, site: Site) -> str:
        return text(site.one(f'[id="{self.slots(site)["id"]}"]'))

    def bug_id_begins_with(self, site: Site) -> str:
        return text(site.one(f'[id^="{self.slots(site)["id"]}"]'))


class TextByClass(_Core):
    """The text of the element with a class, behind look-alike classes."""

    id = "mvp.extract_text_by_class"
    difficulty = "easy"
    asks = Ask(
        'Extract the text of the element that has the class "{name}".',
        'What does the element of class "{name}" say?',
        'One element carries the class "{name}". Give its text.',
    )

    def build(self, w: World) -> Draft:
        target, truth, tag = w.klass(), _sentence(w), w.pick(_TAGS)
        near = h(f"{tag}.{target}-{w.word()}", _sentence(w))
        like = [h(f"{tag}.{name}", _sentence(w)) for name in w.lookalikes(target, 3)]
        blocks = [near, *w.shuffled([*like, h(f"{tag}.{target}", truth)])]
        body = Body(tuple(blocks), claims=(Claim(f".{target}"),))
        return Draft(w.ask(self.asks, name=target), truth, body)

    def solve(self, site: Site) -> str:
        return text(site.one(f".{self.slots(site)['name']}"))

    def bug_class_contains(self, site: Site) -> str:
        return text(site.one(f'[class*="{self.slots(site)["name"]}"]'))


class ExtractAttribute(_Core):
    """One attribute of an element, not its text."""

    id = "mvp.extract_attribute"
    difficulty = "easy"
    asks = Ask(
        'What is the value of the attribute "{name}" of the element with id "{id}"?',
        'Read the attribute "{name}" of the element "{id}".',
        'The element with id "{id}" has an attribute "{name}". Give its value.',
    )

    def build(self, w: World) -> Draft:
        name = w.pick(("href", "src", "data-id", "data-value", "title", "alt"))
        tag = {"href": "a", "src": "img", "alt": "img"}.get(name, "div")
        target, values = w.ident(), [self._value(w, name) for _ in range(4)]
        ids = [w.ident(), target, *w.lookalikes(target, 2)]
        blocks = []
        for one_id, value in zip(ids, values, strict=True):
            inside: list[Node] = [] if tag == "img" else [w.phrase()]
            element = h(f"{tag}#{one_id}", *inside)
            element.attrs[name] = value
            blocks.append(h("p", element) if tag != "div" else element)
        body = Body(tuple(blocks), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, name=name, id=target), values[1], body)

    def _value(self, w: World, name: str) -> str:
        match name:
            case "href":
                return f"/{w.path()}?ref={w.number(100, 999)}&view={w.word()}"
            case "src":
                return f"/media/{w.path()}.png"
            case "data-id" | "data-value":
                return w.pick((w.code(), str(w.number(1000, 99999))))
            case _:
                return w.phrase()

    def solve(self, site: Site) -> str:
        slots = self.slots(site)
        return attr(site.one(f'[id="{slots["id"]}"]'), slots["name"])

    def bug_first_that_has_it(self, site: Site) -> str:
        name = self.slots(site)["name"]
        return attr(site.one(f"[{name}]"), name)

    def bug_text_instead(self, site: Site) -> str:
        return text(site.one(f'[id="{self.slots(site)["id"]}"]'))


class ExtractLinks(_Core):
    """All links of one navigation."""

    id = "mvp.extract_links"
    difficulty = "medium"
    schema = array(record(text=STRING, href=STRING))
    asks = Ask(
        'List every link inside the nav with id "{id}" in document order, each as its text and '
        "its href as written.",
        'Which links does the navigation "{id}" have? Give text and href of each, in order.',
        'Return text and href of all links in nav "{id}", as they come in the document.',
    )

    def build(self, w: World) -> Draft:
        target = w.ident()
        truth = [
            {"text": w.phrase().capitalize(), "href": self._href(w)} for _ in range(w.between(3, 5))
        ]
        links: list[Node] = []
        for link in truth:
            links += ["\n  ", h("li", h("a", f" {link['text']}\n", href=link["href"]))]
        outside = [h("p", w.sentence(), " ", h("a", w.phrase(), href=self._href(w)))]
        outside += [h(f"nav#{w.ident()}", h("a", w.phrase(), href=self._href(w)))]
        nav = h(f"nav#{target}", h("ul", *links, "\n"))
        body = Body((outside[0], nav, outside[1]), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), truth, body)

    def _href(self, w: World) -> str:
        forms = (
            f"/{w.path()}",
            f"{w.path()}.html",
            f"https://{w.path()}.example/?a=1&b={w.word()}",
        )
        return w.pick(forms)

    def _links(self, site: Site, css: str) -> list[dict[str, str]]:
        links = site.soup().select(css)
        return [{"text": text(a), "href": attr(a, "href")} for a in links]

    def solve(self, site: Site) -> list[dict[str, str]]:
        return self._links(site, f'[id="{self.slots(site)["id"]}"] a')

    def bug_whole_page(self, site: Site) -> list[dict[str, str]]:
        return self._links(site, "a")


class ExtractImages(_Core):
    """All images of a gallery, also those without alternative text."""

    id = "mvp.extract_images"
    difficulty = "medium"
    schema = array(record(src=STRING, alt=STRING))
    asks = Ask(
        'List the images inside the element with id "{id}" in document order with src and alt; '
        'an image without alt has "" there.',
        'Which images are in "{id}"? Give src and alt of each in order, "" where alt is missing.',
        'For every img inside "{id}", in document order, return src and alt; a missing alt is "".',
    )

    def build(self, w: World) -> Draft:
        target, n = w.ident(), w.between(2, 4)
        without = w.between(0, n - 1)
        truth, images = [], []
        for index in range(n):
            alt = "" if index == without else w.phrase()
            image = h("img", src=f"/media/{w.path()}.jpg")
            if alt or w.chance(0.3):
                image.attrs["alt"] = alt
            if w.chance(0.5):
                image.attrs["width"] = str(w.number(100, 900))
            truth.append({"src": str(image.attrs["src"]), "alt": alt})
            images.append(h("figure", image) if w.chance(0.5) else image)
        if "alt" in images[without].attrs:
            del images[without].attrs["alt"]
        ad = h("div.sponsor", h("img", src=f"/ads/{w.path()}.gif", alt=w.phrase()))
        gallery = h(f"div#{target}", *images)
        body = Body(tuple(w.shuffled([ad, gallery])), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), truth, body)

    def _images(self, site: Site, css: str) -> list[dict[str, str]]:
        return [{"src": attr(i, "src"), "alt": attr(i, "alt")} for i in site.soup().select(css)]

    def solve(self, site: Site) -> list[dict[str, str]]:
        return self._images(site, f'[id="{self.slots(site)["id"]}"] img')

    def bug_only_with_alt(self, site: Site) -> list[dict[str, str]]:
        images = one(site.soup(), f'[id="{self.slots(site)["id"]}"]').select("img[alt]")
        return [{"src": attr(i, "src"), "alt": attr(i, "alt")} for i in images if attr(i, "alt")]

    def bug_whole_page(self, site: Site) -> list[dict[str, str]]:
        return self._images(site, "img")
