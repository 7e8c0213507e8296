"""One-step estimates: what the model says of a statistic, corrected by what was measured. The derivation:
docs/derivations.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from sklar.answer.effects import Codes, Effect, Effects, Floats, Subset, centered, subsets
from sklar.draw.blocks import Copula
from sklar.draw.repair import repair, sample_codes
from sklar.public.rules import constrained

# By how much the true density may differ from the model's in what was not measured: relative, root mean square. With
# all but exact tables it is 0.015 over random three-way shares, and 0.064 for the worst of 143 (experiments.misfit).
ALIKE = 0.03
# Rows that a cell of a regression is held to zero by: cells that the model leaves empty say nothing.
_RIDGE = 1.0
_ROUNDS = 200
_TOLERANCE = 1e-4
# Records that are listed; beyond it, as many are drawn. Tables of one or two attributes are listed as long as they fit.
MOST_LISTED = 50_000
_MOST_CELLS = 500_000
_DRAWN = 100_000
_SEED = 20_261_116
# Functions of the levels of sets of attributes, shape (q, levels of the first, levels of the second, ...): q at a time.
Functional: TypeAlias = Mapping[Subset, Floats]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reference:
    """Records of the attributes `where`, shape (records, attributes), and what each united fit says: (fits, records).

    Few records are listed in full, with exact probabilities; else, and where rules forbid combinations, `drawn`
    independently (rows of `sample` are nearer to the model, and would understate sampling errors).
    """

    where: Subset
    sizes: tuple[int, ...]
    codes: Codes
    weights: Floats
    drawn: int | None

    @property
    def union(self) -> Floats:
        """The weights of the whole model, shape (records,)."""
        return np.asarray(self.weights.mean(axis=0))

    def places(self, attributes: Subset, effect: Effect) -> Codes:
        """The cell of each record in the table of some attributes, over the levels that an effect has."""
        codes = [self.codes[:, self.where.index(i)] for i in attributes]
        if effect.coarse:
            codes = [levels[own] for levels, own in zip(effect.coarse, codes, strict=True)]
        return np.ravel_multi_index(codes, effect.values.shape)

    def indicators(self, by_set: Mapping[Subset, Effect]) -> tuple[dict[Subset, Effect], Codes, Any]:
        """The largest measured sets, where their cells start, and 1 where a record is in a cell, (records, cells)."""
        from scipy.sparse import csr_array

        # Those that no larger one holds; over coarse levels it holds none.
        fine = [set(each) for each, effect in by_set.items() if not effect.coarse]
        chosen = {each: own for each, own in by_set.items() if not any(set(each) < other for other in fine)}
        starts = np.cumsum([0, *(effect.values.size for effect in chosen.values())])
        places = np.stack([start + self.places(*each) for start, each in zip(starts, chosen.items(), strict=False)], 1)
        ends = np.arange(0, places.size + 1, len(chosen))
        shape = (len(self.codes), int(starts[-1]))
        return chosen, starts, csr_array((np.ones(places.size), places.ravel(), ends), shape=shape)


def refer(copula: Copula, settings: Mapping[str, Any], where: Sequence[int]) -> Reference:
    """What a model of components says of these attributes."""
    components, schema, chosen = np.asarray(copula.components()), copula.schema, tuple(sorted(where))
    sizes = tuple(int(schema.sizes[i]) for i in chosen)
    if components.ndim == 0:
        # The paper's copula over dummies: its valid records, which need not agree with the noisy tables.
        draws = np.concatenate(list(sample_codes(copula, _DRAWN, _SEED)), axis=1)
        if len(draws) == schema.n_levels:
            draws = np.stack([draws[schema.cells.levels(i)].argmax(axis=0) for i in range(schema.n_attributes)])
        return _counted(chosen, sizes, draws[list(chosen)].astype(np.int64), 1)
    # Version 1 to 3: the components of one fit follow those of another, as many of each.
    fits = int(settings.get("fits") or 1)
    fits = fits if len(components) % fits == 0 else 1
    ruled = set(chosen) & set(constrained(schema.allowed))
    if ruled or math.prod(sizes) > (_MOST_CELLS if len(chosen) <= 2 else MOST_LISTED):
        # Independent draws, the same number from each fit, mended where they break a rule.
        if ruled:
            # A copula is hashed by what it is, not by what it says.
            codes = _mended(copula, fits)[list(chosen)]  # type: ignore[arg-type]
        else:
            codes = _draw(copula, fits, chosen, np.random.Generator(np.random.SFC64(_SEED)))
        return _counted(chosen, sizes, codes, fits)
    # All combinations of levels: within a component attributes are independent. The joint table of two groups of
    # attributes is one product of matrices.
    half = 1
    while half < len(chosen) and math.prod(sizes[:half]) < math.prod(sizes[half:]):
        half += 1
    groups = []
    for group in (chosen[:half], chosen[half:]):
        joint = np.ones((len(components), 1))
        for i in group:
            own = components[:, schema.cells.levels(i)].astype(np.float64)
            joint = (joint[:, :, None] * own[:, None, :]).reshape(len(components), -1)
        groups.append(np.split(joint, fits))
    tables = np.stack([(one.T @ other).ravel() for one, other in zip(*groups, strict=True)])
    weights = tables / tables.sum(axis=1, keepdims=True)
    return Reference(where=chosen, sizes=sizes, codes=grid(sizes), weights=weights, drawn=None)


def _counted(where: Subset, sizes: tuple[int, ...], codes: Codes, fits: int) -> Reference:
    """Records that were drawn, draw k from fit k modulo their number: each combination once."""
    distinct, at = np.unique(codes, axis=1, return_inverse=True)
    draws = codes.shape[1]
    weights = np.stack([np.bincount(at.ravel()[k::fits], minlength=distinct.shape[1]) for k in range(fits)])
    return Reference(
        where=where, sizes=sizes, codes=distinct.T, weights=weights / weights.sum(axis=1, keepdims=True), drawn=draws
    )


def grid(sizes: Sequence[int]) -> Codes:
    """The codes of all combinations of levels, shape (combinations, attributes), the last attribute's fastest."""
    return np.stack(np.unravel_index(np.arange(math.prod(sizes)), sizes), axis=1)


