"""One-step estimates: what the model says of a statistic, corrected by what was measured.

Let theta be a statistic, P the fitted model and psi its influence function there: theta(Q) is theta(P) + E_Q psi up to
terms of second order in Q - P. Psi is regressed, under P, on functions of the sets of attributes that were measured;
the functional G that this gives is known from noisy tables without bias. So the estimate is

    theta(P) + <G, noisy - P>,

whose noise is known exactly. What psi has beyond G was never measured: the model alone speaks of it, and how far its
united fits disagree says how well. Their one-step estimates differ in nothing else, but for terms of second order; the
variance between them is added as it is, not divided by their number, because what a fit invents the others may too.
What all fits miss alike is added as `ALIKE` of the standard deviation of psi beyond G: what a density that differs from
the model's by so much, in all that was not measured, could do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sklar.answer.infer.effects import (
    Effects,
    Floats,
    Functional,
    Subset,
    applied,
    joined,
    noise_covariance,
    parts,
    split_coarse,
)
from sklar.answer.infer.reference import Reference, grid

# By how much the true density may differ from the model's in what was not measured: relative, root mean square. With
# all but exact tables it is 0.015 over random three-way shares, and 0.064 for the worst of 143 (experiments.misfit).
ALIKE = 0.03
# Rows that a cell of a regression is held to zero by: cells that the model leaves empty say nothing.
_RIDGE = 1.0
_ROUNDS = 60
_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Linearized:
    """q statistics near the fitted model.

    `values`, shape (q,), are those of the model and `by_fit`, shape (fits, q), those of each of its fits. `influence`
    gives psi for codes of shape (records, attributes), shape (records, q). Where part of psi is known to be a sum of
    functions of measured tables, `exact` is that part, and `rest` the remainder as a function of codes. `scale`, shape
    (q,), is the largest size of what is averaged where that is known: a share's is 1. A model that knows of no row with
    some property does not know that there is none; it is taken to be sure to a row.
    """

    values: Floats
    by_fit: Floats
    influence: Callable[[NDArray[np.int64]], Floats]
    exact: Functional | None = None
    rest: Callable[[NDArray[np.int64]], Floats] | None = None
    scale: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OneStep:
    """q estimates with the parts of their covariance, shape (q, q) each; all of them are about the coded table.

    `noise` is the release's. `sampling` is that of a table drawn from a population. `model` is that of what was not
    measured: the variance between the united fits, and what they may miss alike. `influence` is the covariance of the
    influence functions under the model, `beyond` that of their part that was not measured. The estimates are `offset`
    plus the sum over effects of `coefficients` times what was measured.
    """

    values: Floats
    noise: Floats
    sampling: Floats
    model: Floats
    influence: Floats
    beyond: Floats
    offset: Floats
    coefficients: Functional

    def covariance(self, *, population: bool) -> Floats:
        """All parts that belong to a target."""
        return self.noise + self.model + (self.sampling if population else 0.0)

    def measured(self, slope: Floats) -> float:
        """R^2 of a statistic with this gradient, shape (q,): the share of its influence function that was measured."""
        beyond, whole = (max(float(slope @ each @ slope), 0.0) for each in (self.beyond, self.influence))
        return 1.0 if beyond == 0 else max(1 - beyond / max(whole, beyond), 0.0)


def one_step(effects: Effects, reference: Reference, linear: Linearized) -> OneStep:
    """The one-step estimates of these statistics."""
    union = reference.union
    psi = linear.influence(reference.codes)
    psi = psi - union @ psi
    whole = (psi * union[:, None]).T @ psi
    functional, tops, left = _measured_part(effects, reference, linear, psi, union)
    coefficients = parts(functional)
    seen = applied(coefficients, {subset: effects.by_set[subset].values for subset in coefficients})
    if tops:
        seen = seen + applied(tops, {subset: effects.coarse[subset].values for subset in tops})
    # The same functional of the model, as a mean over records: its parts are centered, so they need no centered tables.
    here = reference.over_records(coefficients, tops, effects.coarse)
    fits = linear.by_fit + seen - reference.weights @ here
    beyond = _unmeasured(effects, linear, left, union)
    between = ALIKE**2 * beyond
    if len(fits) > 1:
        spread = np.atleast_2d(np.cov(fits, rowvar=False))
        if reference.drawn is not None and left is not None:
            # Draws of each fit differ by chance too, in what was not measured.
            spread = spread - (left * union[:, None]).T @ left * len(fits) / reference.drawn
            positive = np.diag(spread) > 0
            spread = spread * positive * positive[:, None]
        between = between + spread
    return OneStep(
        values=linear.values - union @ here + seen,
        noise=noise_covariance(coefficients, effects, tops),
        sampling=whole / effects.n_rows,
        model=between,
        influence=whole,
        beyond=beyond,
        offset=linear.values - union @ here,
        coefficients=coefficients,
    )


def _unmeasured(effects: Effects, linear: Linearized, left: Floats | None, union: Floats) -> Floats:
    """The covariance of what is left of psi, at least that of a row where the scale of what is averaged is known."""
    size = linear.values.size
    if left is None:
        return np.zeros((size, size))
    least = np.zeros(size) if linear.scale is None else linear.scale**2 / effects.n_rows
    beyond = (left * union[:, None]).T @ left
    return np.asarray(beyond + np.diag(np.maximum(least - np.diag(beyond), 0.0)))


def _measured_part(
    effects: Effects, reference: Reference, linear: Linearized, psi: Floats, union: Floats
) -> tuple[Functional, Functional, Floats | None]:
    """The functional that psi is regressed to, its part on coarse levels, and what is left of psi; None: nothing."""
    whole, exact = effects.where, linear.exact
    if whole in effects.by_set:
        # The table of all attributes in question was measured: any function of them is its own regression.
        function = linear.influence(grid(effects.sizes))
        return {whole: function.T.reshape(-1, *effects.sizes)}, {}, None
    if exact is None or any(subset not in effects.by_set for subset in exact):
        exact, rest = {}, psi
    elif linear.rest is None:
        return exact, {}, None
    else:
        rest = linear.rest(reference.codes)
    rest = rest - union @ rest
    fitted, over_coarse, seen = regress(effects, reference, rest, union)
    tops, smaller = split_coarse(over_coarse, effects.coarse)
    return joined([exact, fitted, smaller]), tops, rest - seen


def regress(
    effects: Effects, reference: Reference, psi: Floats, union: Floats
) -> tuple[dict[Subset, Floats], dict[Subset, Floats], Floats]:
    """Psi, shape (records, q), regressed on functions of all measured sets, and of coarse ones; and the fitted values.

    Weighted least squares on indicators of cells, by conjugate gradients: (B' W B + ridge) g = B' W psi.
    """
    from scipy.sparse import csr_array

    sets = effects.widest()
    shapes = [tuple(effects.size_of(i) for i in each) for each in sets]
    # A triple whose own table was measured needs no coarse one.
    coarse = {each: effect for each, effect in effects.coarse.items() if each not in effects.by_set}
    shapes += [effect.values.shape for effect in coarse.values()]
    starts = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    places = [reference.places(each) for each in sets]
    places += [reference.coarse_places(each, effect) for each, effect in coarse.items()]
    columns = np.stack([each + start for each, start in zip(places, starts, strict=False)], axis=1)
    records = len(psi)
    cells = csr_array(
        (np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, len(places))),
        shape=(records, int(starts[-1])),
    )
    turned = cells.T.tocsr()
    # A three-way table is followed as far as its noise is less than what the model may miss without it: both are known.
    noises = [0.0] * len(sets) + [effect.variance / ALIKE**2 for effect in coarse.values()]
    ridge = np.repeat(np.maximum(noises, _RIDGE / effects.n_rows), np.diff(starts))[:, None]
    diagonal = (turned @ union)[:, None] + ridge
    right = turned @ (union[:, None] * psi)
    found, residual = np.zeros_like(right), right.copy()
    step = residual / diagonal
    slope = np.sum(residual * step, axis=0)
    least = _TOLERANCE**2 * np.maximum(slope, 1e-300)
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
    functions = [
        found[start:stop].T.reshape(-1, *shape)
        for shape, start, stop in zip(shapes, starts[:-1], starts[1:], strict=True)
    ]
    fine, over_coarse = functions[: len(sets)], functions[len(sets) :]
    return (
        dict(zip(sets, fine, strict=True)),
        dict(zip(coarse, over_coarse, strict=True)),
        np.asarray(cells @ found),
    )
