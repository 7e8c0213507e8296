"""The same analysis of the real rows, of synthetic rows as if they were real, and by `infer`: for the custodian's eyes.
More: docs/derivations.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sklar.answer import DEFAULT_LEVEL
from sklar.answer.effects import Codes, Floats
from sklar.answer.infer import answer_to
from sklar.answer.infer.inquiry import Figure, Inference, Inquiry
from sklar.answer.infer.inside import unit_of
from sklar.answer.infer.statistics import weigh
from sklar.answer.infer.words import Product
from sklar.answer.predicate import Expression, QueryError, lift
from sklar.custodian.evaluate import NOTICE
from sklar.custodian.evaluate.conjunctions import rows_that_count
from sklar.custodian.evaluate.raw import read_values
from sklar.files.archive import load
from sklar.files.model import Model
from sklar.files.write import check_target, replacing
from sklar.machine.notebook import Tabular, blank_figure
from sklar.rows.encode import encode

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

# Tables of the bootstrap; a standard error is then within 10% or so of its limit.
_TABLES, _SEED = 200, 2_026


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Compared(Tabular):
    """An analysis of real rows, but for `left_out` ones, of synthetic rows as if real, and by `infer`. PRIVATE."""

    real: Inference
    synthetic: Inference
    inferred: Inference
    left_out: int

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"notice": NOTICE} | asdict(self) | {"held": self.held}

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """One line for each figure."""
        ways = {"real": self.real, "synthetic": self.synthetic, "infer": self.inferred}
        columns: dict[str, list[Any]] = {"name": [figure.name for figure in self.real.figures]}
        for way, found in ways.items():
            for end, name in (("estimate", way), ("low", f"{way}_low"), ("high", f"{way}_high")):
                columns[name] = [getattr(figure, end) for figure in found.figures]
        return columns | {"held": self.held}

    @property
    def held(self) -> list[bool | None]:
        """Whether the interval of `infer` holds each figure of the real rows; None where it has none."""
        pairs = zip(self.real.figures, self.inferred.figures, strict=True)
        return [None if b.low is None or b.high is None else bool(b.low <= a.estimate <= b.high) for a, b in pairs]

    def lines(self) -> list[str]:
        """For a person to read."""
        known = len(self.held) - self.held.count(None)
        held = f"{self.held.count(True)} of {known} intervals of infer hold the real figure"
        lost = [f"  {self.left_out:,} real rows with a value of no level are left out"] if self.left_out else []
        return [*self.real.lines(), *lost, *self.synthetic.lines(), *self.inferred.lines(), held, NOTICE]

    def plot(self) -> Drawing:
        """The three intervals of every figure, side by side. Needs matplotlib."""
        columns = {name: np.array(each) for name, each in self.to_columns().items()}
        places, names = np.arange(len(self.real.figures)), columns["name"].tolist()
        figure, ax = blank_figure(6.4, max(1.8, 0.5 * places.size + 1.2))
        for shift, (way, color) in enumerate((("real", "#1f2937"), ("synthetic", "#c2410c"), ("infer", "#2563eb"))):
            value, low, high = (columns[way + end].astype(np.float64) for end in ("", "_low", "_high"))
            reach = np.nan_to_num([np.maximum(value - low, 0), np.maximum(high - value, 0)])
            ax.errorbar(value, places + 0.2 * (shift - 1), xerr=reach, fmt="o", ms=4, color=color, label=way)
        ax.set_yticks(places, names, fontsize=8)
        ax.invert_yaxis()
        ax.legend(frameon=False, fontsize=8)
        ax.set_title(f"PRIVATE: {self.real.question}", loc="left", fontsize=10, fontweight="bold")
        return figure


class _OfRows(Inquiry):
    """A question as it is asked, of rows with their raw values in place of records."""

    def __init__(self, inquiry: Inquiry, frame: pl.DataFrame) -> None:
        vars(self).update(vars(inquiry))
        self.notes, self.cautions = [], []
        schema, asked = self.model.schema, sorted(self.asked.attributes)
        rows = frame.select(tuple(schema.columns))
        codes, finer = encode(rows, schema), encode(rows, self.finer.schema)
        kept = (codes[asked] >= 0).all(axis=0)
        self.rows, self.left_out = int(kept.sum()), int((~kept).sum())
        self.effects = replace(self.effects, n_rows=self.rows)
        self._codes, self._finer, self._frame = codes[:, kept], finer[:, kept], frame.filter(pl.Series(kept))

    def levels(self, codes: Codes, attribute: int) -> Codes:  # noqa: ARG002
        """The level of each row."""
        return np.asarray(self._codes[attribute].astype(np.int64))

    def holds(self, predicate: Expression | None, codes: Codes) -> Floats:  # noqa: ARG002
        """1 for rows that satisfy a predicate, else 0."""
        if predicate is None:
            return np.ones(self.rows)
        tree = lift(predicate, self.finer)
        return tree.holds({i: self._finer[i] for i in tree.attributes}).astype(np.float64)

    def runs(self, codes: Codes) -> Iterator[Floats]:  # noqa: ARG002
        """Rows as they are."""
        yield np.ones(self.rows)

    def range(self, product: Product) -> tuple[float, float]:  # noqa: ARG002
        """Rows have the numbers that they have."""
        return -np.inf, np.inf

    def numbers(self, attribute: int, codes: Codes) -> Floats:
        """The raw number of each row, where its level has a score."""
        own, scores = self.model.schema.attributes[attribute], super().numbers(attribute, codes)
        if own.binned and own.name not in self.declared:
            values = read_values(self._frame.get_column(own.column), own)[0] / unit_of(own)[0]
            scores = np.where(np.isnan(scores), np.nan, values)
        return scores

    def answer(self, like: Inference, about: str) -> Inference:
        """The analysis of these rows, titled as that of `infer` is."""
        if not self.rows:
            raise QueryError("no row has a level of each of these columns. Name other columns, or mend the schema.")
        names, statistic = weigh(self, self._codes.T.astype(np.int64))
        generator, drawn = np.random.Generator(np.random.SFC64(_SEED)), list[Floats]()
        estimate = statistic(np.full(self.rows, 1 / self.rows))
        for _ in range(_TABLES):
            weights = generator.poisson(1.0, self.rows).astype(np.float64)
            drawn.append(statistic(weights / max(weights.sum(), 1.0)))
        errors = np.std(drawn, axis=0, ddof=1)
        figures, exact = list[Figure](), dict[str, Any](measured=1.0, noise_error=0.0, model_error=0.0)
        for name, value, error in zip(names, estimate.tolist(), errors.tolist(), strict=True):
            ends = dict[str, Any](low=value - self.quantile * error, high=value + self.quantile * error)
            figures.append(
                Figure(name=name, estimate=value, standard_error=error, sampling_error=error, **ends, **exact)
            )
        plain = replace(like, notes=(), cautions=(), joint={}, limits={})
        return replace(plain, figures=tuple(figures), n_rows=self.rows, about=about)


def compare(
    real: object,
    model: Model | str | Path,
    question: str,
    *,
    level: float = DEFAULT_LEVEL,
    seed: int = 0,
    plot: str | Path | None = None,
) -> Compared:
    """The same analysis of real rows, of as many synthetic ones, and by `infer`. PRIVATE: for the custodian's eyes.

    `plot` (.png) is a file to write, PRIVATE as well. `seed` draws the synthetic rows.
    """
    target = None if plot is None else check_target(plot, (".png",), real, model)
    model = model if isinstance(model, Model) else load(model)
    inquiry = Inquiry(model, question, level=level, target="table")
    if inquiry.asked.kind == "independent":
        raise QueryError("a test has no figures to compare. Ask for a difference or a correlation.")
    own = _OfRows(inquiry, pl.concat(rows_that_count(real, model.schema)[1]))
    drawn, found = _OfRows(inquiry, model.sample(seed=seed)), answer_to(inquiry)
    made = Compared(
        real=own.answer(found, "the real rows"),
        synthetic=drawn.answer(found, "synthetic rows as if they were real"),
        inferred=found,
        left_out=own.left_out,
    )
    if target is not None:
        with replacing(target, private=True) as temporary:
            made.plot().savefig(temporary, format="png", dpi=110)
    return made
