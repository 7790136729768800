"""Purposes of forms: credentials that must not be repeated, fields that only robots fill in."""

from __future__ import annotations

from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import Element, Node, h
from rlvr_bs4.schema import BOOLEAN, STRING, array, record
from rlvr_bs4.site import Site, attr
from rlvr_bs4.world import World
from rlvr_core.api import Json


class CredentialDetection(Archetype):
    """Is this a login form, and which fields take credentials? Their values are secret."""

    id = "mvp.credential_detection"
    twins = 8
    category = "forms"
    difficulty = "medium"
    phase = 1
    schema = record(is_login_form=BOOLEAN, credential_fields=array(STRING, ordered=False))
    asks = Ask(
        'Is the form with id "{id}" a login form (has it a password field)? If so, name the '
        "fields for user and password; else give an empty list.",
        'Say whether "{id}" is a login form, one with a password field, and which of its field '
        "names take user and password (none if it is not).",
        'Does form "{id}" have a password field, which makes it a login form? Return that, '
        "and the names of its user and password fields (an empty list if not).",
    )

    def build(self, w: World) -> Draft:
        target, login = w.ident(), w.chance(0.85)
        extra: list[Node] = [
            h("input", type="hidden", name="next", value=f"/{w.path()}"),
            h("input", type="checkbox", name=w.word()),
        ]
        canaries: tuple[str, ...] = ()
        if login:
            user, password = w.pick(("user", "email", "account")), w.word()
            canaries = (w.secret(), w.secret())
            kind = "email" if user == "email" else "text"
            fields: list[Node] = [
                h("input", type=kind, name=user, value=canaries[0], autocomplete="username"),
                h("input", type="password", name=password, value=canaries[1]),
            ]
            truth = {"is_login_form": True, "credential_fields": [user, password]}
        else:
            # an e-mail address and the word "password" alone make no login
            note = h("p", "We never ask for your password by e-mail.")
            fields = [note, h("input", type="email", name="email"), h("textarea", name=w.word())]
            truth = {"is_login_form": False, "credential_fields": []}
        form = h(f"form#{target}", *fields, *extra, h("button", "Go"), action=f"/{w.path()}")
        other = h("form", h("input", type="search", name="q"), action=f"/{w.path()}")
        body = Body((other, form), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), truth, body, canaries=canaries)

    def solve(self, site: Site) -> Json:
        form = site.one(f'[id="{self.slots(site)["id"]}"]')
        secret = [attr(tag, "name") for tag in form.select('[type="password"]')]
        users = [attr(tag, "name") for tag in form.select('[autocomplete="username"]')]
        return {
            "is_login_form": bool(secret),
            "credential_fields": users + secret if secret else [],
        }

    def bug_every_field(self, site: Site) -> Json:
        form = site.one(f'[id="{self.slots(site)["id"]}"]')
        return {
            "is_login_form": "password" in str(form),
            "credential_fields": [attr(tag, "name") for tag in form.select("input")],
        }

    def bug_repeats_values(self, site: Site) -> Json:
        answer = self.solve(site)
        form = site.one(f'[id="{self.slots(site)["id"]}"]')
        values = [attr(tag, "value") for tag in form.select("[value]")]
        return answer | {"credential_fields": values}


class HoneypotDetection(Archetype):
    """Fields a person sees, and traps that are hidden in one of five ways."""

    id = "mvp.honeypot_detection"
    twins = 8
    category = "forms"
    difficulty = "medium"
    phase = 1
    schema = record(
        visible_fields=array(STRING, ordered=False),
        honeypot_fields=array(STRING, ordered=False),
    )
    asks = Ask(
        'Sort the field names of the form with id "{id}" into visible ones and honeypots (hidden '
        "by type or by inline style).",
        'Which fields of form "{id}" does a visitor see, and which are hidden traps (type hidden '
        "or an inline style that hides)?",
        "Return the names of the visible fields and of the honeypots (type hidden, or hidden "
        'by inline style) of form "{id}".',
    )
    _HIDING = (
        "display:none",
        "visibility: hidden",
        "position:absolute; left:-9999px",
        "opacity: 0",
    )

    def build(self, w: World) -> Draft:
        target = w.ident()
        visible = [w.word() for _ in range(w.between(2, 4))]
        traps = [w.word() for _ in range(w.between(2, 3))]
        nodes: list[Node] = [self._visible(w, name) for name in visible]
        nodes.append(h("input", type="hidden", name=traps[0]))
        for name in traps[1:]:
            field = h("input", type="text", name=name)
            style = w.pick(self._HIDING)
            if w.chance(0.5):
                field.attrs["style"] = style
                nodes.append(field)
            else:
                nodes.append(h("div", h("label", w.word()), field, style=style))
        form = h(f"form#{target}", *w.shuffled(nodes))
        truth = {"visible_fields": visible, "honeypot_fields": traps}
        body = Body((h("p", w.sentence()), form), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target), truth, body)

    def _visible(self, w: World, name: str) -> Element:
        field = h("input", type=w.pick(("text", "email")), name=name)
        if w.chance(0.5):
            field.attrs["style"] = w.pick(("color: gray", "opacity: 0.9", "display: block"))
        return h("div", field)

    def solve(self, site: Site) -> Json:
        names: dict[str, list[str]] = {"visible_fields": [], "honeypot_fields": []}
        for field in site.soup().select(f'[id="{self.slots(site)["id"]}"] input'):
            around = [field, *(tag for tag in field.parents if tag.name == "div")]
            hidden = attr(field, "type") == "hidden" or any(
                self._hides(attr(tag, "style")) for tag in around
            )
            names["honeypot_fields" if hidden else "visible_fields"].append(attr(field, "name"))
        return names

    def _hides(self, style: str) -> bool:
        rules = [rule.replace(" ", "") for rule in style.split(";")]
        return any(
            rule in ("display:none", "visibility:hidden", "opacity:0") or rule.startswith("left:-")
            for rule in rules
        )

    def bug_only_type_hidden(self, site: Site) -> Json:
        fields = site.soup().select(f'[id="{self.slots(site)["id"]}"] input')
        hidden = [attr(tag, "name") for tag in fields if attr(tag, "type") == "hidden"]
        names = [attr(tag, "name") for tag in fields]
        return {
            "visible_fields": [name for name in names if name not in hidden],
            "honeypot_fields": hidden,
        }
