"""Pages that stand between a visitor and the data: shells, challenges, lost characters.

As in ``limits``, half of the tasks of each kind can be solved.
"""

from __future__ import annotations

import json
import re

from rlvr_bs4.archetype import Draft
from rlvr_bs4.archetypes.limits import MaybeAbsent
from rlvr_bs4.archetypes.structured import script_json
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import Comment, Element, Node, h
from rlvr_bs4.site import Site, attr, one, text
from rlvr_bs4.task import Abstain
from rlvr_bs4.world import World
from rlvr_core.api import Json


class SpaShell(MaybeAbsent):
    """An application whose page is empty until its bundle has run, or has its state along."""

    id = "web.spa_shell"
    phase = 3
    asks = Ask(
        'Which headline does the application mounted at "{id}" show?',
        'What is the headline of the app in the element "{id}"?',
        'Return the headline of the application that is mounted at "{id}".',
    )

    def make(self, w: World, *, solvable: bool) -> Draft:
        target, truth = w.ident(), w.sentence()
        bundle = f"/assets/{w.path()}.{w.secret()[:8]}.js"
        state = {
            "locale": w.pick(("en", "de")),
            "user": w.person(),
            "view": {"headline": truth} if solvable else {"route": f"/{w.path()}"},
        }
        root = h(f"div#{target}", h("div.spinner", aria_label=w.phrase()))
        data = script_json(state, type="application/json", data_for=target)
        noscript = h("noscript", "Enable scripts to see this page.")
        loader = h("script", defer=None, src=bundle, data_mount=target)
        return self.draft(w, target, truth, bundle, (root, noscript, data, loader), solvable)

    def solve(self, site: Site) -> Json | Abstain:
        soup, id = site.soup(), self.slots(site)["id"]
        state = json.loads(one(soup, f'[data-for="{id}"]').string or "null")
        if "headline" in state["view"]:
            return str(state["view"]["headline"])
        return Abstain(self.reason, attr(one(soup, f'[data-mount="{id}"]'), "src"))


class Captcha(MaybeAbsent):
    """A challenge in place of the data, or beside it."""

    id = "web.captcha"
    phase = 3
    reason = "access_blocked"
    asks = Ask(
        'What is the reference number in the box with id "{id}"?',
        'Give the reference number that "{id}" shows.',
        'Return the reference number from the box "{id}".',
    )

    def make(self, w: World, *, solvable: bool) -> Draft:
        target, truth = w.ident(), w.code()
        key = f"{w.word()}-{w.secret()}"
        challenge = h("div.challenge", h("p", "Show that you are human"), data_sitekey=key)
        if solvable:
            box = h(f"div#{target}", h("p", f"Reference number: {truth}"), h("p", w.sentence()))
            use = h("form", h("p", "Leave a comment"), challenge)
        else:
            box = h(f"div#{target}", challenge, h("p", "The content appears after the check."))
            use = h("form", h("p", f"Incident number: {w.code()}"))
        return self.draft(w, target, truth, key, (box, use), solvable)

    def solve(self, site: Site) -> Json | Abstain:
        box = site.one(f'[id="{self.slots(site)["id"]}"]')
        if text(first := one(box, "p")).startswith("Reference number: "):
            return text(first).split()[-1]
        return Abstain(self.reason, attr(one(box, "[data-sitekey]"), "data-sitekey"))

    def bug_some_number(self, site: Site) -> Json:
        numbers = re.findall(r"Incident number: (\S+?)<", site.html)
        return numbers[0] if numbers else ""


class EncodingLost(MaybeAbsent):
    """A code whose letters were lost, unless an attribute still has them."""

    id = "web.encoding_lost"
    difficulty = "hard"
    phase = 3
    reason = "encoding_lost"
    asks = Ask(
        'Which stock code, with all its letters, does the row with id "{id}" have?',
        'Give the complete stock code of the row "{id}".',
        'Return the stock code of row "{id}" in full.',
    )
    _LETTERS = "БГДЖЗИЛПФЦЧШЩЭЮЯ"

    def make(self, w: World, *, solvable: bool) -> Draft:
        target = w.ident()
        truth = self._code(w)
        shown = re.sub(r"[^\d-]", "\ufffd", truth)
        intact = truth if solvable else w.code()
        row: Element = h(f"tr#{target}", h("td", w.product()), h("td", shown))
        row.attrs["data-code" if solvable else "data-bin"] = intact
        another = h("tr", h("td", w.product()), h("td", w.code()), data_code=w.code())
        table: Node = h("table", *w.shuffled([another, row]))
        return self.draft(w, target, truth, shown, (table, Comment(w.phrase())), solvable)

    def _code(self, w: World) -> str:
        """Letters that cannot be guessed: ``ЖЩБ-4821-ЯЦ-37``."""
        letters = "".join(w.pick(self._LETTERS) for _ in range(5))
        return f"{letters[:3]}-{w.number(1000, 9999)}-{letters[3:]}-{w.number(10, 99)}"

    def solve(self, site: Site) -> Json | Abstain:
        row = site.one(f'[id="{self.slots(site)["id"]}"]')
        if row.has_attr("data-code"):
            return attr(row, "data-code")
        return Abstain(self.reason, text(row.select("td")[1]))

    def bug_letters_left_out(self, site: Site) -> Json:
        row = site.one(f'[id="{self.slots(site)["id"]}"]')
        return text(row.select("td")[1]).replace("\ufffd", "")