# Repairs look at all attributes and take a second: the next question to the same model finds its records here.
@lru_cache(maxsize=1)
def _mended(copula: Copula, fits: int) -> Codes:
    generator = np.random.Generator(np.random.SFC64(_SEED))
    codes = _draw(copula, fits, range(copula.schema.n_attributes), generator)
    repair(codes, copula, copula.schema.allowed, generator)
    codes.setflags(write=False)
    return codes


def _draw(copula: Copula, fits: int, where: Sequence[int], generator: np.random.Generator) -> Codes:
    """Codes of some attributes, shape (attributes, draws); draw k is from fit k modulo their number."""
    cells, components = copula.schema.cells, np.asarray(copula.components())
    each = len(components) // fits
    component = np.arange(_DRAWN) % fits * each + generator.integers(each, size=_DRAWN)
    codes = np.zeros((len(where), _DRAWN), dtype=np.int64)
    for row, i in zip(codes, where, strict=True):
        upto = np.cumsum(components[:, cells.levels(i)], axis=1, dtype=np.float64)
        at = generator.random(_DRAWN) * upto[component, -1]
        for level in range(upto.shape[1] - 1):
            row += upto[component, level] <= at
    return codes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OneStep:
    """q estimates about the coded table, with the parts of their covariance, shape (q, q) each.

    `influence` is the covariance of psi under the model, `beyond` that of its part that was not measured.
    """

    values: Floats
    noise: Floats
    sampling: Floats
    model: Floats
    influence: Floats
    beyond: Floats

    def covariance(self, *, population: bool) -> Floats:
        """All parts that belong to a target."""
        return self.noise + self.model + (self.sampling if population else 0.0)

    def measured(self, slope: Floats) -> float:
        """R^2 of a statistic with this gradient, shape (q,): the share of its influence function that was measured."""
        beyond, whole = (max(float(slope @ each @ slope), 0.0) for each in (self.beyond, self.influence))
        return 1.0 if beyond == 0 else max(1 - beyond / max(whole, beyond), 0.0)

    def part_measured(self, own: slice = slice(None)) -> float:
        """The share of the variances of some of the influence functions that was measured."""
        beyond, whole = (np.trace(each[own, own]) for each in (self.beyond, self.influence))
        return float(1 - beyond / max(whole, 1e-300))

    def of(self, places: Codes) -> OneStep:
        """Some of the estimates."""
        squares = ("noise", "sampling", "model", "influence", "beyond")
        own = {name: getattr(self, name)[np.ix_(places, places)] for name in squares}
        return replace(self, values=self.values[places], **own)


def one_step(
    effects: Effects,
    reference: Reference,
    values: Floats,
    influence: Callable[[Codes], Floats],
    scale: Floats | None = None,
) -> OneStep:
    """The one-step estimates of q statistics with these `values` by the model and this influence function of codes.

    `scale`, shape (q,), is the largest size of what is averaged where that is known: a model that knows of no row with
    some property is taken to be sure to a row.
    """
    union, own = reference.union, effects.by_set.get(effects.where)
    psi = influence(reference.codes)
    psi = psi - union @ psi
    whole = (psi * union[:, None]).T @ psi
    functional: Functional
    if own is not None and not own.coarse:
        # The table of all attributes in question was measured: any function of them is its own regression.
        functional = {effects.where: influence(grid(effects.sizes)).T.reshape(-1, *effects.sizes)}
        left = np.zeros_like(psi)
    else:
        functional, fitted = regress(effects, reference, psi, union)
        left = psi - fitted
    coefficients = parts(functional, effects.by_set)
    # The same functional of the model, as a mean over records: its parts are centered, so they need no centered tables.
    here = np.zeros(len(values))
    for each, function in coefficients.items():
        places = reference.places(each, effects.by_set[each])
        here += function.reshape(len(function), -1) @ np.bincount(places, union, effects.by_set[each].values.size)
    beyond = unmeasured = (left * union[:, None]).T @ left
    if scale is not None and left.any():
        # At least that of one row, where the scale of what is averaged is known.
        beyond = beyond + np.diag(np.maximum(scale**2 / effects.n_rows - np.diag(beyond), 0.0))
    between = ALIKE**2 * beyond
    if len(reference.weights) > 1:
        # What fits say of what was not measured. Draws of each differ by chance, too.
        spread = np.atleast_2d(np.cov(reference.weights @ left, rowvar=False))
        if reference.drawn is not None:
            spread = spread - unmeasured * len(reference.weights) / reference.drawn
            positive = np.diag(spread) > 0
            spread = spread * positive * positive[:, None]
        between = between + spread
    return OneStep(
        values=values - here + applied(coefficients, effects.by_set),
        noise=noise_covariance(coefficients, effects),
        sampling=whole / effects.n_rows,
        model=between,
        influence=whole,
        beyond=beyond,
    )


