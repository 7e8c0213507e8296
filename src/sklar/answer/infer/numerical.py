"""Any statistic of a weighted table: its influence function is taken numerically, and goes into the one-step estimator.

A statistic is a function of weights on records, which are combinations of levels. Its influence function psi enters the
one-step estimate only by its means over the cells of measured tables: the derivative as a little weight moves to the
rows of one cell, as the model has them. So the statistic is evaluated once for each such cell, not for each record; psi
is then the sum of functions of these tables that has these means. What psi has beyond it is not measured; its variance
is that of derivatives toward tables drawn from the model, less what the sum explains of them.

A first derivative says what a statistic does nearby. Farther away it is followed along the direction that moves it
most: the model tilted along psi until the mean of psi is what the noisy tables say, and what its error leaves (the
least favorable family: Efron 1987). An interval so lies as the statistic is curved, as Fieller's does for a ratio. How
far that is true is measured: tables are drawn from the model, of the size at which sampling alone would have the
standard error that was found, and the statistic of each is compared with that of the tilted model. Where the difference
(root mean square) exceeds `_CURVED` standard errors the answer cautions. Beyond `_BROKEN` of them, where the statistic
turns back, and where the derivative is zero, there is no interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sklar.answer.effects import Codes, Floats
from sklar.answer.infer.inquiry import Figure, Inference, Inquiry, RecordFunction, Unknown
from sklar.answer.infer.onestep import ALIKE, Linearized, OneStep
from sklar.answer.infer.words import Statistic
from sklar.answer.predicate import QueryError
from sklar.machine.extras import lazily
from sklar.machine.wording import said

if TYPE_CHECKING:
    import polars as pl
else:
    pl = lazily("polars")

# A statistic of weights on records that sum to one, shape (records,): q numbers.
Weighed = Callable[[Floats], Floats]

# Weight that moves to a cell. Solvers stop at 1e-6 or so, and are asked for a thousandth of what moves.
_MOVED = 1e-3
_MOST_MOVES = 20_000
_MOST_FIGURES = 100
# Tables that are drawn from the model, and the part of the way to them on which a derivative is taken.
_TABLES, _TOWARD = 60, 0.05
_SEED = 20_261_118
_CURVED, _BROKEN = 0.5, 1.0
_LEAST_ROWS = 20
# Tilted models that a statistic is followed along, and how much farther than its interval reaches.
_TILTS, _FARTHER = 13, 1.25


class Listed(NamedTuple):
    """Distinct records, shape (records, attributes), the shares of them that each united fit says, (fits, records), and
    a matrix of 1 where a record is in a cell of one of the largest measured tables, (records, cells).

    `whole`: one table was measured of all the attributes, and its cells are the records.
    """

    codes: Codes
    fits: Floats
    cells: Any
    whole: bool

    @property
    def shares(self) -> Floats:
        """What the whole model says."""
        return np.asarray(self.fits.mean(axis=0))


def listed_records(inquiry: Inquiry) -> Listed:
    """The records that a statistic of the asked attributes is a function of."""
    reference, by_set, where = inquiry.reference, inquiry.effects.by_set, inquiry.where
    flat = np.ravel_multi_index(reference.codes.T, reference.sizes)
    whole = where in by_set and not by_set[where].coarse
    # Any cell of a measured table may have rows, whatever the model says.
    kept = np.arange(math.prod(reference.sizes)) if whole else np.unique(flat)
    codes, at = np.stack(np.unravel_index(kept, reference.sizes), axis=1), np.searchsorted(kept, flat)
    fits = np.stack([np.bincount(at, weights, kept.size) for weights in reference.weights]).astype(np.float64)
    *_, cells = replace(reference, codes=codes).indicators(by_set)
    return Listed(codes, fits, cells, whole)


def influence_of(statistic: Weighed, records: Listed, at: Floats) -> Floats:
    """The sum of functions of measured tables whose mean over each cell is the derivative toward it, on records: shape
    (records, q). Nothing is known of cells that the model leaves empty, but of those that are records.
    """
    from scipy.sparse.linalg import LinearOperator, cg

    shares, cells, members = records.shares, records.cells, records.cells.T.tocsr()
    held, derivative = np.asarray(members @ shares), np.zeros((members.shape[0], at.size))
    for cell in np.flatnonzero(held > 0 if not records.whole else held >= 0):
        rows = members.indices[members.indptr[cell] : members.indptr[cell + 1]]
        weights = (1 - _MOVED) * shares
        weights[rows] += _MOVED * (shares[rows] / held[cell] if held[cell] > 0 else 1.0)
        derivative[cell] = (statistic(weights) - at) / _MOVED
    if records.whole:
        return np.asarray(cells @ derivative)
    # Both sides times what makes the diagonal 1; a little on it makes the solution unique.
    scale = np.sqrt(np.where(held > 0, held, 1.0))
    operator = LinearOperator(
        (scale.size, scale.size), lambda x: (members @ (shares * (cells @ (x / scale)))) / scale + 1e-9 * x
    )
    columns = [cg(operator, held * each / scale, rtol=1e-8, maxiter=500)[0] / scale for each in derivative.T]
    return np.asarray(cells @ np.stack(columns, axis=1))


class Curve(NamedTuple):
    """A figure along its direction: its `values` at means of psi, `at`, shape (tilts,) both. It `missed` by so many
    standard errors, root mean square over tables drawn from the model: infinite where it has no interval.
    """

    at: Floats
    values: Floats
    missed: float

    def value(self, mean: Any) -> Floats:
        """The figure where psi has this mean."""
        return np.asarray(np.interp(mean, self.at, self.values - self.at) + mean)


def linearize(inquiry: Inquiry, records: Listed, prepared: Weighed) -> tuple[OneStep, list[Curve], RecordFunction]:
    """The one-step estimates of a statistic, each figure's curve, and the influence function."""
    shares, n = records.shares, inquiry.effects.n_rows

    def statistic(weights: Floats) -> Floats:
        try:
            return prepared(weights)
        except QueryError:
            return np.full(at.size, math.nan)

    at = prepared(shares)
    if (number := records.cells.shape[1]) > _MOST_MOVES or at.size > _MOST_FIGURES:
        raise QueryError(said("answer.many_cells", figures=_MOST_FIGURES, cells=_MOST_MOVES, got=at.size, and_=number))
    psi = influence_of(statistic, records, at)
    psi = psi - shares @ psi
    flat, sizes = np.ravel_multi_index(records.codes.T, inquiry.reference.sizes), inquiry.reference.sizes

    def influence(codes: Codes) -> Floats:
        places = np.searchsorted(flat, np.ravel_multi_index(codes.T, sizes))
        return np.asarray(psi[places] + sum(by * _slopes(inquiry, i, psi)[places] for i, by in inquiry.moved.items()))

    by_fit = np.stack([statistic(weights) for weights in records.fits])
    step = inquiry.one_step(Linearized(values=at, by_fit=by_fit, influence=influence))
    generator = np.random.Generator(np.random.SFC64(_SEED))
    whole = shares / shares.sum()
    if not records.whole:
        toward = generator.multinomial(n, whole, _TABLES) / n - shares
        found = np.stack([(statistic(shares + _TOWARD * each) - at) / _TOWARD for each in toward]) - toward @ psi
        beyond = found.T @ found * n / _TABLES
        step = replace(
            step,
            sampling=step.sampling + beyond / n,
            model=step.model + ALIKE**2 * beyond,
            influence=step.influence + beyond,
            beyond=step.beyond + beyond,
        )
    with np.errstate(all="ignore"):
        return step, _curves(inquiry, records, statistic, step, psi, at), influence


