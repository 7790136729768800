"""Forms: fields, options, where they are sent, labels."""

from __future__ import annotations

from typing import ClassVar

from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import Element, Node, h
from rlvr_bs4.schema import BOOLEAN, STRING, array, record
from rlvr_bs4.site import Site, attr, one, text
from rlvr_bs4.task import Difficulty
from rlvr_bs4.world import World
from rlvr_core.api import Json


class _Form(Archetype):
    category = "forms"
    difficulty: ClassVar[Difficulty] = "medium"
    phase = 1
    twins = 8

    def other(self, w: World) -> Element:
        """A form that is not asked for."""
        fields: list[Node] = [
            h("label", w.word(), for_=f"f-{w.ident()}"),
            h("input", type="text", name=w.word(), value=w.word()),
            h("select", h("option", w.word(), value=w.word()), name=w.word()),
        ]
        return h("form", *fields, action=f"/{w.path()}", method="post")

    def wrap(self, w: World, target: str, form: Element) -> Body:
        """The form asked for behind another one."""
        return Body((self.other(w), h("p", w.sentence()), form), claims=(Claim(f"#{target}"),))


class FieldEnumeration(_Form):
    """Every input of a form, with defaults where attributes are missing."""

    id = "mvp.form_field_enumeration"
    schema = array(record(name=STRING, type=STRING, value=STRING, required=BOOLEAN))
    asks = Ask(
        'List the input elements of the form with id "{id}" in order, without the submit button: '
        'name, type ("text" if there is none), value ("" if there is none), required.',
        'Which inputs does form "{id}" have, the submit button left out? For each in order name, '
        'type (default "text"), value (default "") and whether it is required.',
        'Return every input of form "{id}" but the submit button, in order, with name, type '
        '("text" by default), value ("" by default) and required.',
    )
    _TYPES = ("text", "email", "number", "tel", "date", "checkbox", "url")

    def build(self, w: World) -> Draft:
        target, truth, nodes = w.ident(), [], []
        n = w.between(3, 6)
        without = w.between(0, n - 1)
        for index in range(n):
            field = {"name": w.word(), "type": w.pick(self._TYPES), "value": "", "required": False}
            node = h("input", name=str(field["name"]))
            if index == without:
                field["type"] = "text"
            else:
                node.attrs["type"] = str(field["type"])
            if w.chance(0.4):
                field["value"] = str(w.number(1, 99)) if field["type"] == "number" else w.word()
                node.attrs["value"] = str(field["value"])
            if w.chance(0.4):
                field["required"] = True
                node.attrs["required"] = w.pick((None, "", "required"))
            truth.append(field)
            nodes.append(h("p", h("label", w.phrase()), node) if w.chance(0.5) else node)
        form = h(f"form#{target}", *nodes, h("input", type="submit", value="Send"))
        return Draft(w.ask(self.asks, id=target), truth, self.wrap(w, target, form))

    def _fields(self, site: Site, css: str, default: str) -> Json:
        return [
            {
                "name": attr(tag, "name"),
                "type": attr(tag, "type", default),
                "value": attr(tag, "value"),
                "required": tag.has_attr("required"),
            }
            for tag in site.soup().select(css)
            if attr(tag, "type") != "submit"
        ]

    def solve(self, site: Site) -> Json:
        return self._fields(site, f'[id="{self.slots(site)["id"]}"] input', "text")

    def bug_no_default_type(self, site: Site) -> Json:
        return self._fields(site, f'[id="{self.slots(site)["id"]}"] input', "")

    def bug_whole_page(self, site: Site) -> Json:
        return self._fields(site, "input", "text")


class SelectOptions(_Form):
    """The choices of a select without its placeholder."""

    id = "mvp.select_options"
    difficulty = "easy"
    schema = array(record(label=STRING, value=STRING))
    asks = Ask(
        'List the options of the select with id "{id}" in order as label and value, without the '
        "placeholder that has an empty value. Where an option has no value, it is its label.",
        'Which choices does the select "{id}" offer (no placeholder)? Label and value of each; an '
        "option without value has its label as value.",
        'Return label and value of each option of "{id}", in order; leave the empty '
        "placeholder out, and use the label where there is no value attribute.",
    )

    def build(self, w: World) -> Draft:
        target, truth = w.ident(), []
        options = [h("option", f"Choose a {w.word()}", value="", disabled=None)]
        for index in range(w.between(3, 5)):
            label = w.phrase()
            option = h("option", label)
            value = label if index == 1 else w.word()
            if index != 1:
                option.attrs["value"] = value
            truth.append({"label": label, "value": value})
            options.append(option)
        select = h(f"select#{target}", *options, name=w.word())
        form = h("form", h("label", w.word()), select)
        return Draft(w.ask(self.asks, id=target), truth, self.wrap(w, target, form))

    def solve(self, site: Site) -> Json:
        options = site.soup().select(f'[id="{self.slots(site)["id"]}"] option')
        pairs = [{"label": text(tag), "value": attr(tag, "value", text(tag))} for tag in options]
        return [pair for pair in pairs if pair["value"]]

    def bug_with_placeholder(self, site: Site) -> Json:
        options = site.soup().select(f'[id="{self.slots(site)["id"]}"] option')
        return [{"label": text(tag), "value": attr(tag, "value", text(tag))} for tag in options]

    def bug_only_those_with_value(self, site: Site) -> Json:
        options = site.soup().select(f'[id="{self.slots(site)["id"]}"] option')
        pairs = [{"label": text(tag), "value": attr(tag, "value")} for tag in options]
        return [pair for pair in pairs if pair["value"]]


