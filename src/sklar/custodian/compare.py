"""The same analysis of the real rows, of synthetic rows as if they were real, and by `infer`: for the custodian's eyes.

Rows are analyzed by their raw values, with the statistics that `infer` takes of weighted records. Their standard errors
are those of a bootstrap with Poisson weights: what a package says of rows that have no noise. A regression has the
categories that `infer` tells apart. Rows are left out where a column in question has a value of no level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sklar.answer import DEFAULT_LEVEL
from sklar.answer.effects import Codes, Floats
from sklar.answer.infer import answer_to
from sklar.answer.infer.inquiry import Inquiry, unit_of
from sklar.answer.infer.statistics import weigh
from sklar.answer.plots import blank_figure
from sklar.answer.predicate import Expression, QueryError
from sklar.custodian.evaluate import NOTICE
from sklar.custodian.evaluate.conjunctions import rows_that_count
from sklar.custodian.evaluate.raw import read_values
from sklar.files.archive import load
from sklar.files.model import Model
from sklar.files.write import check_target, replacing
from sklar.machine.notebook import Tabular, html_card
from sklar.rows.encode import encode

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Tables of the bootstrap; a standard error is then within 10% or so of its limit.
_TABLES, _SEED = 200, 2_026
Interval = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A figure, three times: the estimate and the ends of its interval; `infer` may have no ends."""

    name: str
    real: Interval
    synthetic: Interval
    infer: tuple[float, float | None, float | None]

    @property
    def held(self) -> str:
        """Whether the interval of `infer` holds the figure of the real rows."""
        _, low, high = self.infer
        return "no interval" if low is None or high is None else "yes" if low <= self.real[0] <= high else "no"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Tabular):
    """An analysis of real rows, of synthetic rows, and by `infer`. PRIVATE, as real rows are in it."""

    question: str
    statistic: str
    level: float
    real_rows: int
    synthetic_rows: int
    left_out: int
    figures: tuple[Compared, ...]
    cautions: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        facts = {"rows": f"{self.real_rows:,} real, {self.synthetic_rows:,} synthetic"}
        return html_card(self.statistic, facts, self.to_columns(), verdict=self.cautions, notes=[NOTICE])

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        figures = [asdict(figure) | {"held": figure.held} for figure in self.figures]
        return {"notice": NOTICE} | asdict(self) | {"figures": figures}

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """One line for each figure."""
        columns: dict[str, list[Any]] = {"name": [each.name for each in self.figures]}
        for way in ("real", "synthetic", "infer"):
            for place, what in enumerate(("", "_low", "_high")):
                columns[way + what] = [getattr(each, way)[place] for each in self.figures]
        return columns | {"held": [each.held for each in self.figures]}

    def lines(self) -> list[str]:
        """For a person to read."""
        rows = [["", "real rows", "synthetic rows as if real", "sklar infer", "holds the real figure"]]
        for each in self.figures:
            cells = [
                f"{value:,.4g} ({low:,.4g} to {high:,.4g})" if low is not None and high is not None else f"{value:,.4g}"
                for value, low, high in (each.real, each.synthetic, each.infer)
            ]
            rows.append([each.name, *cells, each.held])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        padded = ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        left = f"; {self.left_out:,} rows with a value of no level are left out" if self.left_out else ""
        counted = f"{self.real_rows:,} real rows, {self.synthetic_rows:,} synthetic ones{left}"
        title = f"{self.statistic}, {100 * self.level:.4g}% intervals ({counted}):"
        return [title, *padded, *(f"  CAUTION: {caution}" for caution in self.cautions), NOTICE]

    def plot(self) -> Figure:
        """The three intervals of every figure, side by side. Needs matplotlib."""
        figure, ax = blank_figure(6.4, max(1.8, 0.5 * len(self.figures) + 1.2))
        places = np.arange(len(self.figures))
        for shift, (way, color) in enumerate((("real", "#1f2937"), ("synthetic", "#c2410c"), ("infer", "#2563eb"))):
            ends = [[each if each is not None else np.nan for each in getattr(one, way)] for one in self.figures]
            values, lows, highs = np.array(ends, dtype=np.float64).T
            reach = np.nan_to_num([np.maximum(values - lows, 0), np.maximum(highs - values, 0)])
            ax.errorbar(values, places + 0.2 * (shift - 1), xerr=reach, fmt="o", ms=4, color=color, label=way)
        ax.set_yticks(places, [each.name for each in self.figures], fontsize=8)
        ax.invert_yaxis()
        ax.legend(frameon=False, fontsize=8)
        ax.set_title(f"PRIVATE: {self.question}", loc="left", fontsize=10, fontweight="bold")
        return figure


