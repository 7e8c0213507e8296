"""Raw values of a release beside the real ones, by columns: what is lost beyond chance, and whether to use a column.

These values have no repr: a traceback or a debugger's log must not print what was read from rows.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.custodian.evaluate.raw import Categories, Distribution, Floats, RawColumn, distance, is_sampled
from sklar.machine.wording import said, stated
from sklar.public.schema import Attribute

Verdict: TypeAlias = Literal["use", "with care", "do not use"]
VERDICTS: tuple[Verdict, ...] = ("use", "with care", "do not use")
PERCENTILES = (1, 5, 25, 50, 75, 95, 99)
# A heap has at least this share of the rows, and this many times the mean share of so many values next to it.
HEAP_SHARE, HEAP_RATIO, _NEIGHBORS = 0.01, 3.0, 2
# A text that a schema does not list is shown from this share on.
_SHOWN_TEXT = 0.001
LIMITS: Mapping[str, Sequence[float]] = stated("sklar.custodian", "said.toml")["limits"]
# Standard errors that are put down to chance. Two tables of one continuous law have a KS distance beyond `CHANCE_KS`
# times the square root once in a hundred times; the limits come on top.
CHANCE, CHANCE_KS = 3.0, 1.63
# A number with at most so many values is compared value by value, too; a tail is judged from so many rows on.
_FEW_VALUES, _TAIL_ROWS = 64, 10
_JUDGED = (5, 25, 50, 75, 90, 95, 99)

_SECOND, UNTOLD = 1e6, "too few rows to tell"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Reason:
    """Why something is not simply to be used: which figure, in words, and how far it is beyond its last limit."""

    figure: str
    words: str
    verdict: Verdict
    beyond: float


def weigh(figure: str, lost: float, chance: float, words: str) -> Iterator[Reason]:
    """The reason that a loss is, if it is one: what is beyond chance, against the limits."""
    some, most = LIMITS[figure]
    beyond = min(lost - chance, 1.0)
    if beyond > some:
        yield Reason(figure=figure, words=words, verdict=VERDICTS[1 + (beyond > most)], beyond=beyond / most)


def untold(figure: str, chance: float, words: str) -> Iterator[Reason]:
    """Say that rows are too few to tell, where chance alone may lose as much as is not to be used."""
    if chance > LIMITS[figure][1]:
        yield Reason(figure=UNTOLD, words=words, verdict="with care", beyond=0.0)


def badness(reason: Reason) -> tuple[int, float]:
    """By this the worst reason comes first."""
    return -VERDICTS.index(reason.verdict), -reason.beyond


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of them."""
    return VERDICTS[max((VERDICTS.index(each) for each in verdicts), default=0)]


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """All are to be used if each is; if more than half of them are not to be used, they are not."""
    times = Counter(verdicts)
    return VERDICTS[(times["use"] < len(verdicts)) + (2 * times["do not use"] > len(verdicts))]


def chance_of_shares(shares: Floats, rows: tuple[int, int], times: Floats | float = 1.0) -> float:
    """How large a total variation distance chance makes of these shares: what is to be expected, and three errors."""
    spread = np.sqrt(shares * (1 - shares) * (1 / rows[0] + 1 / rows[1]))
    expected = np.minimum(math.sqrt(2 / math.pi) * spread, 2 * shares)
    return float((times * expected).sum() + CHANCE * math.sqrt((times * spread**2).sum())) / 2


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Kept:
    """What is left of a column's values: the shares of the rows whose value survives, and whose value is there at all.

    Values survive as far as both tables have them: the sum over values of the smaller share. `values` are how many the
    real rows have, of which `found` are there; `chance` is what chance alone loses. `lost` are the real values that
    lose most, with their shares.
    """

    survive: float
    present: float
    values: int
    found: int
    chance: float
    lost: tuple[Share, ...]

    def __str__(self) -> str:
        return f"{self.survive:.1%} of the rows keep their value, {self.found:,} of {self.values:,} values are left"


