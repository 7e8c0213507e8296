"""Pictures of a model for a notebook, as its report draws them: post-processing, at no privacy cost."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from sklar.answer.report import svg
from sklar.answer.report.publish import dependences, draw
from sklar.answer.report.render import short
from sklar.public.shown import shown_name

if TYPE_CHECKING:
    from sklar.files.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Drawings that a notebook shows. Each of `svgs` is an SVG document that needs no other."""

    title: str
    svgs: tuple[str, ...]

    @classmethod
    def of(cls, title: str, *drawn: str | None) -> Picture:
        """Drawings of a report with the style of its pages."""
        style = files("sklar.answer.report").joinpath("templates", "style.css").read_text(encoding="utf-8")
        style += "svg{background:var(--page);font-family:system-ui,sans-serif}"
        alone = f' xmlns="http://www.w3.org/2000/svg"><style><![CDATA[{style}]]></style>'
        return cls(title=title, svgs=tuple(str(each).replace(">", alone, 1) for each in drawn if each))

    def _repr_html_(self) -> str:
        coded = (b64encode(each.encode()).decode() for each in self.svgs)
        images = (f'<br><img alt="" style="width:40em" src="data:image/svg+xml;base64,{each}">' for each in coded)
        return f"<b>{escape(self.title)}</b>{''.join(images)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plots:
    """Pictures of a model: `margins("age")` and `dependence()`."""

    model: Model

    def __repr__(self) -> str:
        return f"Plots of {self.model!r}: .margins(NAME), .dependence()"

    def margins(self, name: str) -> Picture:
        """Shares of an attribute's levels by noisy counts, with 95% intervals, and among synthetic rows."""
        model, schema = self.model, self.model.schema
        attribute, (source, levels) = schema.attribute(name), schema.sources[schema.names.index(name)]
        own = model.copula.margins()[model.measured_schema.cells.levels(source)]
        shares = np.bincount(levels, own, attribute.n_levels).astype(np.float64)
        drawn = draw(model, attribute, shares, model.shapes.get(name))
        return Picture.of(drawn["name"], drawn["on_axis"], drawn["apart"])

    def dependence(self) -> Picture:
        """Percent of the rows that would have to change to make a pair independent; empty where noise may be all."""
        schema = self.model.measured_schema
        square = schema.cells.symmetric(dependences(self.model)[0])
        names = [short(shown_name(each)) for each in schema.attributes]
        title = f"{schema.name}: % of rows away from independence"
        return Picture.of(title, svg.heat_map(square, names, {}, title, "Empty: none beyond the noise.")[0])
