"""Raw values of a release beside the real ones, by columns; warnings by stated thresholds, and one line over all.

These values have no repr: a traceback or a debugger's log must not print what was read from rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sklar.custodian.evaluate.raw import STEPS, Distribution, Floats, RawColumn, RawTable, distances
from sklar.public.schema import Attribute

PERCENTILES = (1, 5, 25, 50, 75, 95, 99)
# A heap has at least this share of the rows, and this many times the mean share of so many values next to it.
HEAP_SHARE, HEAP_RATIO, _NEIGHBORS = 0.01, 3.0, 2
# A text that a schema does not list is shown from this share on.
_SHOWN_TEXT = 0.001

# From here on a figure is called wrong. Chosen for readers, not fitted to tables: at a KS distance of 0.1 one row in
# ten is on the wrong side of some number.
THRESHOLDS = {
    "ks": 0.1,
    "total_variation": 0.1,
    "mean_in_real_sd": 0.1,
    "sd_relative": 0.15,
    "heap_share": 0.05,
    "rounding_share": 0.1,
    "missing_share": 0.05,
    "correlation": 0.1,
}
_NAMED = 4

_SECOND = 1e6
_UNITS = {"date": "days", "year": "years", "yearmonth": "months"}
_WIDTHS = ((86_400 * _SECOND, "days"), (3_600 * _SECOND, "h"), (60 * _SECOND, "min"), (_SECOND, "s"))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Share:
    """What share of the rows has something, in the real and in the synthetic table."""

    what: str
    real: float
    synthetic: float

    @property
    def gap(self) -> float:
        """How far apart both are."""
        return abs(self.real - self.synthetic)

    def __str__(self) -> str:
        return f"{self.synthetic:.1%} for {self.real:.1%}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Heap(Share):
    """A value that many rows have and that stands out from its neighbors; `value` is its place on the axis."""

    value: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Numbers:
    """How the numbers of one column compare.

    `ks` is the largest difference of the distribution functions, `ks_error` by how much it may be off where a column
    has too many distinct values to keep each. `wasserstein` is in real standard deviations; None when the real numbers
    do not vary. `others` are how many numbers are not 0, of which `rounding` has shares.
    """

    ks: float
    ks_error: float
    wasserstein: float | None
    real: Distribution
    synthetic: Distribution
    heaps: tuple[Heap, ...]
    rounding: tuple[Share, ...]
    others: tuple[int, int]

    @property
    def moved(self) -> str:
        """The Wasserstein distance as text; empty when the real numbers do not vary."""
        return "" if self.wasserstein is None else f"{self.wasserstein:.3f}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        document: dict[str, Any] = {name: getattr(self, name) for name in ("ks", "ks_error", "wasserstein")}
        for name, held in (("real", self.real), ("synthetic", self.synthetic)):
            quantiles = dict(zip(map(str, PERCENTILES), held.percentiles(PERCENTILES), strict=True))
            moments = {"numbers": held.size, "mean": held.mean, "sd": held.sd, "quantiles": quantiles}
            document[name] = moments | {"least": float(held.low[0]), "largest": float(held.high[-1])}
        return document | {name: [*map(asdict, getattr(self, name))] for name in ("heaps", "rounding")}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Correlations:
    """Correlations of the columns on an axis, real and synthetic, of shape (k, k): nan where values do not vary."""

    names: tuple[str, ...]
    pearson: tuple[Floats, Floats]
    spearman: tuple[Floats, Floats]
    sampled: tuple[int, int]

    @classmethod
    def of(cls, real: RawTable, other: RawTable) -> Self | None:
        """Those of two tables; None with fewer than two columns on an axis."""
        names = tuple(real.columns[index].attribute.name for index in real.numbers)
        pairs = {name: (getattr(real, name), getattr(other, name)) for name in ("pearson", "spearman", "sampled")}
        return cls(names=names, **pairs) if len(names) > 1 else None

    def gaps(self) -> list[tuple[float, int, int]]:
        """The pairs i < j by the larger of their two differences, the largest first."""
        first, second = np.triu_indices(len(self.names), 1)
        apart = np.stack([np.abs(one - two)[first, second] for one, two in (self.pearson, self.spearman)])
        known = np.where(np.isnan(apart), -1.0, apart).max(axis=0)
        order = [int(k) for k in np.argsort(-known, kind="stable") if known[k] >= 0]
        return [(float(known[k]), int(first[k]), int(second[k])) for k in order]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""

        def matrix(values: Floats) -> list[list[float | None]]:
            return [[None if math.isnan(value) else round(float(value), 6) for value in row] for row in values]

        gaps, both = self.gaps(), {"pearson": self.pearson, "spearman": self.spearman}
        return {
            "columns": list(self.names),
            **{name: {"real": matrix(one), "synthetic": matrix(two)} for name, (one, two) in both.items()},
            "spearman_rows": {"real": self.sampled[0], "synthetic": self.sampled[1]},
            "largest_difference": round(gaps[0][0], 4) if gaps else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ColumnFit:
    """How one attribute of a release compares with the real one.

    `tv` is the total variation distance over its levels. `missing` is None where raw values were not read, `numbers`
    also for categories, and where one of the tables has no number.
    """

    attribute: Attribute
    tv: float
    missing: Share | None = None
    texts: tuple[Share, ...] = ()
    numbers: Numbers | None = None

    @property
    def name(self) -> str:
        """The attribute's name."""
        return self.attribute.name

    @property
    def distance(self) -> float:
        """KS for numbers, total variation for categories: by this the worst column is found."""
        return self.tv if self.numbers is None else self.numbers.ks

    @property
    def absent(self) -> tuple[Share, ...]:
        """The shares of missing values and of texts, where one of the tables has any."""
        every = self.texts if self.missing is None else (self.missing, *self.texts)
        return tuple(share for share in every if max(share.real, share.synthetic) > 0)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is beyond a threshold, the worst kind first."""
        return tuple(_warn(self))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        missing, numbers = self.missing, self.numbers
        shares = None if missing is None else {"real": missing.real, "synthetic": missing.synthetic}
        document = {"name": self.name, "type": self.attribute.kind, "total_variation": self.tv, "missing": shares}
        texts, figures = [*map(asdict, self.texts)], None if numbers is None else numbers.to_dict()
        return document | {"texts": _figures(texts), "numbers": _figures(figures), "warnings": list(self.warnings)}


def _figures(document: Any) -> Any:
    """The same with ten digits of every float, which is more than any figure here is good for."""
    return json.loads(json.dumps(document), parse_float=lambda digits: float(f"{float(digits):.10g}"))


def compare_column(attribute: Attribute, tv: float, raw: Sequence[RawColumn], rows: tuple[int, int]) -> ColumnFit:
    """Compare one column of tables of so many rows: its raw values too where they were read."""
    if not raw:
        return ColumnFit(attribute=attribute, tv=tv)
    real, other = raw
    missing = Share(what="missing", real=real.missing / rows[0], synthetic=other.missing / rows[1])
    listed = [str(value) for value in attribute.special]
    texts = (
        Share(what=text, real=real.texts[text] / rows[0], synthetic=other.texts[text] / rows[1])
        for text in dict.fromkeys([*listed, *real.texts, *other.texts])
    )
    shown = tuple(each for each in texts if each.what in listed or max(each.real, each.synthetic) >= _SHOWN_TEXT)
    return ColumnFit(attribute=attribute, tv=tv, missing=missing, texts=shown, numbers=compare_numbers(real, other))


def compare_numbers(real: RawColumn, synthetic: RawColumn) -> Numbers | None:
    """Compare the numbers of one column; None unless both tables have some."""
    one, two = real.numbers, synthetic.numbers
    if one is None or two is None:
        return None
    others = one.size - round(one.share(0.0) * one.size), two.size - round(two.share(0.0) * two.size)
    # Values that stand out in either table, by their share in the real one.
    heaped = [held.low[standing_out(held.counts) & held.single] for held in (one, two)]
    heaps = [
        Heap(what=text(real.attribute, value), value=value, real=one.share(value), synthetic=two.share(value))
        for value in dict.fromkeys(np.concatenate(heaped).tolist())
    ]
    # Shares of round numbers among those other than 0, for the steps that a number of this size can show.
    largest = max(abs(one.low[0]), abs(one.high[-1]))
    rounding = [
        Share(what=name, real=real.round[place] / others[0], synthetic=synthetic.round[place] / others[1])
        for place, (name, least, _) in enumerate(STEPS.get(real.attribute.kind, ()))
        if largest >= least and 0 not in others
    ]
    ks, wasserstein = distances(one, two)
    return Numbers(
        ks=ks,
        ks_error=one.widest + two.widest,
        wasserstein=wasserstein / one.sd if one.sd > 0 else None,
        real=one,
        synthetic=two,
        heaps=tuple(sorted(heaps, key=lambda heap: (-heap.real, -heap.synthetic))),
        rounding=tuple(rounding),
        others=others,
    )


def standing_out(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which cells are heaps: many rows have them, and many more than their neighbors on both sides together."""
    if counts.size == 1:
        return np.array([True])
    window = np.ones(2 * _NEIGHBORS + 1, dtype=np.int64)
    window[_NEIGHBORS] = 0
    around, neighbors = (np.convolve(each, window)[_NEIGHBORS:-_NEIGHBORS] for each in (counts, np.ones_like(counts)))
    return np.asarray((counts / counts.sum() >= HEAP_SHARE) & (counts * neighbors >= HEAP_RATIO * around))


