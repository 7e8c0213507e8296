"""Any statistic of a weighted table: its influence function is taken numerically, and goes into the one-step estimator.
The derivation: docs/derivations.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sklar.answer.effects import Codes, Effects, Floats
from sklar.answer.infer.inquiry import Figure, Inference, Inquiry, RecordFunction, Unknown
from sklar.answer.infer.onestep import ALIKE, OneStep, Reference, solve_cells
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


class Curve(NamedTuple):
    """A figure where psi has the mean m: m plus `bend` m^2 more than at the model. It `missed` by so many standard
    errors, root mean square over tables drawn from the model: infinite where it has no interval.
    """

    bend: float
    missed: float


def influence_of(statistic: Weighed, reference: Reference, effects: Effects, at: Floats) -> Floats:
    """The sum of functions of measured tables whose mean over each cell is the derivative toward it, on records: shape
    (records, q). Nothing is known of cells that the model leaves empty.
    """
    shares, (_, _, cells) = reference.union, reference.indicators(effects.by_set)
    members, number = cells.T.tocsr(), cells.shape[1]
    if number > _MOST_MOVES or at.size > _MOST_FIGURES:
        raise QueryError(said("answer.many_cells", figures=_MOST_FIGURES, cells=_MOST_MOVES, got=at.size, and_=number))
    held, derivative = np.asarray(members @ shares), np.zeros((number, at.size))
    for cell in np.flatnonzero(held > 0):
        rows = members.indices[members.indptr[cell] : members.indptr[cell + 1]]
        weights = (1 - _MOVED) * shares
        weights[rows] += _MOVED * shares[rows] / held[cell]
        derivative[cell] = (statistic(weights) - at) / _MOVED
    if effects.where in effects.by_set and not effects.by_set[effects.where].coarse:
        return np.asarray(cells @ derivative)
    # A little on the diagonal makes the solution unique.
    return np.asarray(cells @ solve_cells(cells, shares, held[:, None] * derivative, 1e-9 * held, 1e-8))


def linearize(inquiry: Inquiry, prepared: Weighed) -> tuple[OneStep, list[Curve], RecordFunction]:
    """The one-step estimates of a statistic, each figure's curve, and the influence function."""
    reference, n = inquiry.reference, inquiry.effects.n_rows
    shares, at = reference.union, prepared(reference.union)

    def statistic(weights: Floats) -> Floats:
        try:
            return prepared(weights)
        except QueryError:
            return np.full_like(at, math.nan)

    psi = influence_of(statistic, reference, inquiry.effects, at)
    psi = psi - shares @ psi
    flat = np.asarray(np.ravel_multi_index(reference.codes.T, reference.sizes))

    def influence(codes: Codes) -> Floats:
        asked = np.ravel_multi_index(codes.T, reference.sizes)
        places, found = np.searchsorted(flat, np.asarray(asked)).clip(0, flat.size - 1), psi
        for i, by in inquiry.moved.items():
            if (inside := inquiry.scores(i).inside) is not None:
                widths = inside.widths[inquiry.levels(reference.codes, i)]
                found = found + by * widths[:, None] * inquiry.rising(i, psi)
        # Of what the model has no rows of nothing is known.
        return np.asarray(found[places] * (flat[places] == asked)[:, None])

    step = inquiry.one_step(at, influence)
    generator, whole = np.random.Generator(np.random.SFC64(_SEED)), shares / shares.sum()
    if inquiry.where not in inquiry.effects.by_set or inquiry.effects.by_set[inquiry.where].coarse:
        toward = generator.multinomial(n, whole, _TABLES) / n - shares
        found = np.stack([(statistic(shares + _TOWARD * each) - at) / _TOWARD for each in toward]) - toward @ psi
        more = found.T @ found * n / _TABLES
        step = replace(
            step,
            sampling=step.sampling + more / n,
            model=step.model + ALIKE**2 * more,
            influence=step.influence + more,
            beyond=step.beyond + more,
        )
    errors = np.sqrt(np.maximum(np.diag(step.covariance(population=inquiry.population)), 1e-300))
    spread, curves = np.diag(step.influence), [Curve(0.0, math.inf)] * at.size
    # Powers of two, so that figures of similar errors share their tables.
    sizes = np.round(np.log2(np.clip(spread / errors**2, _LEAST_ROWS, n)))
    for power in np.unique(sizes).tolist():
        size = int(2**power)
        drawn = generator.multinomial(size, whole, _TABLES) / size
        found, means = np.stack([statistic(each) for each in drawn]) - at, (drawn - whole) @ psi
        for own in np.flatnonzero(
            (sizes == power) & (spread > 1e-16 * at**2) & np.isfinite(found).all(axis=0)
        ).tolist():
            design = np.stack([np.ones(_TABLES), means[:, own] ** 2], axis=1)
            bends, *_ = np.linalg.lstsq(design, found[:, own] - means[:, own], rcond=None)
            left = found[:, own] - means[:, own] - design @ bends
            square = left @ left / (_TABLES - 2) - step.beyond[own, own] / size
            ends = step.values[own] - at[own] + inquiry.quantile * errors[own] * np.array([-1, 1])
            # Where noise is that of fewer rows than any table has, what is missed grows as its variance does.
            farther = max(_LEAST_ROWS * errors[own] ** 2 / spread[own], 1.0)
            missed = farther * math.sqrt(max(float(square), 0.0)) / errors[own]
            curves[own] = Curve(bends[1], missed if np.all(1 + 2 * bends[1] * ends > 0) else math.inf)
    return step, curves, influence