class _OfRows(Inquiry):
    """A question as it is asked, of rows with their raw values in place of records."""

    def __init__(self, inquiry: Inquiry, frame: pl.DataFrame) -> None:
        vars(self).update(vars(inquiry))
        self.notes, self.cautions = [], []
        schema, asked = self.model.schema, sorted(self.asked.attributes)
        codes = encode(frame.select(tuple(schema.columns)), schema)
        kept = (codes[asked] >= 0).all(axis=0)
        self.rows, self.left_out = int(kept.sum()), int((~kept).sum())
        self._codes, self._frame = codes[:, kept], frame.filter(pl.Series(kept))

    def levels(self, codes: Codes, attribute: int) -> Codes:  # noqa: ARG002
        """The level of each row."""
        return np.asarray(self._codes[attribute].astype(np.int64))

    def holds(self, predicate: Expression | None, codes: Codes) -> Floats:  # noqa: ARG002
        """1 for rows that satisfy a predicate, else 0."""
        if predicate is None:
            return np.ones(self.rows)
        return predicate.holds({i: self._codes[i] for i in predicate.attributes}).astype(np.float64)

    def numbers(self, attribute: int, codes: Codes) -> tuple[Floats, Floats]:
        """The raw number of each row, where its level has a score, and no variance around it."""
        own, (scores, _) = self.model.schema.attributes[attribute], super().numbers(attribute, codes)
        if own.binned and own.name not in self.declared:
            values = read_values(self._frame.get_column(own.column), own)[0] / unit_of(own)[0]
            scores = np.where(np.isnan(scores), np.nan, values)
        return scores, np.zeros(self.rows)

    def figures(self) -> tuple[list[str], Floats]:
        """The estimates, shape (q,), and the ends of their intervals: shape (q, 3)."""
        if not self.rows:
            raise QueryError("no row has a level of each of these columns. Name other columns, or mend the schema.")
        names, statistic = weigh(self, self._codes.T.astype(np.int64))
        generator = np.random.Generator(np.random.SFC64(_SEED))
        estimate = statistic(np.full(self.rows, 1 / self.rows))
        drawn = []
        for _ in range(_TABLES):
            weights = generator.poisson(1.0, self.rows).astype(np.float64)
            drawn.append(statistic(weights / max(weights.sum(), 1.0)))
        reach = self.quantile * np.std(drawn, axis=0, ddof=1)
        return names, np.stack([estimate, estimate - reach, estimate + reach], axis=1)


def compare(
    real: object,
    model: Model | str | Path,
    question: str,
    *,
    level: float = DEFAULT_LEVEL,
    seed: int = 0,
    plot: str | Path | None = None,
) -> Comparison:
    """The same analysis of real rows, of as many synthetic ones, and by `infer`. PRIVATE: for the custodian's eyes.

    `plot` (.png) is a file to write, PRIVATE as well. `seed` draws the synthetic rows.
    """
    target = None if plot is None else check_target(plot, (".png",), real, model)
    model = model if isinstance(model, Model) else load(model)
    inquiry = Inquiry(model, question, level=level)
    if inquiry.asked.kind == "independent":
        raise QueryError("a test has no figures to compare. Ask for a difference or a correlation.")
    frame = pl.concat(rows_that_count(real, model.schema)[1])
    own, drawn = _OfRows(inquiry, frame), _OfRows(inquiry, model.sample(seed=seed))
    (names, true), (_, synthetic), found = own.figures(), drawn.figures(), answer_to(inquiry)
    made = Comparison(
        question=question,
        statistic=found.statistic,
        level=level,
        real_rows=own.rows,
        synthetic_rows=drawn.rows,
        left_out=own.left_out,
        figures=tuple(
            Compared(name=name, real=tuple(a), synthetic=tuple(b), infer=(each.estimate, each.low, each.high))
            for name, a, b, each in zip(names, true.tolist(), synthetic.tolist(), found.figures, strict=True)
        ),
        cautions=found.cautions,
    )
    if target is not None:
        with replacing(target, private=True) as temporary:
            made.plot().savefig(temporary, format="png", dpi=110)
    return made
