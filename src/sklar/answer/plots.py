"""Figures of a model for a notebook: post-processing, at no privacy cost. They need matplotlib."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sklar.answer.query import estimate
from sklar.answer.report.publish import dependences
from sklar.answer.report.render import short
from sklar.machine.notebook import blank_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sklar.files.model import Model

_BAR, _MARK = "#c2410c", "#1f2937"
# Names that fit beside an axis.
_LONGEST = 18


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plots:
    """Figures of a model: `margins("age")` and `dependence()`."""

    model: Model

    def __repr__(self) -> str:
        return f"Plots of {self.model!r}: .margins(NAME), .dependence()"

    def margins(self, name: str) -> Figure:
        """Shares of an attribute's levels among synthetic rows, beside the noisy counts with their 95% intervals."""
        figure, ax = blank_figure(6.4, 3.6)
        schema, n = self.model.schema, self.model.n_rows
        attribute = schema.attribute(name)
        source, levels = schema.sources[schema.names.index(name)]
        own = self.model.copula.margins()[self.model.measured_schema.cells.levels(source)]
        shares = np.bincount(levels, own, attribute.n_levels)
        noisy = estimate(self.model.measured, name)
        at, labels = np.arange(attribute.n_levels), [short(level, _LONGEST) for level in attribute.levels]
        # Intervals of shares: they may reach below zero, as those of counts do.
        reach = np.abs(np.stack([noisy.counts - noisy.low, noisy.high - noisy.counts])) / n
        bars: dict[str, Any] = {"color": _BAR, "alpha": 0.75, "label": "synthetic rows"}
        marks: dict[str, Any] = {"fmt": "o", "ms": 3, "color": _MARK, "lw": 1, "label": "noisy counts, 95%"}
        if attribute.binned:
            ax.bar(at, shares, **bars)
            ax.errorbar(at, noisy.counts / n, reach, **marks)
            ax.set_xticks(at, labels, rotation=60, ha="right", fontsize=8)
            ax.set_ylabel("share of rows")
        else:
            figure.set_size_inches(6.4, max(1.6, 0.26 * attribute.n_levels + 1.0))
            ax.barh(at, shares, **bars)
            ax.errorbar(noisy.counts / n, at, xerr=reach, **marks)
            ax.set_yticks(at, labels, fontsize=8)
            ax.invert_yaxis()
            ax.set_xlabel("share of rows")
        ax.set_title(name, loc="left", fontsize=11, fontweight="bold")
        ax.legend(frameon=False, fontsize=8)
        return figure

    def dependence(self) -> Figure:
        """The share of rows that would have to change to make a pair independent; nothing where noise may be all."""
        schema = self.model.measured_schema
        size = 1.8 + 0.3 * schema.n_attributes
        figure, ax = blank_figure(size + 0.8, size)
        square = schema.cells.symmetric(dependences(self.model)[0])
        square[square == 0] = np.nan
        image = ax.imshow(100 * square, cmap="Oranges", vmin=0)
        names = [short(name, _LONGEST) for name in schema.names]
        ax.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=8)
        ax.set_yticks(range(len(names)), names, fontsize=8)
        figure.colorbar(image, ax=ax, shrink=0.8, label="% of rows away from independence")
        ax.set_title(f"{schema.name}: dependence", loc="left", fontsize=11, fontweight="bold")
        return figure