def compare_values(real: Categories, other: Categories) -> Kept:
    """Value by value; where only a share of the rare ones was kept, they stand for all."""
    both = real.frame.join(other.frame, on="key", how="full", coalesce=True, suffix="_other")
    one, two = (both[name].fill_null(0).to_numpy() for name in ("counts", "counts_other"))
    shares, given = one / real.size, two / other.size
    bits, common = max(real.bits, other.bits), np.maximum(shares, given) >= 2.0**-10
    sampled = both.select(is_sampled(bits)).to_series().to_numpy()
    times = np.where(common | (bits == 0), 1.0, np.where(sampled, 2.0**bits, 0.0))
    first = [at for at in np.argsort(given - shares, kind="stable")[:2].tolist() if shares[at] > given[at]]
    lost = [Share(what=both["text"][at], real=float(shares[at]), synthetic=float(given[at])) for at in first]
    return Kept(
        survive=min(1.0, float(times @ np.minimum(shares, given))),
        present=min(1.0, float(times @ np.where(two > 0, shares, 0.0))),
        values=round(float(times @ (one > 0))),
        found=round(float(times @ ((one > 0) & (two > 0)))),
        chance=min(1.0, chance_of_shares(shares, (real.size, other.size), times)),
        lost=tuple(lost),
    )


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

    def chance(self, rows: tuple[int, int]) -> float:
        """How far apart chance may take them, in tables of so many rows."""
        pooled = (self.real * rows[0] + self.synthetic * rows[1]) / max(sum(rows), 1)
        return CHANCE * math.sqrt(max(pooled * (1 - pooled), 0.0) * sum(1 / max(each, 1) for each in rows))

    def __str__(self) -> str:
        return f"{self.synthetic:.1%} for {self.real:.1%}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Numbers:
    """How the numbers of one column compare.

    `ks` is the largest difference of the distribution functions, `ks_error` by how much it may be off where a column
    has too many distinct values to keep each. `heaps` are values that stand out from their neighbors.
    """

    ks: float
    ks_error: float
    real: Distribution
    synthetic: Distribution
    heaps: tuple[Share, ...]

    def to_dict(self, rows: tuple[int, int]) -> dict[str, Any]:
        """For JSON. The relative error of the total is that of the mean over all rows, with or without a number."""
        document: dict[str, Any] = {"ks": self.ks, "ks_error": self.ks_error}
        off = self.synthetic.mean / self.real.mean if self.real.mean else math.nan
        held = self.synthetic.size / rows[1] / (self.real.size / rows[0])
        errors = {"mean_error": off - 1, "total_error": off * held - 1}
        document |= {name: None if math.isnan(error) else error for name, error in errors.items()}
        for name, each in (("real", self.real), ("synthetic", self.synthetic)):
            quantiles = dict(zip(map(str, PERCENTILES), each.percentiles(PERCENTILES), strict=True))
            moments = {"numbers": each.size, "mean": each.mean, "sd": each.sd, "quantiles": quantiles}
            document[name] = moments | {"least": float(each.low[0]), "largest": float(each.high[-1])}
        return document | {"heaps": [*map(asdict, self.heaps)]}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ColumnFit:
    """How one attribute of a release compares with the real one, and whether to use it.

    `tv` is the total variation distance over its levels. `missing` is None where raw values were not read; `kept` is
    there for categories and for numbers of few values, `numbers` where both tables have some, `clock` for times: the
    total variation distances by hour of the day and by weekday, and what chance makes them. `reasons` say why not
    simply to use it, the worst first.
    """

    attribute: Attribute
    tv: float
    rows: tuple[int, int]
    missing: Share | None = None
    texts: tuple[Share, ...] = ()
    kept: Kept | None = None
    numbers: Numbers | None = None
    clock: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()

    @property
    def name(self) -> str:
        """The attribute's name."""
        return self.attribute.name

    @property
    def absent(self) -> tuple[Share, ...]:
        """The shares of missing values and of texts, where one of the tables has any."""
        every = self.texts if self.missing is None else (self.missing, *self.texts)
        return tuple(share for share in every if max(share.real, share.synthetic) > 0)

    @property
    def verdict(self) -> Verdict:
        """Whether to use it."""
        return worst(each.verdict for each in self.reasons)

    @property
    def mean(self) -> str:
        """Both means in words, and which numbers they leave out: special values and the missing text, but no heaps."""
        if self.numbers is None:
            return ""
        own = self.attribute
        both = (brief(own, each.mean) for each in (self.numbers.synthetic, self.numbers.real))
        coded = [str(value) for value, at in zip(own.special, own.special_numbers, strict=True) if at is not None]
        out = [f"{each.what} ({each})" for each in self.absent if each.what in coded]
        if own.missing_number is not None:
            out += [f"{own.missing}, which says missing" for each in self.absent if each.what == "missing"]
        return f"mean {' for '.join(both)}" + (f" without {', '.join(out)}" if out else "")

    @property
    def told(self) -> str:
        """Its main figure in words."""
        if self.numbers is not None:
            return f"KS {self.numbers.ks:.3f}, {self.mean}"
        return f"total variation of its levels {self.tv:.3f}" if self.kept is None else str(self.kept)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        missing, numbers, kept = self.missing, self.numbers, self.kept
        document: dict[str, Any] = {"name": self.name, "type": self.attribute.kind, "verdict": self.verdict}
        document |= {"reasons": [*map(asdict, self.reasons)], "total_variation": self.tv}
        document["missing"] = None if missing is None else {"real": missing.real, "synthetic": missing.synthetic}
        document |= {"values": None if kept is None else asdict(kept), "texts": [*map(asdict, self.texts)]}
        document["clock"] = {name: lost for name, (lost, _) in self.clock.items()}
        return dict(to_figures(document | {"numbers": None if numbers is None else numbers.to_dict(self.rows)}))


