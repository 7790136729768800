"""Data that the HTML may lack: fetched, pictured, painted, embedded.

Half of the tasks of each kind can be solved: the same page with the data in a place where a
careful reader finds it. What tells the two apart is the data, never the shape of the page.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from typing import ClassVar

from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import Comment, Node, Raw, h
from rlvr_bs4.schema import STRING
from rlvr_bs4.site import Site, attr, one, text
from rlvr_bs4.task import Abstain, Difficulty, Limit
from rlvr_bs4.world import World
from rlvr_core.api import Json


class MaybeAbsent(Archetype):
    """A kind of task of which half cannot be answered from the HTML."""

    category = "limitation"
    difficulty: ClassVar[Difficulty] = "medium"
    phase = 1
    schema = STRING
    abstains = True
    twins = 8
    reason = "javascript_required"

    def build(self, w: World) -> Draft:
        return self.make(w, solvable=w.chance(0.5))

    @abstractmethod
    def make(self, w: World, *, solvable: bool) -> Draft:
        """The task, or its twin."""

    def draft(
        self, w: World, target: str, truth: str, span: str, blocks: tuple[Node, ...], solvable: bool
    ) -> Draft:
        """A draft whose truth depends on whether it can be solved."""
        body = Body(blocks, claims=(Claim(f"#{target}"),))
        question = w.ask(self.asks, id=target)
        if solvable:
            return Draft(question, truth, body)
        return Draft(question, None, body, limit=Limit(self.reason, (span,)))

    def bug_abstains_without_proof(self, site: Site) -> Json | Abstain:
        return Abstain(self.reason, "<body>")

    def bug_abstains_with_the_whole_page(self, site: Site) -> Json | Abstain:
        return Abstain(self.reason, site.html)

    def bug_says_what_is_in_the_box(self, site: Site) -> Json | Abstain:
        return text(site.one(f'[id="{self.slots(site)["id"]}"]'))


def scripts(site: Site) -> str:
    """The text of all scripts of a page."""
    return "\n".join(script.string or "" for script in site.soup().select("script"))


def encoded(w: World, truth: str) -> str:
    """A text as code has it: as it is, as character codes, or as escapes."""
    match w.between(0, 2):
        case 0:
            return json.dumps(truth)
        case 1:
            return f"String.fromCharCode({','.join(str(ord(letter)) for letter in truth)})"
        case _:
            return '"' + "".join(f"\\u{ord(letter):04x}" for letter in truth) + '"'


def decoded(code: str) -> str:
    """The text that ``encoded`` wrote."""
    if match := re.fullmatch(r"String\.fromCharCode\(([\d,]+)\)", code):
        return "".join(chr(int(number)) for number in match[1].split(","))
    return str(json.loads(code))


class JsRequired(MaybeAbsent):
    """A price that a script puts in, from its own text or from elsewhere."""

    id = "mvp.limit_js_required"
    asks = Ask(
        'What price does the product box with id "{id}" show once the page has loaded?',
        'Give the price of the product in "{id}".',
        'Return the price of the product that is shown in the box "{id}".',
    )

    def make(self, w: World, *, solvable: bool) -> Draft:
        target, truth, code = w.ident(), w.price(), w.word()
        box = h(f"div#{target}", h("h3", w.product()), h("span.price", "Loading…"))
        address = f"/api/{w.path()}/{w.number(1000, 9999)}.json"
        source = encoded(w, truth) if solvable else f'load("{address}")'
        other = f"/api/{w.path()}/{w.number(1000, 9999)}.json"
        script = f'fill("{w.ident()}", load("{other}"));\n/* {code} */ fill("{target}", {source});'
        blocks = (box, h("noscript", w.sentence()), h("script", Raw(f"\n{script}\n")))
        return self.draft(w, target, truth, address, blocks, solvable)

    def solve(self, site: Site) -> Json | Abstain:
        id = self.slots(site)["id"]
        match = re.search(rf'fill\("{id}", (.*)\);', scripts(site))
        assert match is not None
        if match[1].startswith("load"):
            return Abstain(self.reason, match[0])
        return decoded(match[1])


class ImageText(MaybeAbsent):
    """What a sign in a picture says, if anything but the picture says it."""

    id = "mvp.limit_image_text"
    reason = "image_text"
    asks = Ask(
        'What is written on the sign shown in the figure with id "{id}"?',
        'The figure "{id}" shows a sign. Which words are on it?',
        'Return the words on the sign in figure "{id}".',
    )

    def make(self, w: World, *, solvable: bool) -> Draft:
        target, truth = w.ident(), w.phrase().upper()
        path = f"/media/{w.path()}-{w.number(100, 999)}.png"
        says = f'The sign says "{truth}".' if solvable else "The sign by the door."
        in_alt = w.chance(0.5)
        image = h("img", src=path, alt=says if in_alt else "A sign")
        caption = h("figcaption", f"Photo: {w.person()}." if in_alt else says)
        other = h("figure", h("img", src=f"/media/{w.path()}.png", alt=w.phrase()))
        blocks = (other, h(f"figure#{target}", image, caption))
        return self.draft(w, target, truth, path, blocks, solvable)

    def solve(self, site: Site) -> Json | Abstain:
        figure = site.one(f'[id="{self.slots(site)["id"]}"]')
        image = one(figure, "img")
        match = re.search(r'says "(.+?)"', f"{attr(image, 'alt')} {text(figure)}")
        return match[1] if match else Abstain(self.reason, attr(image, "src"))


class CanvasText(MaybeAbsent):
    """A number painted on a canvas, by a call that names it or from a picture."""

    id = "mvp.limit_canvas_text"
    difficulty = "hard"
    reason = "canvas_text"
    asks = Ask(
        'Which code does the canvas with id "{id}" show?',
        'A code is painted on the canvas "{id}". What is it?',
        'Return the code that is painted on canvas "{id}".',
    )

    def make(self, w: World, *, solvable: bool) -> Draft:
        target, truth, name = w.ident(), w.code(), w.word()
        sheet = f"/media/{w.path()}-{w.number(100, 999)}.png"
        paint = f"fillText({encoded(w, truth)}, 20, 40)"
        if not solvable:
            paint = f'drawImage(picture("{sheet}"), 20, 40)'
        lines = [
            f'var {name} = document.getElementById("{target}").getContext("2d");',
            f"{name}.fillRect({w.between(1, 9)}, 0, 200, 80);",
            f"{name}.{paint};",
            f'other.fillText("{w.code()}", 5, 5);',
        ]
        script = h("script", Raw("\n" + "\n".join(lines) + "\n"))
        canvas = h(f"canvas#{target}", width="200", height="80")
        return self.draft(w, target, truth, sheet, (canvas, script), solvable)

    def solve(self, site: Site) -> Json | Abstain:
        id = self.slots(site)["id"]
        code = scripts(site)
        context = re.search(rf'var (\w+) = document.getElementById\("{id}"\)', code)
        assert context is not None
        calls = re.findall(rf"{context[1]}\.((?:fillText|drawImage)\(.*\));", code)
        if match := re.match(r"fillText\((.*), 20, 40\)", calls[0]):
            return decoded(match[1])
        return Abstain(self.reason, calls[0])

    def bug_first_text_painted(self, site: Site) -> str:
        return str(re.findall(r'other\.fillText\("(.*?)"', site.html)[0])


class PdfEmbed(MaybeAbsent):
    """A figure in an embedded document, or in what stands in for it."""

    id = "mvp.limit_pdf_embed"
    difficulty = "hard"
    reason = "document_embed"
    asks = Ask(
        'Which order number does the data sheet embedded with id "{id}" state?',
        'Give the order number from the data sheet in "{id}".',
        'Return the order number of the data sheet embedded at "{id}".',
    )

    def make(self, w: World, *, solvable: bool) -> Draft:
        target, truth = w.ident(), w.code()
        path = f"/files/{w.path()}-{w.number(100, 999)}.pdf"
        says = (
            f"Data sheet, order number {truth}." if solvable else "This data sheet is a PDF file."
        )
        inside: Node = h("p", says)
        if w.chance(0.5):
            frame = h(f"object#{target}", inside, data=path, type="application/pdf")
        else:
            frame = h(f"div#{target}", h("embed", src=path, type="application/pdf"), inside)
        note = h("p", f"Call us with order number {w.code()} at hand.")
        return self.draft(w, target, truth, path, (note, frame, Comment(w.phrase())), solvable)

    def solve(self, site: Site) -> Json | Abstain:
        frame = site.one(f'[id="{self.slots(site)["id"]}"]')
        if match := re.search(r"order number ([A-Z]{2}-\d{4})", text(frame)):
            return match[1]
        embed = frame.select_one("embed")
        return Abstain(self.reason, attr(embed, "src") if embed else attr(frame, "data"))

    def bug_order_number_anywhere(self, site: Site) -> Json:
        numbers = re.findall(r"order number ([A-Z]{2}-\d{4})", site.html)
        return numbers[0]
