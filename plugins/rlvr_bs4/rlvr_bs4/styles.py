"""Six ways in which sites are built: the classes and attributes their furniture carries."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

_HASH = string.ascii_lowercase + string.digits


@dataclass(frozen=True, slots=True)
class Style:
    """One way to build a site.

    Attributes:
        name: What it is called.
        classes: Class attribute by role of an element.
        marker: An attribute many of its elements carry; ``*`` stands for a hash of the build.
        root: Id of the element the page hangs on.
    """

    name: str
    classes: Mapping[str, str]
    marker: str = ""
    root: str = ""

    def attrs(self, role: str, build: str) -> dict[str, str | None]:
        """Attributes of an element in this role."""
        attributes: dict[str, str | None] = {}
        if role in self.classes:
            attributes["class"] = self.classes[role].replace("*", build)
        if self.marker:
            name, _, value = self.marker.replace("*", build).partition("=")
            attributes[name] = value.replace("?", role)
        return attributes


def build_hash(rng: Random) -> str:
    """A hash as bundlers put into names."""
    return "".join(_HASH[rng.randrange(len(_HASH))] for _ in range(6))


_TRADITIONAL = {
    "wrap": "page", "nav": "menu-bar", "list": "menu", "item": "menu-item", "link": "menu-link",
    "side": "left-col", "card": "box", "heading": "box-head", "row": "boxes", "footer": "bottom",
    "price": "cost", "form": "lookup", "comment": "post",
}  # fmt: skip
_BOOTSTRAP = {
    "wrap": "container-fluid", "nav": "navbar navbar-expand-lg", "list": "navbar-nav",
    "item": "nav-item", "link": "nav-link", "side": "col-md-3", "card": "card h-100",
    "heading": "card-title h5", "row": "row g-3", "footer": "py-4 bg-light",
    "price": "fw-bold text-muted", "form": "d-flex", "comment": "media mb-3",
}  # fmt: skip
_TAILWIND = {
    "wrap": "mx-auto max-w-7xl px-4", "nav": "flex items-center justify-between",
    "list": "flex space-x-4", "item": "inline-block", "link": "text-gray-600 hover:text-gray-900",
    "side": "w-64 shrink-0", "card": "rounded-lg border p-4 shadow-sm",
    "heading": "text-lg font-semibold", "row": "grid grid-cols-3 gap-4",
    "footer": "mt-12 border-t py-8", "price": "text-sm font-medium", "form": "flex gap-2",
    "comment": "border-b py-4",
}  # fmt: skip
_REACT = {
    "wrap": "Layout_root__*", "nav": "Nav_bar__*", "list": "Nav_list__*", "item": "Nav_item__*",
    "link": "sc-* Link", "side": "Aside_root__*", "card": "Card_root__*", "heading": "Card_head__*",
    "row": "Grid_row__*", "footer": "Footer_root__*", "price": "Price_small__*",
    "form": "Search_form__*", "comment": "Comment_root__*",
}  # fmt: skip
_ANGULAR = {
    "wrap": "mat-app-background", "nav": "mat-toolbar", "list": "mat-nav-list",
    "item": "mat-list-item", "link": "mat-button", "side": "mat-sidenav", "card": "mat-card",
    "heading": "mat-card-title", "row": "mat-grid-list", "footer": "mat-footer",
    "price": "mat-hint", "form": "mat-form-field", "comment": "mat-expansion-panel",
}  # fmt: skip
_VUE = {
    "wrap": "v-application--wrap", "nav": "v-app-bar", "list": "v-list", "item": "v-list-item",
    "link": "v-btn", "side": "v-navigation-drawer", "card": "v-card", "heading": "v-card__title",
    "row": "v-row", "footer": "v-footer", "price": "text-caption", "form": "v-input",
    "comment": "v-timeline-item",
}  # fmt: skip
STYLES = (
    Style("traditional", _TRADITIONAL),
    Style("bootstrap", _BOOTSTRAP),
    Style("tailwind", _TAILWIND),
    Style("react", _REACT, "data-rt=?", "root"),
    Style("angular", _ANGULAR, "_ngcontent-*=", "app-root"),
    Style("vue", _VUE, "data-v-*=", "app"),
)
