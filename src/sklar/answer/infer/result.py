"""What inference hands back: figures with errors and intervals, what they are about, and when not to rely on them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from sklar.answer.infer.independence import WaldTest
from sklar.machine.notebook import html_card

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Target = Literal["population", "table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure: an estimate, its standard error and its interval, whose ends are None where it has none.

    `measured` is the share of the statistic that noisy tables speak of directly, R^2 of its influence function; the
    model alone speaks of the rest. The standard error is made of that of the noise, of sampling from a population (None
    where the table itself is the target), and of the model. `p_value` is that of the hypothesis that it is 0, where 0
    means no effect.
    """

    name: str
    estimate: float
    standard_error: float
    low: float | None
    high: float | None
    measured: float
    noise_error: float
    sampling_error: float | None
    model_error: float
    p_value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """The answer to a question: figures, or a test; what it is about; notes on how it was found, and cautions.

    A caution is a sentence on why a figure should not be relied on. `target` is the population that the table came
    from, or the table itself, as it is coded.
    """

    question: str
    statistic: str
    target: Target
    level: float
    n_rows: int
    figures: tuple[Figure, ...] = ()
    test: WaldTest | None = None
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        shown = self.to_polars()
        about = "the population" if self.target == "population" else "the table itself"
        facts = {"about": f"{about}, {self.n_rows:,} rows"} | {
            f"caution {number}": text for number, text in enumerate(self.cautions, start=1)
        }
        return html_card(self.statistic, facts, shown.to_dict(as_series=False), note=" ".join(self.notes))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def to_polars(self) -> pl.DataFrame:
        """The figures as a table of polars, one row each."""
        import polars as pl

        rows = [asdict(figure) for figure in self.figures]
        if self.test is not None:
            rows = [{"name": self.question, **asdict(self.test)}]
        return pl.DataFrame(rows, infer_schema_length=None)

    def to_pandas(self) -> pd.DataFrame:
        """The same as a table of pandas."""
        from sklar.machine.extras import require

        require("pandas", what="a table of pandas", package="pandas", extra="pandas")
        import pandas as pd

        return pd.DataFrame(self.to_polars().to_dict(as_series=False))

    def lines(self) -> list[str]:
        """For a person to read."""
        about = "the population that the table came from" if self.target == "population" else "the table itself"
        lines = [f"{self.statistic}, of {about} ({self.n_rows:,} rows):"]
        if self.test is not None:
            shown = f"{self.test.p_value:.3g}" if self.test.p_value >= 1e-4 else "below 0.0001"
            lines += [
                f"  chi-square {self.test.statistic:,.1f}, {self.test.degrees:,} degrees of freedom, p-value {shown}",
                f"  {_verdict(self.test, self.level)}",
            ]
        if self.figures:
            lines += self._table()
        lines += [f"  note: {note}" for note in self.notes]
        return lines + [f"  CAUTION: {caution}" for caution in self.cautions]

    def _table(self) -> list[str]:
        tested = any(figure.p_value is not None for figure in self.figures)
        head = ["", "estimate", "std. error", f"{100 * self.level:.4g}% interval", "measured"]
        rows = [[*head, "p-value"] if tested else head]
        for figure in self.figures:
            digits = _digits(figure.standard_error)
            if figure.low is None or figure.high is None:
                interval = "unbounded"
            else:
                interval = f"{figure.low:,.{digits}f} to {figure.high:,.{digits}f}"
            row = [
                figure.name,
                f"{figure.estimate:,.{digits}f}",
                "" if figure.low is None else f"{figure.standard_error:,.{digits}f}",
                interval,
                f"{100 * figure.measured:.0f}%",
            ]
            rows.append([*row, "" if figure.p_value is None else f"{figure.p_value:.2g}"] if tested else row)
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = []
        for name, *cells in rows:
            shown = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
            lines.append("  ".join(["", name.ljust(widths[0]), *shown]).rstrip())
        return lines


def _verdict(test: WaldTest, level: float) -> str:
    if test.p_value < 1 - level:
        return f"independence is rejected at the level {1 - level:.4g}"
    return f"independence is not rejected at the level {1 - level:.4g}; that does not prove it"


def _digits(error: float) -> int:
    """Decimals that show two digits of a standard error."""
    if not math.isfinite(error) or error <= 0:
        return 4
    return int(min(max(1 - math.floor(math.log10(error)), 0), 10))