def _slopes(inquiry: Inquiry, attribute: int, psi: Floats) -> Floats:
    """How psi rises as numbers move by the width of their bins, by its neighbors on either side; 0 where not listed."""
    sizes, inside = inquiry.reference.sizes, inquiry.scores(attribute).inside
    axis, own = inquiry.where.index(inquiry.source(attribute)), np.zeros_like(psi)
    if inside is None or len(psi) < math.prod(sizes) or sizes[axis] != inside.means.size:
        return own
    known = np.flatnonzero(np.isfinite(inside.means))
    known = known[np.argsort(inside.means[known], kind="stable")]
    known = known[np.concatenate([[True], np.diff(inside.means[known]) > 0])]
    if known.size < 2:
        return own
    table, found = (np.moveaxis(each.reshape(*sizes, -1), axis, 0) for each in (psi, own))
    edge: Any = 2 if known.size > 2 else 1
    found[known] = np.gradient(table[known], inside.means[known], axis=0, edge_order=edge)
    found *= inside.widths.reshape(-1, *[1] * (found.ndim - 1))
    return own


def _curves(
    inquiry: Inquiry, records: Listed, statistic: Weighed, step: OneStep, psi: Floats, at: Floats
) -> list[Curve]:
    """The curves of figures, as far as their intervals reach."""
    errors = np.sqrt(np.maximum(np.diag(step.covariance(population=inquiry.population)), 1e-300))
    spread, n, curves = np.maximum(np.diag(step.influence), 1e-300), inquiry.effects.n_rows, list[Curve]()
    whole = records.shares / records.shares.sum()
    moved = step.values - at
    for own in range(at.size):
        reach = _FARTHER * (inquiry.quantile + abs(moved[own]) / errors[own])
        means, values = list[float](), list[float]()
        for length in np.linspace(-reach, reach, _TILTS) * errors[own] / spread[own]:
            tilted = whole * np.exp(np.clip(length * psi[:, own], -30, 30))
            tilted /= tilted.sum()
            means.append(float(tilted @ psi[:, own]))
            values.append(float(statistic(tilted)[own]))
        # As far as it has values; beyond these, and where no tilt reaches, it goes on as its derivative says.
        lost, middle = np.flatnonzero(~np.isfinite(values)), _TILTS // 2
        part = slice(max(lost[lost < middle], default=-1) + 1, min(lost[lost > middle], default=_TILTS))
        curve = Curve(np.array(means[part]), np.array(values[part]), 0.0)
        ends = moved[own] + inquiry.quantile * errors[own] * np.array([-1, 1])
        crossed = curve.value(np.array([ends[0], *curve.at[(ends[0] < curve.at) & (curve.at < ends[1])], ends[1]]))
        known = spread[own] > 1e-16 * max(at[own] ** 2, 1e-300) and bool(np.all(np.diff(crossed) > 0))
        curves.append(curve._replace(missed=0.0 if known else math.inf))
    # Powers of two, so that figures of similar errors share their tables.
    generator = np.random.Generator(np.random.SFC64(_SEED + 1))
    sizes = np.round(np.log2((spread / errors**2).clip(_LEAST_ROWS, n)))
    for power in np.unique(sizes):
        size = int(2**power)
        drawn = generator.multinomial(size, whole, _TABLES) / size
        found, means = np.stack([statistic(each) for each in drawn]), (drawn - whole) @ psi
        for own in np.flatnonzero(sizes == power).tolist():
            curve = curves[own]
            square = np.mean((found[:, own] - curve.value(means[:, own])) ** 2) - step.beyond[own, own] / size
            # Where noise is that of fewer rows than any table has, what is missed grows as its variance does.
            farther = max(_LEAST_ROWS * errors[own] ** 2 / spread[own], 1.0)
            missed = farther * math.sqrt(max(float(square), 0.0)) / errors[own] if np.isfinite(square) else math.inf
            curves[own] = curve._replace(missed=max(curve.missed, missed))
    return curves