def _warn(column: ColumnFit) -> Iterator[str]:
    attribute, numbers, missing, most = column.attribute, column.numbers, column.missing, THRESHOLDS
    if attribute.prefix:
        yield f"compared are the first {attribute.prefix} characters of each code: the rest is left out"
    if numbers is not None:
        real, other = numbers.real, numbers.synthetic
        if numbers.ks > most["ks"]:
            yield f"KS {numbers.ks:.3f}, above {most['ks']:g}"
        for heap in sorted(numbers.heaps, key=lambda heap: -heap.gap):
            if heap.gap > most["heap_share"]:
                yield f"exactly {heap.what}: {heap}"
        if abs(real.mean - other.mean) > most["mean_in_real_sd"] * real.sd:
            yield f"mean {text(attribute, other.mean)} for {text(attribute, real.mean)}"
        if abs(real.sd - other.sd) > most["sd_relative"] * real.sd:
            yield f"standard deviation {width_text(attribute, other.sd)} for {width_text(attribute, real.sd)}"
        for worst in sorted(numbers.rounding, key=lambda share: -share.gap)[:1]:
            # Four standard errors of the difference of two shares: few numbers other than 0 differ much by chance.
            sizes = numbers.others
            pooled = (worst.real * sizes[0] + worst.synthetic * sizes[1]) / sum(sizes)
            likely = 4 * math.sqrt(pooled * (1 - pooled) * (1 / sizes[0] + 1 / sizes[1]))
            if worst.gap > max(most["rounding_share"], likely):
                yield f"{worst.what}: {worst}"
    elif attribute.binned and missing is not None:
        yield "only one of the tables has numbers, or neither"
    if column.tv > most["total_variation"]:
        yield f"total variation of its levels {column.tv:.3f}, above {most['total_variation']:g}"
    if missing is not None and missing.gap > most["missing_share"]:
        yield f"missing: {missing}"
    yield from (f"text {each.what!r}: {each}" for each in column.texts if each.gap > most["missing_share"])


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Verdict:
    """One line over all columns, and what it rests on. Chance alone rarely makes a KS distance above `chance_ks`."""

    line: str
    worst_column: str
    worst_distance: float
    numbers: int
    unusable_numbers: tuple[str, ...]
    columns_with_warnings: tuple[str, ...]
    chance_ks: float | None
    thresholds: Mapping[str, float] = field(default_factory=THRESHOLDS.copy)


