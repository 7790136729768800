"""Numbers that are drawn."""

from __future__ import annotations

from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import Node, h
from rlvr_bs4.schema import INTEGER, array
from rlvr_bs4.site import Site, attr
from rlvr_bs4.world import World


class SvgGeometry(Archetype):
    """Values of a chart from the geometry of its shapes."""

    id = "mvp.extract_svg_geometry"
    category = "hard"
    difficulty = "hard"
    phase = 2
    schema = array(INTEGER)
    asks = Ask(
        'The chart with id "{id}" shows 5 values from left to right by the rule {rule}. Give them.',
        'Read the 5 values, left to right, off the SVG "{id}"; {rule}.',
        'Return the 5 values of chart "{id}" from left to right, where {rule}.',
    )
    _BARS = "bar height = 2 * value"
    _LINE = "y of a point = 180 - 1.5 * value"

    def build(self, w: World) -> Draft:
        target, rule = w.ident(), w.pick((self._BARS, self._LINE))
        values = [2 * w.number(2, 50) for _ in range(5)]
        shapes: list[Node] = []
        if rule == self._BARS:
            for at, value in enumerate(values):
                height = 2 * value
                shapes.append(
                    h("rect", x=str(40 * at), y=str(200 - height), width="30", height=str(height))
                )
            shapes = w.shuffled(shapes)  # document order is not left to right
        else:
            ys = [(180 - 3 * value // 2) for value in values]
            points = " ".join(f"{40 * at},{y}" for at, y in enumerate(ys))
            shapes.append(h("polyline", points=points, fill="none"))
        frame = h("rect", x="0", y="0", width="240", height="3", class_="frame")
        chart = h(f"svg#{target}", *shapes, width="240", height="200")
        legend = h("svg", frame, h("text", w.phrase()), width="20", height="20")
        body = Body((legend, chart), claims=(Claim(f"#{target}"),))
        return Draft(w.ask(self.asks, id=target, rule=rule), values, body)

    def solve(self, site: Site) -> list[int]:
        slots = self.slots(site)
        chart = site.one(f'[id="{slots["id"]}"]')
        if slots["rule"] == self._BARS:
            bars = sorted(chart.select("rect"), key=lambda bar: int(attr(bar, "x")))
            return [int(attr(bar, "height")) // 2 for bar in bars]
        ys = [float(p.split(",")[1]) for p in attr(chart.select("polyline")[0], "points").split()]
        return [round((180 - y) / 1.5) for y in ys]

    def bug_raw_geometry(self, site: Site) -> list[int]:
        chart = site.one(f'[id="{self.slots(site)["id"]}"]')
        bars = [int(attr(bar, "height")) for bar in chart.select("rect")]
        points = [attr(line, "points").split() for line in chart.select("polyline")]
        return bars or [int(point.split(",")[1]) for point in points[0]]
