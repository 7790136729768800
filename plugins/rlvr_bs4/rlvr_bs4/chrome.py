"""Everything on a page that is not its content: navigation, side columns, offers, comments.

Furniture never uses ``h1``, ``main``, ``dl``, ``canvas`` or ``article``, has no ids of the kind
content has, and links only below ``/site/``, where there is no page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random

from rlvr_bs4 import styles
from rlvr_bs4.archetype import Body
from rlvr_bs4.dom import Comment, Element, Node, Raw, h, serialize
from rlvr_bs4.sizes import Size
from rlvr_bs4.world import World

DEAD = "/site/"
"""Targets of the furniture's links; no page is there."""
_REMARKS = (
    "start of region", "end of region", "TODO: move into a partial", "cached fragment",
    "rendered by edge", "slot: sponsor", "legacy markup, do not edit", "A/B: variant B",
)  # fmt: skip


class Chrome:
    """Furnishes the pages of one site in one style."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.world = World(rng, training=True)
        self.style = self.world.pick(styles.STYLES)
        self.build = styles.build_hash(rng)
        self.name = self.world.company()
        self.canaries: list[str] = []

    def page(self, body: Body, size: Size) -> Element:
        """The whole page around its content."""
        if size.name == "bare":
            return h("html", h("head", *body.head), h("body", *body.main), lang="en")
        target = self.rng.randint(size.low, size.high)
        main = self._wrapped(body.main, size)
        before, after = [self._nav(), self._search()], [self._footer()]
        length = sum(len(serialize(part)) for part in (main, *before, *after))
        optional: list[Callable[[], Element]] = [
            self._search, self._side, self._offers, self._comments, self._hours, self._news,
            self._cloud,
        ]  # fmt: skip
        while length < target - 600:
            block = self.world.pick(optional)()
            length += len(serialize(block))
            before.append(block) if self.world.chance(0.4) else after.insert(0, block)
        blocks: list[Node] = [*before, main, *after]
        outer = self._el("div", "wrap", *_lines(blocks))
        if self.style.root:
            outer.attrs["id"] = self.style.root
        head = h("head", *_lines([*self._meta(size), *body.head]))
        self._remark(outer, main, size.comments)
        scripts = [self._script()] if size.name != "small" else []
        return h("html", head, h("body", *_lines([outer, *scripts])), lang="en")

    # -- parts every page has

    def _wrapped(self, blocks: tuple[Node, ...], size: Size) -> Element:
        inner = self._el("div", "wrap", *_lines(blocks))
        for _ in range(self.rng.randint(*size.wraps)):
            style = self.world.pick(styles.STYLES)
            role = self.world.pick(("wrap", "row", "card"))
            inner = Element("div", style.attrs(role, self.build), _lines([inner]))
        return inner

    def _meta(self, size: Size) -> Iterator[Node]:
        yield h("meta", charset="utf-8")
        yield h("title", f"{self.name} - {self.world.title()}")
        yield h("meta", name="description", content=self.world.sentence())
        yield h("link", rel="stylesheet", href=f"/assets/{self.build}.css")
        if size.name != "small":
            yield h("meta", name="viewport", content="width=device-width, initial-scale=1")
            yield h("meta", name="twitter:card", content="summary")
            yield h("style", f".u-{self.build} {{ color: #333 }} .hide-{self.build} {{ top: 0 }}")

    def _nav(self) -> Element:
        links = [self._item() for _ in range(self.rng.randint(3, 7))]
        return self._el("nav", "nav", self._el("ul", "list", *_lines(links)))

    def _footer(self) -> Element:
        note = h("p", f"{self.name}, {self.world.city()}")
        return self._el("footer", "footer", *_lines([self._links(3), note]))

    # -- parts that fill a page

    def _search(self) -> Element:
        secret = self.world.secret()
        self.canaries.append(secret)
        fields: list[Node] = [
            h("input", type="hidden", name="csrf_token", value=secret),
            h("input", type="search", name="q", placeholder="Search"),
            h("button", "Go", type="submit"),
        ]
        form = self._el("form", "form", *_lines(fields))
        form.attrs |= {"action": f"{DEAD}search", "method": "get", "role": "search"}
        return form

    def _side(self) -> Element:
        heading = h("h4", self.world.pick(("Categories", "Recent", "Tags", "Archive")))
        return self._el("aside", "side", *_lines([heading, self._links(self.rng.randint(4, 9))]))

    def _offers(self) -> Element:
        cards = [
            self._el(
                "div",
                "card",
                self._el("h5", "heading", self.world.product()),
                self._el("span", "price", self.world.price()),
                h("img", src=f"/assets/{self.world.path()}.jpg", alt=self.world.phrase()),
            )
            for _ in range(self.rng.randint(2, 5))
        ]
        return self._el("section", "row", *_lines(cards))

    def _comments(self) -> Element:
        posts = []
        for _ in range(self.rng.randint(2, 4)):
            # an end tag left out: the enclosing div ends the paragraph in every parser
            loose = self.world.chance(0.3)
            post = Element("p", {}, [self.world.sentence()], unclosed=loose)
            posts.append(self._el("div", "comment", h("b", self.world.person()), post))
        return self._el("section", "row", *_lines(posts))

    def _hours(self) -> Element:
        days = [
            h("tr", h("th", day), h("td", f"{self.rng.randint(7, 10)}-{self.rng.randint(16, 20)}"))
            for day in ("Mon", "Wed", "Fri")
        ]
        return self._el("div", "card", h("table", h("tbody", *_lines(days))))

    def _news(self) -> Element:
        field = h("input", type="email", name="newsletter_email")
        field.unquoted = self.world.chance(0.5)
        form = self._el("form", "form", field, h("button", "Sign up"))
        form.attrs |= {"action": f"{DEAD}newsletter", "method": "post"}
        return self._el("div", "card", h("p", self.world.sentence()), form)

    def _cloud(self) -> Element:
        words = [self._el("span", "item", self.world.phrase()) for _ in range(6)]
        return self._el("div", "row", *_lines([h("h4", self.world.title()), *words]))

    def _script(self) -> Element:
        data = f'{{"build":"{self.build}","site":"{self.name}"}}'
        return h("script", Raw(f"window.__cfg={data};/* <div>not markup</div> */"))

    # -- pieces

    def _el(self, tag: str, role: str, *kids: Node) -> Element:
        return Element(tag, self.style.attrs(role, self.build), list(kids))

    def _item(self) -> Element:
        link = self._el("a", "link", self.world.phrase().capitalize())
        link.attrs["href"] = f"{DEAD}{self.world.path()}"
        return self._el("li", "item", link)

    def _links(self, n: int) -> Element:
        return self._el("ul", "list", *_lines([self._item() for _ in range(n)]))

    def _remark(self, root: Element, keep: Element, n: int) -> None:
        """Put comments between the furniture's elements; nothing inside ``keep`` is touched."""
        places = [
            element
            for element in _open(root, keep)
            if element.tag in ("div", "section", "nav", "aside", "footer") and len(element.kids) > 1
        ]
        for _ in range(n):
            place = self.world.pick(places)
            place.kids.insert(self.rng.randint(0, len(place.kids)), Comment(self._remark_text()))

    def _remark_text(self) -> str:
        return f"{self.world.pick(_REMARKS)} {self.build}"


def _lines(nodes: Iterable[Node]) -> list[Node]:
    """The nodes, each on a line of its own."""
    lines: list[Node] = ["\n"]
    for node in nodes:
        lines += [node, "\n"]
    return lines


def _open(node: Element, keep: Element) -> Iterator[Element]:
    """Elements of the tree but for one and what is below it."""
    if node is keep:
        return
    yield node
    for kid in node.kids:
        if isinstance(kid, Element):
            yield from _open(kid, keep)