def regress(effects: Effects, reference: Reference, psi: Floats, union: Floats) -> tuple[Functional, Floats]:
    """Psi, shape (records, q), regressed on functions of all measured sets, and the fitted values: weighted least
    squares on indicators of cells.
    """
    chosen, starts, cells = reference.indicators(effects.by_set)
    # A three-way table is followed as far as its noise is less than what the model may miss without it: both are known.
    noises = [effect.variance / ALIKE**2 if effect.coarse else 0.0 for effect in chosen.values()]
    ridge = np.repeat(np.maximum(noises, _RIDGE / effects.n_rows), np.diff(starts))
    found = solve_cells(cells, union, cells.T @ (union[:, None] * psi), ridge, _TOLERANCE)
    pieces = zip(chosen.items(), np.split(found, starts[1:-1]), strict=True)
    functions = {each: piece.T.reshape(-1, *effect.values.shape) for (each, effect), piece in pieces}
    return functions, np.asarray(cells @ found)


def solve_cells(cells: Any, union: Floats, right: Floats, ridge: Floats, tolerance: float) -> Floats:
    """Functions g of cells with (B' W B + ridge) g = right, shape (cells, q), by conjugate gradients."""
    turned, ridge = cells.T.tocsr(), ridge[:, None]
    diagonal = np.maximum((turned @ union)[:, None] + ridge, 1e-300)
    found, residual = np.zeros_like(right), right.copy()
    step = residual / diagonal
    slope = np.sum(residual * step, axis=0)
    least = tolerance**2 * np.maximum(slope, 1e-300)
    for _ in range(_ROUNDS):
        image = turned @ (union[:, None] * (cells @ step)) + ridge * step
        length = slope / np.maximum(np.sum(step * image, axis=0), 1e-300)
        found += length * step
        residual -= length * image
        scaled = residual / diagonal
        after = np.sum(residual * scaled, axis=0)
        if np.all(after <= least):
            break
        step = scaled + after / np.maximum(slope, 1e-300) * step
        slope = after
    return found


def parts(functional: Functional, effects: Mapping[Subset, Effect] | None = None) -> dict[Subset, Floats]:
    """What a functional says of every effect, shape (q, levels ...): means over the attributes beside it, centered.

    Where `effects` have coarse levels, a function is of these, and its other parts are functions of smaller sets.
    """
    sums: dict[Subset, Floats] = {}
    for attributes, function in functional.items():
        coarse = effects[attributes].coarse if effects else ()
        for subset in subsets(attributes):
            others = tuple(1 + axis for axis, i in enumerate(attributes) if i not in subset)
            part = centered(function.mean(axis=others) if others else function, len(subset))
            if not coarse or subset == attributes:
                sums[subset] = sums.get(subset, 0.0) + part
                continue
            for axis, i in enumerate(subset):
                part = np.take(part, coarse[attributes.index(i)], axis=1 + axis)
            for each, own in parts({subset: part}).items():
                sums[each] = sums.get(each, 0.0) + own
    return sums


def applied(coefficients: Functional, effects: Mapping[Subset, Effect]) -> Floats:
    """The sum over effects of coefficients times values, shape (q,)."""
    terms = [part.reshape(len(part), -1) @ effects[subset].values.ravel() for subset, part in coefficients.items()]
    return np.asarray(np.sum(terms, axis=0))


def means_of(functional: Functional, effects: Effects) -> tuple[Floats, Floats]:
    """The means of functions of measured sets by noisy tables alone, shape (q,), and their covariance by noise."""
    coefficients = parts(functional)
    whole = sum(function.reshape(len(function), -1).mean(axis=1) for function in functional.values())
    return np.asarray(whole + applied(coefficients, effects.by_set)), noise_covariance(coefficients, effects)


def noise_covariance(coefficients: Functional, effects: Effects) -> Floats:
    """The covariance of functionals by noise alone, shape (q, q): where n is measured, it moves all shares alike."""
    linear = applied(coefficients, effects.by_set)
    covariance = np.zeros((linear.size, linear.size))
    for each, part in coefficients.items():
        flat = part.reshape(linear.size, -1)
        covariance += effects.by_set[each].variance * (flat @ flat.T)
    if effects.n_rows_variance:
        covariance += np.outer(linear, linear) * effects.n_rows_variance / effects.n_rows**2
    return covariance