def to_figures(document: Any) -> Any:
    """The same with ten digits of every float, which is more than any figure here is good for."""
    return json.loads(json.dumps(document), parse_float=lambda digits: float(f"{float(digits):.10g}"))


def compare_column(attribute: Attribute, tv: float, raw: Sequence[RawColumn], rows: tuple[int, int]) -> ColumnFit:
    """Compare one column of tables of so many rows: its raw values too where they were read."""
    fit = ColumnFit(attribute=attribute, tv=tv, rows=rows, **_of_values(attribute, rows, *raw) if raw else {})
    return replace(fit, reasons=tuple(sorted(_reasons(fit), key=badness)))


def _of_values(attribute: Attribute, rows: tuple[int, int], real: RawColumn, other: RawColumn) -> dict[str, Any]:
    missing = Share(what="missing", real=real.missing / rows[0], synthetic=other.missing / rows[1])
    listed = [str(value) for value in attribute.special]
    texts = (
        Share(what=text, real=real.texts[text] / rows[0], synthetic=other.texts[text] / rows[1])
        for text in dict.fromkeys([*listed, *real.texts, *other.texts])
    )
    shown = tuple(each for each in texts if each.what in listed or max(each.real, each.synthetic) >= _SHOWN_TEXT)
    numbers, clock, values = compare_numbers(real, other), dict[str, tuple[float, float]](), None
    if numbers is not None:
        sizes = numbers.real.size, numbers.synthetic.size
        for name, counts in real.clock.items():
            one, two = counts / sizes[0], other.clock[name] / sizes[1]
            clock[name] = float(np.abs(one - two).sum() / 2), chance_of_shares(one, sizes)
    if real.categories is not None and other.categories is not None:
        values = compare_values(real.categories, other.categories)
    elif numbers is not None and numbers.real.bits == 0 and numbers.real.counts.size <= _FEW_VALUES:
        values = compare_values(*(_few(attribute, each) for each in (numbers.real, numbers.synthetic)))
    return {"missing": missing, "texts": shown, "kept": values, "numbers": numbers, "clock": clock}


def _few(attribute: Attribute, held: Distribution) -> Categories:
    """The values of a number as categories."""
    texts = [text(attribute, value) for value in held.center.tolist()]
    frame = pl.DataFrame({"key": held.center, "text": texts, "counts": held.counts})
    return Categories(frame=frame, size=held.size, bits=0)


def compare_numbers(real: RawColumn, synthetic: RawColumn) -> Numbers | None:
    """Compare the numbers of one column; None unless both tables have some."""
    one, two = real.numbers, synthetic.numbers
    if one is None or two is None:
        return None
    # Values that stand out in either table, by their share in the real one.
    heaped = [held.low[standing_out(held.counts) & held.single] for held in (one, two)]
    heaps = [
        Share(what=text(real.attribute, value), real=one.share(value), synthetic=two.share(value))
        for value in dict.fromkeys(np.concatenate(heaped).tolist())
    ]
    return Numbers(
        ks=distance(one, two),
        ks_error=one.widest + two.widest,
        real=one,
        synthetic=two,
        heaps=tuple(sorted(heaps, key=lambda heap: (-heap.real, -heap.synthetic))),
    )