def figures_of_function(
    inquiry: Inquiry, names: Sequence[str], start: Floats, step: OneStep, curves: Sequence[Curve], unknown: Unknown
) -> list[Figure]:
    """The figures of a statistic; where its derivative says too little, without an interval."""
    figures, whole = [], step.covariance(population=inquiry.population)
    for at, (name, curve) in enumerate(zip(names, curves, strict=True)):
        slope, value, ends = np.eye(len(names))[at], float(step.values[at]), (-math.inf, math.inf)
        if curve.missed <= _BROKEN:
            reach = inquiry.quantile * math.sqrt(max(float(whole[at, at]), 1e-300))
            means = value - float(start[at]) + np.array([0, -reach, reach])
            value, low, high = (start[at] + means + curve.bend * means**2).tolist()
            ends, slope = (low, high), slope * (high - low) / (2 * reach)
        figures.append(inquiry.figure(name, value, slope, step, ends=ends, unknown=unknown, at=at))
    for least, most, told in ((_CURVED, _BROKEN, "the interval may be too narrow"), (_BROKEN, math.inf, "it has none")):
        own = [name for name, each in zip(names, curves, strict=True) if least < each.missed <= most]
        if own:
            listed = ", ".join(own[:6]) + (" and others" if len(own) > 6 else "")
            inquiry.cautions.append(said("answer.not_smooth", listed=listed, least=least, told=told))
    return figures


def infer_function(
    model: Any, function: Callable[[Any, Any], Any], columns: Sequence[str], **settings: Any
) -> Inference:
    """What a function of a table and weights says of the rows behind a model."""
    schema = model.schema
    unknown = next((name for name in columns if name not in schema.names), None)
    if isinstance(columns, str) or not columns or unknown is not None or len(set(columns)) < len(columns):
        shown = columns if unknown is None else unknown
        raise QueryError(said("answer.columns", got=shown, listed=", ".join(schema.names[:12])))
    named = getattr(function, "__name__", type(function).__name__).replace("<lambda>", "function")
    asked = Statistic(text=named, kind="function", names=tuple(schema.names.index(name) for name in columns))
    inquiry = Inquiry(model, asked, **settings)
    codes, shares = inquiry.reference.codes, inquiry.reference.union
    labels: list[str] = []

    def called(table: Any, weights: Floats) -> Floats:
        try:
            found = function(table, weights * inquiry.effects.n_rows)
        except Exception as error:
            raise QueryError(said("answer.function_raised", got=error)) from error
        own, values = _numbers(found, named)
        if labels and own != labels:
            raise QueryError(said("answer.function_figures", got=own[:4], before=labels[:4]))
        labels[:] = own
        return values

    def prepared() -> Weighed:
        runs = [(table_of(inquiry, codes), weights) for weights in inquiry.runs(codes)]
        table, parts = pl.concat([own for own, _ in runs]), np.concatenate([weights for _, weights in runs])
        return lambda weights: called(table, np.tile(weights, len(runs)) * parts)

    _require_statistic(called, table_of(inquiry, codes), shares)
    step, curves, influence = linearize(inquiry, prepared())
    hidden = inquiry.unknown(lambda: prepared()(shares), influence)
    figures = figures_of_function(inquiry, labels, prepared()(shares), step, curves, hidden)
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
        raise QueryError(said("answer.of_rows", one=found[0], other=halves[0]))
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
        raise QueryError(said("answer.not_finite", got=dict(zip(labels[:4], numbers, strict=False))))
    return labels, np.array(numbers)
