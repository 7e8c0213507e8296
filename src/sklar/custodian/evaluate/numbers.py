"""Raw values of a release beside the real ones, column by column: distances, moments, quantiles, heaps, rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.custodian.evaluate.look import Looked, Seen
from sklar.custodian.evaluate.rounding import steps_of
from sklar.custodian.evaluate.sketch import Distribution, ks_distance, wasserstein_distance
from sklar.custodian.evaluate.values import special_texts
from sklar.public.schema import Attribute

_SECOND = 1e6
PERCENTILES = (1, 5, 25, 50, 75, 95, 99)

# A heap has at least this share of the rows, and this many times the mean share of the values next to it.
HEAP_SHARE = 0.01
HEAP_RATIO = 3.0
_NEIGHBORS = 2

# A text that a schema does not list is shown from this share on.
_SHOWN_TEXT = 0.001


# These values have no repr: a traceback or a debugger's log must not print what was read from rows.


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

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"what": self.what, "real": _figure(self.real), "synthetic": _figure(self.synthetic)}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Heap(Share):
    """A value that many rows have and that stands out from its neighbors; `value` is its place on the axis."""

    value: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Moments:
    """Mean, standard deviation, quantiles and range of the numbers of one table, on the attribute's axis."""

    numbers: int
    mean: float
    sd: float
    quantiles: tuple[float, ...]
    least: float
    largest: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "numbers": self.numbers,
            "mean": _figure(self.mean),
            "sd": _figure(self.sd),
            "quantiles": {str(at): _figure(value) for at, value in zip(PERCENTILES, self.quantiles, strict=True)},
            "least": _figure(self.least),
            "largest": _figure(self.largest),
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Numbers:
    """How the numbers of one column compare.

    `ks` is the largest difference of the distribution functions, `ks_error` by how much it may be off (0
    unless a column has too many distinct values to be kept one by one). `wasserstein` is in real standard deviations;
    None when the real numbers do not vary. `others` are how many numbers are not 0, of which `rounding` has shares.
    """

    ks: float
    ks_error: float
    wasserstein: float | None
    real: Moments
    synthetic: Moments
    heaps: tuple[Heap, ...]
    rounding: tuple[Share, ...]
    others: tuple[int, int]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ks": _figure(self.ks),
            "ks_error": _figure(self.ks_error),
            "wasserstein": None if self.wasserstein is None else _figure(self.wasserstein),
            "real": self.real.to_dict(),
            "synthetic": self.synthetic.to_dict(),
            "heaps": [{**heap.to_dict(), "value": _figure(heap.value)} for heap in self.heaps],
            "rounding": [share.to_dict() for share in self.rounding],
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Correlations:
    """Pearson's and Spearman's correlations of the columns on an axis, real and synthetic, each of shape (k, k).

    Values that do not vary have none: nan.
    """

    names: tuple[str, ...]
    pearson: tuple[NDArray[np.float64], NDArray[np.float64]]
    spearman: tuple[NDArray[np.float64], NDArray[np.float64]]
    sampled: tuple[int, int]

    def gaps(self) -> list[tuple[float, int, int]]:
        """The pairs i < j by the larger of their two differences, the largest first."""
        first, second = np.triu_indices(len(self.names), 1)
        apart = np.stack([np.abs(one - two)[first, second] for one, two in (self.pearson, self.spearman)])
        known = np.where(np.isnan(apart), -1.0, apart).max(axis=0)
        order = [int(k) for k in np.argsort(-known, kind="stable") if known[k] >= 0]
        return [(float(known[k]), int(first[k]), int(second[k])) for k in order]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "columns": list(self.names),
            **{
                name: {"real": _matrix(one), "synthetic": _matrix(two)}
                for name, (one, two) in (("pearson", self.pearson), ("spearman", self.spearman))
            },
            "spearman_rows": {"real": self.sampled[0], "synthetic": self.sampled[1]},
            "largest_difference": round(self.gaps()[0][0], 4) if self.gaps() else None,
        }


def _figure(value: float) -> float:
    """Ten digits are more than any figure here is good for."""
    return float(f"{value:.10g}")


def _matrix(values: NDArray[np.float64]) -> list[list[float | None]]:
    return [[None if math.isnan(value) else round(float(value), 6) for value in row] for row in values]


def compare_numbers(real: Seen, synthetic: Seen) -> Numbers | None:
    """Compare the numbers of one column; None unless both tables have some."""
    one, two = real.numbers, synthetic.numbers
    if one is None or two is None:
        return None
    others = one.size - round(one.share(0.0) * one.size), two.size - round(two.share(0.0) * two.size)
    return Numbers(
        ks=ks_distance(one, two),
        ks_error=one.widest + two.widest,
        wasserstein=wasserstein_distance(one, two) / one.sd if one.sd > 0 else None,
        real=_moments(one),
        synthetic=_moments(two),
        heaps=_heaps(one, two, real.attribute),
        rounding=_rounding(real, synthetic, others),
        others=others,
    )


def compare_correlations(real: Looked, synthetic: Looked) -> Correlations | None:
    """Compare the correlations of all columns on an axis; None with fewer than two of them."""
    if len(real.numbers) < 2:
        return None
    return Correlations(
        names=tuple(real.columns[index].attribute.name for index in real.numbers),
        pearson=(real.pearson, synthetic.pearson),
        spearman=(real.spearman, synthetic.spearman),
        sampled=(real.sampled, synthetic.sampled),
    )