def judge(columns: Sequence[ColumnFit], correlations: Correlations | None, rows: tuple[int, int]) -> Verdict:
    """One line over all columns of tables of so many rows."""
    most_ks, most_tv = THRESHOLDS["ks"], THRESHOLDS["total_variation"]
    warned = [each for each in columns if each.warnings]
    on_axis = [each for each in columns if each.attribute.binned and each.missing is not None]
    compared = any(each.numbers is not None for each in columns)
    unusable = [each for each in on_axis if each.numbers is None or each.numbers.ks > most_ks]
    unusable.sort(key=lambda each: -each.distance)
    wrong = [each for each in columns if not each.attribute.binned and each.tv > most_tv]
    rest = [each for each in warned if each not in unusable and each not in wrong]
    worst = max(columns, key=lambda each: each.distance)
    # The KS distance of two tables drawn from one continuous law exceeds this once in a hundred times.
    chance = 1.63 * math.sqrt(1 / rows[0] + 1 / rows[1]) if compared else None
    measure = "total variation" if worst.numbers is None else "KS"
    parts = [f"Worst column: {worst.name}, {measure} {worst.distance:.3f}"]
    if unusable:
        have, advice = ("has", "it as a number") if len(unusable) == 1 else ("have", "them as numbers")
        above = f"{len(unusable)} of {len(on_axis)} numbers {have} KS above {most_ks:g}"
        parts.append(f"{above}: do not use {advice} ({_names(unusable)})")
    elif compared:
        parts.append(f"no number has KS above {most_ks:g}")
    if wrong:
        have = "category has" if len(wrong) == 1 else "categories have"
        parts.append(f"{len(wrong)} {have} total variation above {most_tv:g} ({_names(wrong)})")
    if rest:
        parts.append(f"{len(rest)} more with warnings ({_names(rest)})")
    if correlations is not None:
        names, worst_gap = correlations.names, correlations.gaps()[:1]
        off = [each for each in worst_gap if each[0] > THRESHOLDS["correlation"]]
        parts += [f"a correlation is off by {gap:.2f} ({names[i]}, {names[j]})" for gap, i, j in off]
    if chance is not None and chance > most_ks:
        parts.append(f"with this few rows chance alone makes KS up to {chance:.2f}")
    return Verdict(
        line="; ".join(parts) + ".",
        worst_column=worst.name,
        worst_distance=worst.distance,
        numbers=len(on_axis),
        unusable_numbers=tuple(each.name for each in unusable),
        columns_with_warnings=tuple(each.name for each in warned),
        chance_ks=chance,
    )