def figures_of_function(
    inquiry: Inquiry, names: Sequence[str], step: OneStep, curves: Sequence[Curve], unknown: Unknown
) -> list[Figure]:
    """The figures of a statistic; where its derivative says too little, without an interval."""
    figures = []
    for at, (name, curve) in enumerate(zip(names, curves, strict=True)):
        value, slope, ends = float(step.values[at]), np.eye(len(names))[at], (-math.inf, math.inf)
        if curve.missed <= _BROKEN:
            mean = value - float(curve.value(0.0))
            error = math.sqrt(max(float(step.covariance(population=inquiry.population)[at, at]), 1e-300))
            low, high = curve.value(mean + inquiry.quantile * error * np.array([-1, 1])).tolist()
            value, ends, slope = (
                float(curve.value(mean)),
                (low, high),
                slope * (high - low) / (2 * inquiry.quantile * error),
            )
        figures.append(inquiry.figure(name, value, slope, step, ends=ends, unknown=unknown, at=at))
    for least, most, told in ((_CURVED, _BROKEN, "the interval may be too narrow"), (_BROKEN, math.inf, "it has none")):
        own = [name for name, each in zip(names, curves, strict=True) if least < each.missed <= most]
        if own:
            listed = ", ".join(own[:6]) + (" and others" if len(own) > 6 else "")
            inquiry.cautions.append(
                f"not smooth enough at this noise: {listed}. On tables drawn from the model an approximation along one "
                f"direction misses by more than {least:g} standard errors: {told}."
            )
    return figures