def compare_texts(real: Looked, synthetic: Looked, index: int) -> tuple[Share, ...]:
    """Shares of the texts in a column of numbers: those that the schema lists, and others that are not rare."""
    one, two = real.columns[index].texts, synthetic.columns[index].texts
    listed = special_texts(real.columns[index].attribute)
    shares = [
        Share(what=text, real=one.get(text, 0) / real.n_rows, synthetic=two.get(text, 0) / synthetic.n_rows)
        for text in dict.fromkeys([*listed, *one, *two])
    ]
    return tuple(each for each in shares if each.what in listed or max(each.real, each.synthetic) >= _SHOWN_TEXT)


def _moments(held: Distribution) -> Moments:
    quantiles = held.quantiles(np.array(PERCENTILES) / 100)
    return Moments(
        numbers=held.size,
        mean=held.mean,
        sd=held.sd,
        quantiles=tuple(quantiles.tolist()),
        least=float(held.low[0]),
        largest=float(held.high[-1]),
    )


def _heaps(real: Distribution, synthetic: Distribution, attribute: Attribute) -> tuple[Heap, ...]:
    """Values that stand out in either table, by their share in the real one."""
    found = [float(held.low[place]) for held in (real, synthetic) for place in np.flatnonzero(_heaped(held))]
    heaps = [
        Heap(what=text(attribute, value), value=value, real=real.share(value), synthetic=synthetic.share(value))
        for value in dict.fromkeys(found)
    ]
    return tuple(sorted(heaps, key=lambda heap: (-heap.real, -heap.synthetic)))


def _heaped(held: Distribution) -> NDArray[np.bool_]:
    return np.asarray(standing_out(held.counts) & held.single)


def standing_out(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which cells are heaps: many rows have them, and many more than their neighbors on both sides together."""
    if counts.size == 1:
        return np.array([True])
    shares = counts / counts.sum()
    padded = np.concatenate([np.zeros(_NEIGHBORS), shares, np.zeros(_NEIGHBORS)])
    window = np.lib.stride_tricks.sliding_window_view(padded, 2 * _NEIGHBORS + 1).sum(axis=1) - shares
    here = np.concatenate([np.zeros(_NEIGHBORS), np.ones(shares.size), np.zeros(_NEIGHBORS)])
    neighbors = np.lib.stride_tricks.sliding_window_view(here, 2 * _NEIGHBORS + 1).sum(axis=1) - 1
    return np.asarray((shares >= HEAP_SHARE) & (shares >= HEAP_RATIO * window / neighbors))


def _rounding(real: Seen, synthetic: Seen, others: tuple[int, int]) -> tuple[Share, ...]:
    """Shares of round numbers among those other than 0, for the steps that a number of this size can show."""
    if real.numbers is None or 0 in others:
        return ()
    largest = max(abs(real.numbers.low[0]), abs(real.numbers.high[-1]))
    return tuple(
        Share(what=step.name, real=real.round[place] / others[0], synthetic=synthetic.round[place] / others[1])
        for place, step in enumerate(steps_of(real.attribute.kind))
        if largest >= step.least
    )


def text(attribute: Attribute, value: float) -> str:
    """A point on the axis as a person writes it, a mean or quantile too.

    >>> text(Attribute(name="x", kind="real", edges=(0.0, 1.0)), 1234.5678)
    '1,234.6'
    """
    if attribute.kind in ("integer", "real"):
        digits = 0 if value == int(value) or abs(value) >= 1e5 else max(0, 5 - len(str(int(abs(value)))))
        written = f"{value:,.{digits}f}" if 1e-3 <= abs(value) < 1e15 or value == 0 else f"{value:.4g}"
        return written.rstrip("0").rstrip(".") if "." in written and "e" not in written else written
    if attribute.kind in _TIMED:
        value = round(value / _SECOND) * _SECOND
    return attribute.edge_text(round(value))


def brief(attribute: Attribute, value: float) -> str:
    """The same where there is little room: moments to the minute.

    >>> brief(Attribute(name="x", kind="datetime", edges=(0, 1)), 90_000_000)
    '1970-01-01 00:01'
    """
    written = text(attribute, value)
    return written[:16].replace("T", " ") if attribute.kind == "datetime" else written


_TIMED = ("datetime", "time", "duration")
_UNITS = {"date": "days", "year": "years", "yearmonth": "months"}
_WIDTHS = ((86_400 * _SECOND, "days"), (3_600 * _SECOND, "h"), (60 * _SECOND, "min"), (_SECOND, "s"))


def width_text(attribute: Attribute, width: float) -> str:
    """A distance along the axis as a person writes it: a standard deviation, say.

    >>> width_text(Attribute(name="x", kind="datetime", edges=(0, 1)), 5_400_000_000)
    '1.5 h'
    """
    if attribute.kind in _TIMED:
        size, unit = next((each for each in _WIDTHS if width >= each[0]), _WIDTHS[-1])
        return f"{width / size:,.1f} {unit}"
    if attribute.kind in ("integer", "real"):
        return text(attribute, width)
    return f"{width:,.{0 if width >= 1_000 else 1}f} {_UNITS.get(attribute.kind, '')}".rstrip()