def standing_out(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which cells are heaps: many rows have them, and many more than their neighbors on both sides together."""
    if counts.size == 1:
        return np.array([True])
    window = np.ones(2 * _NEIGHBORS + 1, dtype=np.int64)
    window[_NEIGHBORS] = 0
    around, neighbors = (np.convolve(each, window)[_NEIGHBORS:-_NEIGHBORS] for each in (counts, np.ones_like(counts)))
    return np.asarray((counts / counts.sum() >= HEAP_SHARE) & (counts * neighbors >= HEAP_RATIO * around))


def _reasons(column: ColumnFit) -> Iterator[Reason]:
    """All that is lost, in any order."""
    numbers, missing, kept, rows = column.numbers, column.missing, column.kept, column.rows
    if digits := column.attribute.prefix:
        yield Reason(figure="values", words=said("custodian.cut", n=digits), verdict="with care", beyond=0.0)
    if kept is not None:
        gone = ", ".join(f"{each.what!r}: {each}" for each in kept.lost)
        yield from weigh("values", 1 - kept.survive, kept.chance, f"{kept}" + (f" ({gone})" if gone else ""))
        # A value that no row has may still have a share of up to 3 / rows (the rule of three).
        yield from untold("ks", kept.chance + 3 / min(rows), said("custodian.rare", chance=kept.chance))
    if missing is None:
        words = f"total variation of its levels {column.tv:.3f}; raw values are not compared"
        yield from weigh("values", column.tv, CHANCE * math.sqrt(0.25 / rows[0] + 0.25 / rows[1]), words)
        return
    if numbers is not None:
        yield from _reasons_of_numbers(column, numbers)
    elif column.attribute.binned:
        words = "only one of the tables has numbers, or neither"
        yield Reason(figure="values", words=words, verdict="do not use", beyond=1 / LIMITS["values"][1])
    for name, (lost, chance) in column.clock.items():
        yield from weigh(name, lost, chance, f"{name}: {lost:.0%} of the rows have another")
    for what, share in (("missing", missing), *((f"text {each.what!r}", each) for each in column.texts)):
        yield from weigh("missing", share.gap, share.chance(rows), f"{what}: {share}")


def _reasons_of_numbers(column: ColumnFit, numbers: Numbers) -> Iterator[Reason]:
    attribute, real, other = column.attribute, numbers.real, numbers.synthetic
    sizes = real.size, other.size
    error = math.sqrt(1 / sizes[0] + 1 / sizes[1])
    yield from weigh("ks", numbers.ks, CHANCE_KS * error, f"KS {numbers.ks:.3f}")
    yield from untold("ks", CHANCE_KS * error, said("custodian.few", n=min(sizes), ks=CHANCE_KS * error))
    for heap in numbers.heaps:
        yield from weigh("heap", heap.gap, heap.chance(sizes), f"exactly {heap.what}: {heap}")
    if attribute.kind == "weekday":
        # Days of a week have an order, but no mean and no quantiles.
        return
    # Errors of amounts are relative to the amount; of numbers without a natural zero, to the standard deviation.
    amount = attribute.kind in ("integer", "real", "duration") and real.low[0] >= 0

    def relative(true: float, given: float) -> float:
        return abs(given - true) / max(abs(true) if amount else 0.0, 0.01 * real.sd if amount else real.sd, 1e-300)

    off = relative(real.mean, other.mean)
    sure = off * CHANCE * (real.sd or other.sd) * error / abs(real.mean - other.mean) if off else 0.0
    yield from weigh("mean", off, sure, column.mean)
    # The errors of quantiles are those of many rows.
    if CHANCE_KS * error <= LIMITS["ks"][1]:
        yield from _quantiles(attribute, numbers, relative, error)
    beyond = real.center > other.high[-1]
    if amount and real.counts[beyond].sum() >= _TAIL_ROWS:
        cut = float(real.counts[beyond] @ (real.center[beyond] - other.high[-1])) / (real.mean * real.size)
        where = f"the largest is {text(attribute, other.high[-1])} for {text(attribute, real.high[-1])}"
        yield from weigh("tail", cut, 0.0, f"{where}: {cut:.0%} of the total lies beyond")


def _quantiles(
    attribute: Attribute, numbers: Numbers, relative: Callable[[float, float], float], error: float
) -> Iterator[Reason]:
    """The quantile that is off most, where chance would leave it within those around it."""
    found, both = [(0.0, "")], [each.percentiles(_JUDGED) for each in (numbers.real, numbers.synthetic)]
    for percent, true, given in zip(_JUDGED, *both, strict=True):
        slack = CHANCE * error * math.sqrt(percent * (100 - percent))
        low, high = numbers.real.percentiles([max(percent - slack, 1e-9), min(percent + slack, 100.0)])
        # Nothing is known beyond the largest number.
        if given < low or (given > high and percent + slack < 100):
            words = f"{percent}% quantile {brief(attribute, given)} for {brief(attribute, true)}"
            found.append((relative(true, given), words))
    yield from weigh("quantiles", max(found)[0], 0.0, max(found)[1])


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