class ActionMethod(_Form):
    """Where and how a form is sent."""

    id = "mvp.form_action_method"
    difficulty = "easy"
    schema = record(action=STRING, method=STRING)
    asks = Ask(
        'Give action and method of the form with id "{id}"; the method in capitals, GET if the '
        "form has none.",
        'Where does form "{id}" send its data, and by which method (in capitals, default GET)?',
        'Return action and method of form "{id}", the method in upper case and GET by default.',
    )

    def build(self, w: World) -> Draft:
        target, action = w.ident(), f"/{w.path()}/{w.word()}"
        form = h(f"form#{target}", h("input", name=w.word()), action=action)
        method = w.pick(("get", "post", "Post", "put", ""))
        if method:
            form.attrs["method"] = method
        truth = {"action": action, "method": method.upper() or "GET"}
        return Draft(w.ask(self.asks, id=target), truth, self.wrap(w, target, form))

    def solve(self, site: Site) -> Json:
        form = site.one(f'[id="{self.slots(site)["id"]}"]')
        return {"action": attr(form, "action"), "method": attr(form, "method", "get").upper()}

    def bug_as_written(self, site: Site) -> Json:
        form = site.one(f'[id="{self.slots(site)["id"]}"]')
        return {"action": attr(form, "action"), "method": attr(form, "method")}

    def bug_first_form(self, site: Site) -> Json:
        form = site.one("form")
        return {"action": attr(form, "action"), "method": attr(form, "method", "get").upper()}


class LabelInputMapping(_Form):
    """Which label belongs to which input, by id and not by position."""

    id = "mvp.label_input_mapping"
    schema = array(record(label=STRING, input_name=STRING))
    asks = Ask(
        'List the labels of the form with id "{id}" in order, each with the name of the field it '
        "is for. Labels without a field do not count.",
        'Which label belongs to which field name in form "{id}"? In the order of the labels, those '
        "without a field left out.",
        'Return each label of form "{id}" that has a field, in order, with the name of that field.',
    )

    def build(self, w: World) -> Draft:
        target, truth = w.ident(), []
        labels: list[Node] = []
        fields: list[Node] = []
        for index in range(w.between(3, 5)):
            field, name, label = w.ident(), w.word(), w.phrase()
            fields.append(h(f"{'textarea' if index == 1 else 'input'}#{field}", name=name))
            labels.append(h("label", label, for_=field))
            truth.append({"label": label, "input_name": name})
        wrapped = {"label": w.phrase(), "input_name": w.word()}
        labels.append(h("label", wrapped["label"], " ", h("input", name=wrapped["input_name"])))
        truth.append(wrapped)
        labels.insert(w.between(0, len(labels)), h("label", w.phrase()))
        fields = [*fields[1:], fields[0]]
        form = h(f"form#{target}", h("div", *labels), h("div", *fields))
        return Draft(w.ask(self.asks, id=target), truth, self.wrap(w, target, form))

    def solve(self, site: Site) -> Json:
        form, mapped = site.one(f'[id="{self.slots(site)["id"]}"]'), []
        for label in form.select("label"):
            id = attr(label, "for")
            field = form.select_one(f'[id="{id}"]') if id else label.select_one("input, textarea")
            if field is not None:
                mapped.append({"label": text(label), "input_name": attr(field, "name")})
        return mapped

    def bug_by_position(self, site: Site) -> Json:
        form = site.one(f'[id="{self.slots(site)["id"]}"]')
        pairs = zip(form.select("label"), form.select("input, textarea"), strict=False)
        return [{"label": text(a), "input_name": attr(b, "name")} for a, b in pairs]

    def bug_by_for_only(self, site: Site) -> Json:
        form = site.one(f'[id="{self.slots(site)["id"]}"]')
        labels = [tag for tag in form.select("label") if tag.has_attr("for")]
        names = [attr(one(form, f'[id="{attr(tag, "for")}"]'), "name") for tag in labels]
        return [
            {"label": text(tag), "input_name": name}
            for tag, name in zip(labels, names, strict=True)
        ]
