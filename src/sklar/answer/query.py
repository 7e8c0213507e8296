"""Counts with error bars, and answers to predicates: post-processing of the noisy tables, at no privacy cost.

Noise scales are public, so the standard error of every sum of noisy cells is known exactly. A count over one attribute
is seen in its table and in the sums of two-way tables; over two in their own table; parities of up to three bits are
linear. Over more attributes the answer is that of `infer` about the share of rows: an interval where nearly all of it
was measured, else bounds that the noisy tables leave.

A row that stands in no cell of an attribute is missing from sums over its levels. Such a sum is used only where the
schema gives every value a level: it declares `missing` or `other`.

A predicate that cuts a bin is answered with the share of the bin that the model's shape gives it. The standard error
has a part for that share, as if nothing but its mean s were known: a beta distribution whose two parameters sum to 2,
with variance s (1 - s) / 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklar.answer import DEFAULT_LEVEL, effects
from sklar.answer.condition import divide_shapes, level_classes, limits_of, shown_limits
from sklar.answer.effects import Floats, NoisyTable, has_parities, normal_quantile
from sklar.answer.infer import infer
from sklar.answer.predicate import Expression, QueryError, borders, divide, parse
from sklar.budget.certificate import Measured
from sklar.draw.decode import Shape
from sklar.draw.repair import sample_codes
from sklar.fitting.density import rows_beyond
from sklar.machine.notebook import Tabular, html_card
from sklar.public.rules import constrained

if TYPE_CHECKING:
    from sklar.files.model import Model

# Classes of rows that the model's exact answer may tell apart; beyond it, rows are drawn and counted.
_MAX_CLASSES = 1 << 20
_MAX_SAMPLED = 1_000_000
_SAMPLE_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Estimate(Tabular):
    """A one- or two-way table of unbiased estimates with intervals; one cut at zero would spoil sums and averages."""

    names: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    counts: Floats
    standard_errors: Floats
    low: Floats
    high: Floats
    level: float

    def __post_init__(self) -> None:
        for array in (self.counts, self.standard_errors, self.low, self.high):
            array.setflags(write=False)

    def __repr__(self) -> str:
        shape = " x ".join(f"{size:,}" for size in self.counts.shape)
        error = float(np.sqrt(np.mean(self.standard_errors**2)))
        return f"Estimate({' x '.join(self.names)}: {shape} counts, standard error {error:,.1f}; see .to_polars())"

    def _repr_html_(self) -> str:
        facts = {"intervals": f"{self.level:.4g} confidence", "cost": "none: post-processing"}
        return html_card(f"Counts of {' x '.join(self.names)}", facts, self.to_columns())

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """One line for each cell: its levels, count, standard error and interval."""
        places = np.indices(self.counts.shape).reshape(self.counts.ndim, -1)
        axes = zip(self.names, self.levels, places, strict=True)
        figures = {"count": self.counts, "standard_error": self.standard_errors, "low": self.low, "high": self.high}
        return {name: [levels[code] for code in place] for name, levels, place in axes} | {
            title: figure.ravel().tolist() for title, figure in figures.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Answer:
    """How many rows satisfy a predicate: by the noisy tables, with error bars, or None, and by the synthetic rows.

    Where rows of each person are `counted` that were chosen at random, the interval includes `choosing_error`, a bound
    on the standard error that choosing adds to a number of people: sqrt(n p (1 - p)) for the share p, since the sum of
    p_i (1 - p_i) over people is largest where all p_i are equal. `split_error` is the part of the standard error that
    is due to the shares of `split` bins. `beyond` says where the predicate asks beyond what a search found of numbers;
    the interval is wider by the rows that may lie there, `beyond_most`. `low` and `high` may be `bounds` that noisy
    tables leave, and no interval.
    """

    predicate: str
    attributes: tuple[str, ...]
    n_rows: int
    level: float
    estimate: float | None = None
    standard_error: float | None = None
    low: float | None = None
    high: float | None = None
    synthetic: float
    synthetic_by: str
    measured_by: str
    counted: str = "rows"
    choosing_error: float | None = None
    split: tuple[str, ...] = ()
    split_error: float | None = None
    beyond: tuple[str, ...] = ()
    beyond_most: float | None = None
    bounds: bool = False

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        if self.estimate is None:
            rows = f"{self.synthetic:,.0f} of {self.n_rows:,}"
            return f"Answer({self.predicate}: not measured, synthetic rows have {rows})"
        interval = f"{self._ends} {self.low:,.0f} to {self.high:,.0f}"
        beyond = f"; beyond what is known: {', '.join(self.beyond)}" if self.beyond else ""
        return f"Answer({self.predicate}: {self.estimate:,.0f} of {self.n_rows:,}, {interval}{beyond})"

    @property
    def _ends(self) -> str:
        return "bounds" if self.bounds else f"{100 * self.level:.4g}% interval"

    def _repr_html_(self) -> str:
        title, *lines = self.lines()
        facts = {line.strip()[:16].strip(): line.strip()[16:].strip() for line in lines}
        return html_card(title.rstrip(":"), facts)

    def lines(self) -> list[str]:
        """For a person to read."""
        what = "Rows" if self.counted == "rows" else f"{self.counted.capitalize()},"
        lines = [f"{what} with {self.predicate}, of {self.n_rows:,}:"]
        if self.estimate is None or self.standard_error is None or self.low is None or self.high is None:
            lines.append(f"  estimate        none: {self.measured_by}.")
        else:
            low, high = (min(max(bound, 0.0), float(self.n_rows)) for bound in (self.low, self.high))
            cut = (low, high) != (self.low, self.high)
            lines += [
                f"  estimate        {self.estimate:,.0f}, standard error {self.standard_error:,.1f}",
                f"  {self._ends:<16}{low:,.0f} to {high:,.0f}"
                + (f" (computed {self.low:,.0f} to {self.high:,.0f}; a count lies in [0, n])" if cut else ""),
                f"  measured by     {self.measured_by}",
                "  covers          the release's noise"
                + ", the choice of rows of people" * (self.choosing_error is not None)
                + ", what shares of cut bins may be" * bool(self.split),
            ]
        if self.split:
            named = ", ".join(self.split)
            adds = "" if self.split_error is None else f"; that adds a standard error of {self.split_error:,.1f}"
            lines.append(f"  cut bins        {named}: their shares are the model's, not measured{adds}")
        if self.beyond_most is not None:
            known = f"{', '.join(self.beyond)} nothing is known but that at most {self.beyond_most:,.0f} rows lie there"
            lines.append(f"  CAUTION         beyond {known}: state edges that reach as far as rows may")
        if self.choosing_error is not None:
            lines.append(f"  choosing rows   has a standard error of at most {self.choosing_error:,.1f} of it")
        return [*lines, f"  synthetic rows  {self.synthetic:,.0f} ({self.synthetic_by})"]


class _Pooled(NamedTuple):
    """The average of looks at a table by inverse variance: sums of `terms` noisy cells with standard errors `sds`."""

    cells: Floats
    variance: float
    sds: tuple[float, ...]
    terms: tuple[int, ...]

    def reach(self, level: float, mechanism: str, size: int) -> float:
        """How many standard errors an interval of this level reaches to either side of a sum over `size` cells."""
        if mechanism == "gaussian" or size == 0:
            return normal_quantile(level)
        return _laplace_quantile(level, self.sds, tuple(size * terms for terms in self.terms))


def estimate(measured: Measured, *names: str, level: float = DEFAULT_LEVEL) -> Estimate:
    """The pooled noisy table of one or two attributes, with standard errors and confidence intervals."""
    schema, normal = measured.schema.whole or measured.schema, normal_quantile(level)
    if len(names) not in (1, 2) or len(set(names)) != len(names):
        raise QueryError(
            f"one or two different attributes have a measured table, got {len(names)}: {', '.join(names) or 'none'}. "
            "Count wider tables in synthetic rows: model.sample()."
        )
    attributes = [schema.attribute(name) for name in names]
    sources = [schema.sources[schema.names.index(name)] for name in names]
    where = sorted({source for source, _ in sources})
    # Where each measured cell stands in the table asked for; a cell of it may be the sum of several, or of none.
    place = np.ix_(*(np.arange(int(measured.schema.sizes[i])) for i in where))
    into = tuple(np.broadcast_arrays(*(own[place[where.index(source)]] for source, own in sources)))
    shape, levels = tuple(each.n_levels for each in attributes), tuple(each.levels for each in attributes)
    if has_parities(measured, len(where)):
        masks = (np.logical_and.reduce([a == b for a, b in zip(into, cell, strict=True)]) for cell in np.ndindex(shape))
        found = np.array([count_by_parities(measured, mask, where) for mask in masks])
        counts, sd = (part.reshape(shape) for part in found.T)
        half = sd * normal
    else:
        pooled = _pool(measured, where)
        counts, summed = np.zeros(shape), np.zeros(shape, dtype=np.int64)
        np.add.at(counts, into, pooled.cells)
        np.add.at(summed, into, 1)
        sd = np.sqrt(pooled.variance * summed)
        sizes, which = np.unique(summed, return_inverse=True)
        reach = np.array([pooled.reach(level, measured.certificate.mechanism, int(size)) for size in sizes])
        half = sd * reach[which].reshape(shape)
    return Estimate(
        names=names,
        levels=levels,
        counts=counts,
        standard_errors=sd,
        low=counts - half,
        high=counts + half,
        level=level,
    )


def answer(model: Model, predicate: str, *, level: float = DEFAULT_LEVEL, exact: bool = False) -> Answer:
    """How many rows satisfy a predicate, with error bars where it was measured; `exact` refuses one that cuts a bin."""
    schema, measured, parsed, normal = model.schema, model.measured, parse(predicate), normal_quantile(level)
    stated, divided, split = divide(parsed, schema, exact=exact or model.dummies)
    names = tuple(schema.names[i] for i in stated.attributes)
    expression = stated.traced(divided.schema)
    where = expression.attributes
    asked_found = any(each.name in names and each.domain == "found" for each in schema.attributes)
    shapes = model.shapes if split or asked_found else {}
    _, shares = divide_shapes(divided, schema, shapes if split else {}, set(names if split else ()))
    beyond, most_beyond = _beyond(model, parsed, shapes, normal)
    parts = _Parts(of=divided.measured_parts, shares=shares)

    count = partial(count_cells, measured, where=where, level=level)
    direct: dict[str, Any] = {}
    if len(where) > 2 and not has_parities(measured, len(where)):
        direct, by = _inferred(model, predicate, level)
        if direct:
            direct |= {"low": direct["low"] - most_beyond, "high": direct["high"] + most_beyond}
    else:
        held = parts.whole(expression, where)
        found = count(held)
        by = found.by
        low, high, error = found.count - found.half_width, found.count + found.half_width, 0.0
        if split:
            if has_parities(measured):
                one_each = np.eye(held.size).reshape(-1, *held.shape)
                cells = np.array([count(one).count for one in one_each]).reshape(held.shape)
            else:
                cells = _pool(measured, where).cells
            # Errors of the shares of several cells, which were not measured, are taken to go together.
            error = float(np.sum(np.maximum(cells, 0.0) * np.sqrt(held * (1 - held) / 3)))
            direct["split_error"] = error
            reach = math.hypot(found.half_width, normal * error)
            # Whatever the shares are, the count lies between that of the whole bins and that of all bins touched.
            least, most = (count(each.astype(np.float64)) for each in (held >= 1.0, held > 0.0))
            low = max(found.count - reach, min(least.count - least.half_width, found.count))
            high = min(found.count + reach, max(most.count + most.half_width, found.count))
        sd = math.hypot(found.standard_error, error, most_beyond / normal)
        direct |= {"estimate": found.count, "standard_error": sd, "low": low - most_beyond, "high": high + most_beyond}
        if model.certificate.by_chance:
            # The chance of choosing rows is part of the interval, here as in `infer`.
            picked = min(max(found.count / model.n_rows, 0.0), 1.0)
            error = direct["choosing_error"] = math.sqrt(model.n_rows * picked * (1 - picked))
            direct["low"] = found.count - math.hypot(found.count - direct["low"], normal * error)
            direct["high"] = found.count + math.hypot(direct["high"] - found.count, normal * error)
            direct["standard_error"] = math.hypot(sd, error)
    share, synthetic_by = _synthetic(model, expression, where, parts)
    return Answer(
        predicate=predicate.strip(),
        attributes=names,
        n_rows=model.n_rows,
        level=level,
        synthetic=model.n_rows * share,
        synthetic_by=synthetic_by,
        measured_by=by,
        counted=model.certificate.counted,
        split=split,
        beyond=beyond,
        beyond_most=most_beyond if beyond else None,
        **direct,
    )


def _beyond(
    model: Model, predicate: Expression, shapes: Mapping[str, Shape], reach: float
) -> tuple[tuple[str, ...], float]:
    """Beyond which limits of numbers that a search found a predicate asks, and how many rows lie there at most.

    Levels at the ends hold rows beyond. The search's tables counted them: so many, and `reach` standard errors more.
    """
    said, most = [], 0.0
    for name, numbers in borders(predicate, model.schema).items():
        attribute = model.schema.attribute(name)
        low, high = limits = limits_of(model, attribute, shapes) or (-math.inf, math.inf)
        within = max([-math.inf, *(n for n in numbers if n < low)]), min([math.inf, *(n for n in numbers if n > high)])
        if within == (-math.inf, math.inf):
            continue
        counted = rows_beyond(model.measured, name, *within)
        said.append(f"'{name}' {shown_limits(attribute, limits)}")
        most += model.n_rows if counted is None else max(counted[0], 0.0) + reach * counted[1]
    return tuple(said), min(most, model.n_rows)


class _Parts(NamedTuple):
    """Measured levels divided into parts: by attribute, the level that each part is `of`, and its share of that."""

    of: Sequence[NDArray[np.int64]]
    shares: Sequence[Floats]

    def whole(self, expression: Expression, where: Sequence[int]) -> Floats:
        """The share of each cell of whole levels that a predicate over parts holds for."""
        found = expression.cells({i: np.arange(self.of[i].size) for i in where}).astype(np.float64)
        for axis, i in enumerate(where):
            sums = np.zeros((self.of[i].max() + 1, self.of[i].size))
            sums[self.of[i], np.arange(self.of[i].size)] = self.shares[i]
            found = np.moveaxis(np.tensordot(sums, found, axes=(1, axis)), 0, axis)
        # Shares of a level that is not divided sum to one, but for rounding.
        return np.where(np.abs(found - np.rint(found)) < 1e-9, np.rint(found), found)

    def drawn(self, i: int, codes: NDArray[Any], generator: np.random.Generator) -> NDArray[np.int64]:
        """Codes of parts in place of codes of whole levels of one attribute, drawn by their shares."""
        of, shares = self.of[i], self.shares[i]
        order = np.argsort(of, kind="stable")
        if of.size == of.max() + 1:
            return np.asarray(order[codes])
        ends = [np.cumsum(shares[order[of[order] == k]]) for k in range(of.max() + 1)]
        at = np.searchsorted(of[order] + np.concatenate(ends), codes + generator.random(codes.size), side="right")
        return np.asarray(order[np.minimum(at, order.size - 1)])


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCount:
    """A sum of noisy cells: the count, its standard error, half its confidence interval, and what was summed."""

    count: float
    standard_error: float
    half_width: float
    by: str


def count_cells(
    measured: Measured, cells: NDArray[Any], where: Sequence[int], *, level: float = DEFAULT_LEVEL
) -> CellCount:
    """The rows in these cells, or shares of cells, of the table of one or two attributes, or of bits with parities."""
    names = " and ".join(f"'{measured.schema.names[i]}'" for i in where)
    if has_parities(measured, len(where)):
        count, sd = count_by_parities(measured, cells, where)
        half = sd * normal_quantile(level)
        return CellCount(count=count, standard_error=sd, half_width=half, by=f"the noisy parities of {names}")
    pooled, table = _pool(measured, where), f"the table of {names}"
    if len(where) == 1 and len(pooled.terms) > 1:
        table += f" and the sums of {len(pooled.terms) - 1:,} two-way tables"
    held, public = np.asarray(cells, dtype=np.float64), measured.n_rows
    every = all(measured.schema.attributes[i].exhaustive for i in where)
    # Where every row has a cell and their number is public, counting the others may be the more precise way.
    turned = bool(every and public is not None and np.sum(held**2) > np.sum((1 - held) ** 2))
    held = 1 - held if turned else held
    size, count = int(np.count_nonzero(held)), float(np.sum(pooled.cells * held))
    sd = math.sqrt(float(np.sum(held**2)) * pooled.variance)
    by = f"{size:,} noisy cell{'s' if size != 1 else ''} of {table}"
    return CellCount(
        count=(public or 0) - count if turned else count,
        standard_error=sd,
        half_width=sd * pooled.reach(level, measured.certificate.mechanism, size),
        by=f"n less {by}" if turned else by,
    )


def _inferred(model: Model, predicate: str, level: float) -> tuple[dict[str, Any], str]:
    """What `infer` says of rows of the table over more attributes, and by what it was measured, or why not."""
    try:
        found = infer(model, f"share({predicate})", level=level, target="table")
    except QueryError as error:
        return {}, f"no direct measurement exists over so many attributes; {error}"
    (figure,), names = found.figures, ("estimate", "standard_error", "low", "high")
    if figure.low is None:
        return {}, f"no direct measurement exists over so many attributes; {found.cautions[0]}"
    counts = {name: model.n_rows * getattr(figure, name) for name in names}
    return {**counts, "bounds": figure.bounds}, f"all noisy tables, which speak of {100 * figure.measured:.0f}% of it"


def count_by_parities(measured: Measured, cells: NDArray[Any], where: Sequence[int]) -> tuple[float, float]:
    """The same by parities of one to three bits: the count and its standard error.

    A cell of k bits is the sum over all sets S of them of (-1)^(sum of its bits in S) (n - 2 X_S) / 2^k, with X_S the
    rows whose bits in S sum to an odd number: none for the empty set.
    """
    odd = effects.pooled_parities(measured, where)
    rows, rows_variance = (float(measured.n_rows), 0.0) if measured.n_rows is not None else odd[()]
    levels, shares, count, variance = np.indices(cells.shape), 0.0, 0.0, 0.0
    for size in range(len(where) + 1):
        for chosen in combinations(range(len(where)), size):
            sign = 1 - 2 * (levels[list(chosen)].sum(axis=0) % 2)
            share = float((sign * cells).sum()) / cells.size
            shares += share
            if chosen and share:
                own, noise = odd[tuple(sorted(where[bit] for bit in chosen))]
                count -= 2 * share * own
                variance += (2 * share) ** 2 * noise
    return count + shares * rows, math.sqrt(variance + shares**2 * rows_variance)


def _pool(measured: Measured, where: Sequence[int]) -> _Pooled:
    """The table of one or two attributes: their own, and of one also the sums of its trustworthy two-way tables."""
    schema, own = measured.schema, tuple(sorted(where))
    others = own if len(own) == 2 else [j for j, each in enumerate(schema.attributes) if each.exhaustive]
    groups: dict[tuple[int, ...], list[NoisyTable]] = {}
    for table in effects.tables_of(measured, own, others):
        if set(own) <= set(table.attributes):
            groups.setdefault(table.attributes, []).append(table)
    if not groups:
        raise QueryError("the model holds no two-way tables. Ask about one attribute.")
    looks = []
    for attributes, tables in groups.items():
        precision = sum(1 / table.variance for table in tables)
        cells = np.asarray(sum(table.counts / table.variance for table in tables) / precision)
        summed = tuple(axis for axis, i in enumerate(attributes) if i not in own)
        size = math.prod(cells.shape[axis] for axis in summed)
        cells = cells.sum(axis=summed)
        looks.append((cells if tuple(where) == own else cells.T, size / precision, size))
    # Of each look: its cells, their variance, and how many noisy cells each is a sum of.
    precision = sum(1 / variance for _, variance, _ in looks)
    weights = [1 / variance / precision for _, variance, _ in looks]
    return _Pooled(
        cells=np.sum([weight * cells for weight, (cells, _, _) in zip(weights, looks, strict=True)], axis=0),
        variance=1 / precision,
        sds=tuple(weight * math.sqrt(v / terms) for weight, (_, v, terms) in zip(weights, looks, strict=True)),
        terms=tuple(terms for _, _, terms in looks),
    )


@cache
def _laplace_quantile(level: float, sds: tuple[float, ...], terms: tuple[int, ...]) -> float:
    """The same of a weighted sum X of independent Laplace variables.

    Its characteristic function phi(t) is a product of 1 / (1 + s^2 t^2 / 2) over the sds s of its terms, and
    P(|X| <= q) is 2/pi times the integral of sin(q t) / t phi(t) over t > 0 (Gil-Pelaez 1951).
    """
    if sum(terms) == 1:
        return -math.log1p(-level) / math.sqrt(2)
    number = np.array(terms)
    each = np.array(sds) / math.sqrt(float(number @ np.square(sds)))
    # In units of the standard error phi has a width of order one; its tail falls at least as 2 / t^2.
    t = (np.arange(40_000) + 0.5) * 0.01
    phi = np.exp(-np.sum(number[:, None] * np.log1p(0.5 * (each[:, None] * t[None, :]) ** 2), axis=0))
    # It falls with t: of a sum of many terms only the first few hundred matter.
    t, phi = t[phi > 1e-14], phi[phi > 1e-14]
    phi *= 2 / math.pi * 0.01 / t
    low, high = 0.0, 50.0
    # What is covered grows with q.
    while high - low > 1e-12 * high:
        q = (low + high) / 2
        low, high = (q, high) if float(np.sin(q * t) @ phi) < level else (low, q)
    return high


def _synthetic(model: Model, expression: Expression, where: Sequence[int], parts: _Parts) -> tuple[float, str]:
    """The share of synthetic rows that satisfy a predicate over parts of levels, and how it was found."""
    copula, schema = model.copula, model.measured_schema
    probabilities, offsets, held = copula.components(), schema.offsets, 0
    # Given the attributes that no rule forbids anything of, the model is as it was fitted; the others are drawn again.
    if probabilities is not None and not set(where) & set(constrained(schema.allowed)):
        classes, components = level_classes(expression), len(probabilities)
        if math.prod(first.size for first, _ in classes.values()) <= _MAX_CLASSES // max(components // 256, 1):
            # In a component attributes are independent, so classes of levels multiply.
            joint = np.ones((components, 1))
            for i in where:
                first, which = classes[i]
                own = probabilities[:, offsets[i] : offsets[i + 1]].astype(np.float64)[:, parts.of[i]] * parts.shares[i]
                mass = np.stack([own[:, which == k].sum(axis=1) for k in range(first.size)], axis=1)
                mass /= mass.sum(axis=1, keepdims=True)
                joint = (joint[:, :, None] * mass[:, None, :]).reshape(components, -1)
            cells = expression.cells({i: classes[i][0] for i in where})
            return float(joint.mean(axis=0) @ cells.ravel()), "the model's exact expectation"
    rows = min(model.n_rows, _MAX_SAMPLED)
    generator = np.random.Generator(np.random.SFC64(_SAMPLE_SEED))
    for block in sample_codes(copula, rows, _SAMPLE_SEED):
        if model.dummies:
            bits = [block[offsets[i] : offsets[i + 1]].view(np.bool_) for i in range(schema.n_attributes)]
            here = expression.evaluate(lambda leaf, bits=bits: bits[leaf.attribute][leaf.levels].any(axis=0))  # type: ignore[misc]
        else:
            here = expression.holds({i: parts.drawn(i, block[i], generator) for i in where})
        held += int(np.count_nonzero(here))
    return held / rows, f"counted in {rows:,} rows drawn with seed {_SAMPLE_SEED}"