def _names(columns: list[ColumnFit]) -> str:
    listed = ", ".join(column.name for column in columns[:_NAMED])
    return listed + (f" and {len(columns) - _NAMED} more" if len(columns) > _NAMED else "")


def text(attribute: Attribute, value: float) -> str:
    """A point on the axis as a person writes it, a mean or quantile too: 1,234.6 for 1234.5678."""
    if attribute.kind in ("integer", "real"):
        digits = 0 if value == int(value) or abs(value) >= 1e5 else max(0, 5 - len(str(int(abs(value)))))
        written = f"{value:,.{digits}f}" if 1e-3 <= abs(value) < 1e15 or value == 0 else f"{value:.4g}"
        return written.rstrip("0").rstrip(".") if "." in written and "e" not in written else written
    if attribute.axis.timed:
        value = round(value / _SECOND) * _SECOND
    return attribute.axis.text(round(value))


def brief(attribute: Attribute, value: float) -> str:
    """The same where there is little room: moments to the minute."""
    written = text(attribute, value)
    return written[:16].replace("T", " ") if attribute.kind == "datetime" else written


def width_text(attribute: Attribute, width: float) -> str:
    """A distance along the axis as a person writes it: a standard deviation, say."""
    if attribute.axis.timed:
        size, unit = next((each for each in _WIDTHS if width >= each[0]), _WIDTHS[-1])
        return f"{width / size:,.1f} {unit}"
    if attribute.kind in ("integer", "real"):
        return text(attribute, width)
    return f"{width:,.{0 if width >= 1_000 else 1}f} {_UNITS.get(attribute.kind, '')}".rstrip()