def infer_function(
    model: Any, function: Callable[[Any, Any], Any], columns: Sequence[str], **settings: Any
) -> Inference:
    """What a function of a table and weights says of the rows behind a model."""
    schema = model.schema
    unknown = next((name for name in columns if name not in schema.names), None)
    if isinstance(columns, str) or not columns or unknown is not None or len(set(columns)) < len(columns):
        shown = columns if unknown is None else unknown
        raise QueryError(
            f"columns must list different attributes of the schema that the function looks at, got {shown!r}. "
            f"It has: {', '.join(schema.names[:12])}."
        )
    named = getattr(function, "__name__", type(function).__name__).replace("<lambda>", "function")
    asked = Statistic(text=named, kind="function", names=tuple(schema.names.index(name) for name in columns))
    inquiry = Inquiry(model, asked, **settings)
    records = listed_records(inquiry)
    labels: list[str] = []

    def called(table: Any, weights: Floats) -> Floats:
        try:
            found = function(table, weights * inquiry.effects.n_rows)
        except Exception as error:
            raise QueryError(f"the function must take any table of its columns, and raised {error!r}.") from error
        own, values = _numbers(found, named)
        if labels and own != labels:
            raise QueryError(f"the function must always return the same figures, got {own[:4]} after {labels[:4]}.")
        labels[:] = own
        return values

    def prepared() -> Weighed:
        runs = [(table_of(inquiry, records.codes), weights) for weights in inquiry.runs(records.codes)]
        table, parts = pl.concat([own for own, _ in runs]), np.concatenate([weights for _, weights in runs])
        return lambda weights: called(table, np.tile(weights, len(runs)) * parts)

    table_of(inquiry, records.codes)
    statistic = prepared()
    _require_statistic(called, table_of(inquiry, records.codes), records.shares)
    step, curves, influence = linearize(inquiry, records, statistic)
    hidden = inquiry.unknown(lambda: prepared()(records.shares), influence)
    figures = figures_of_function(inquiry, labels, step, curves, hidden)
    return inquiry.inference(f"{named} of {', '.join(columns)}", figures)


def table_of(inquiry: Inquiry, codes: Codes) -> pl.DataFrame:
    """The asked attributes of records: numbers and truth values as they are scored, categories as text, else null."""
    columns: dict[str, Any] = {}
    for index in inquiry.asked.names:
        attribute = inquiry.model.schema.attributes[index]
        own = inquiry.levels(codes, index)
        if inquiry.is_number(attribute) or all(isinstance(value, int) for value in attribute.values):
            columns[attribute.name] = pl.Series(inquiry.numbers(index, codes), nan_to_null=True)
        else:
            levels = dict(enumerate(attribute.levels)) | {attribute.missing_code: None}
            columns[attribute.name] = [levels[each] for each in own.tolist()]
    return pl.DataFrame(columns)


def _require_statistic(called: Callable[[Any, Floats], Floats], table: Any, weights: Floats) -> None:
    """Refuse what is no function of how much weight each combination of values has, but of rows, of order or chance."""
    order = np.random.Generator(np.random.SFC64(_SEED)).permutation(2 * table.height) % table.height
    found = called(table, weights)
    if not np.array_equal(found, called(table, weights)):
        raise QueryError("the function must return the same for the same table, and did not. Give it a seed.")
    halves = called(table[order.tolist()], weights[order] / 2)
    if not np.allclose(found, halves, rtol=1e-5, atol=1e-8):
        raise QueryError(
            f"the function must not depend on the order or the number of rows, only on weights, got {found[0]:.6g} and "
            f"{halves[0]:.6g} with each row in two halves. Weigh what it sums, counts and divides by."
        )
    if np.array_equal(found, called(table, np.full(table.height, 1 / table.height))):
        raise QueryError("the function must depend on its weights, and gave the same for others. Use them.")


def _numbers(found: Any, named: str) -> tuple[list[str], Floats]:
    """What a function returned: names and numbers."""
    try:
        if isinstance(found, Mapping) or (hasattr(found, "items") and hasattr(found, "index")):
            labels, numbers = [str(each) for each, _ in found.items()], [float(each) for _, each in found.items()]
        else:
            numbers = np.asarray(found, dtype=np.float64).ravel().tolist()
            labels = [named] if len(numbers) == 1 else [f"{named} {k}" for k in range(1, len(numbers) + 1)]
    except (TypeError, ValueError):
        raise QueryError(f"the function must return numbers, got {found!r:.60}. Return a number, or a dict.") from None
    if not numbers or not np.isfinite(numbers).all():
        raise QueryError(
            f"the function must return finite numbers, got {dict(zip(labels[:4], numbers, strict=False))}. Leave out "
            "rows whose values are null (not a number)."
        )
    return labels, np.array(numbers)
