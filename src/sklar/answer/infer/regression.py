"""Correlations, linear and logistic regressions: estimates of first order around the fitted model.

A row with a missing value of any attribute in question is left out, as statistical packages do. A linear regression
solves E[x (y - x'b)] = 0; with A = E[x x'] the influence function of b is A^-1 x (y - x'b), a product of two sums over
attributes, so a sum of functions of pairs: all of it was measured. A logistic regression has A = E[p (1 - p) x x'] and
A^-1 x (y - p), of which x p is a function of all regressors together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sklar.answer.infer.effects import Effects, Floats, Subset, noise_covariance, parts
from sklar.answer.infer.onestep import Linearized
from sklar.answer.infer.reference import Reference
from sklar.answer.predicate import QueryError

Codes = NDArray[np.int64]

# The smallest eigenvalue of the moment matrix must stand so many of its standard errors above zero.
CLEAR = 4.0
# Categories with fewer standard errors of rows than this are taken together.
CLEAR_LEVEL = 8.0
_NEWTON = 30
_DETERMINED = "the regressors must not determine one another, and by the model they do. Leave one of them out."
_SEPARATED = (
    "a logistic regression needs an outcome that the regressors leave open, and by the model they decide it, or one "
    "another. Leave one of them out."
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Term:
    """What one attribute contributes to a regression: its place, columns of shape (levels, k) with names, and `known`.

    `known` is 1 for levels that have a value, else 0; columns are 0 elsewhere.
    """

    attribute: int
    columns: Floats
    names: tuple[str, ...]
    known: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Design:
    """A regression: the outcome's term (one column), the regressors' terms, and which records to look at, if not all.

    `given` is 1 for records that take part and 0 for others, by their codes of the attributes `where`.
    """

    where: Subset
    outcome: Term
    regressors: tuple[Term, ...]
    given: Callable[[Codes], Floats] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coefficients, the intercept first."""
        return ("(intercept)", *(name for term in self.regressors for name in term.names))

    @property
    def whole(self) -> bool:
        """Whether every row takes part: nothing is missing and no condition is set."""
        return self.given is None and all(term.known.all() for term in (self.outcome, *self.regressors))


class Records:
    """The columns of a regression on records: the design matrix, the outcome, and which records take part."""

    def __init__(self, design: Design, codes: Codes) -> None:
        def at(term: Term, values: Floats) -> Floats:
            return np.asarray(values[codes[:, design.where.index(term.attribute)]])

        columns = [at(term, term.columns) for term in design.regressors]
        self.x = np.concatenate([np.ones((len(codes), 1)), *columns], axis=1)
        self.y = at(design.outcome, design.outcome.columns)[:, 0]
        self.kept = np.ones(len(codes)) if design.given is None else design.given(codes)
        for term in (design.outcome, *design.regressors):
            self.kept = self.kept * at(term, term.known)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Correlation:
    """A correlation, and the moments that its influence function is made of: means, sds, and the share of rows kept."""

    value: float
    means: tuple[float, float]
    sds: tuple[float, float]
    share: float

    def influence(self, x: Floats, y: Floats, kept: Floats) -> Floats:
        """The influence of records with these values: a b - r (a^2 + b^2) / 2 for standardized a and b."""
        a, b = (x - self.means[0]) / self.sds[0], (y - self.means[1]) / self.sds[1]
        return np.asarray(kept / self.share * (a * b - self.value / 2 * (a**2 + b**2)))


def correlate(x: Floats, y: Floats, kept: Floats, weights: Floats) -> Correlation:
    """The correlation of two columns of records under these weights."""
    weights = weights * kept
    share = float(weights.sum())
    if share <= 0:
        raise QueryError("the model leaves no rows with both values. Ask about more rows.")
    weights = weights / share
    means = float(weights @ x), float(weights @ y)
    a, b = x - means[0], y - means[1]
    sds = float(np.sqrt(weights @ a**2)), float(np.sqrt(weights @ b**2))
    if sds[0] <= 1e-6 * np.abs(x).max() or sds[1] <= 1e-6 * np.abs(y).max():
        raise QueryError("a correlation needs two numbers that vary, and by the model one does not. Ask about another.")
    return Correlation(value=float(weights @ (a * b)) / (sds[0] * sds[1]), means=means, sds=sds, share=share)


def solve_linear(records: Records, weights: Floats) -> tuple[Floats, Floats]:
    """Coefficients of the linear regression under these weights, shape (q,), and A^-1, shape (q, q)."""
    weights = weights * records.kept
    weighted = records.x * weights[:, None]
    inverse = _inverse(weighted.T @ records.x, _DETERMINED)
    return inverse @ (weighted.T @ records.y), inverse


def solve_logistic(records: Records, weights: Floats, start: Floats | None = None) -> tuple[Floats, Floats]:
    """Coefficients of the logistic regression under these weights by Newton's method, and A^-1."""
    weights = weights * records.kept
    found = np.zeros(records.x.shape[1]) if start is None else start.copy()
    inverse = np.eye(found.size)
    for _ in range(_NEWTON):
        p = _logistic(records.x @ found)
        weighted = records.x * (weights * p * (1 - p))[:, None]
        inverse = _inverse(weighted.T @ records.x, _SEPARATED)
        step = inverse @ (records.x.T @ (weights * (records.y - p)))
        found = found + np.clip(step, -5.0, 5.0)
        if np.abs(step).max() < 1e-9 * (1 + np.abs(found).max()):
            return found, inverse
    raise QueryError(_SEPARATED)


def _logistic(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -500, 500))))


def _inverse(moments: Floats, told: str) -> Floats:
    """The inverse of a moment matrix; where there is none, an error that says so in the given words."""
    scale = np.sqrt(np.maximum(np.diag(moments), 1e-300))
    scaled = moments / np.outer(scale, scale)
    values, vectors = np.linalg.eigh(scaled)
    if values[0] < 1e-9:
        raise QueryError(told)
    return np.asarray((vectors / values) @ vectors.T / np.outer(scale, scale))


def linearize_linear(design: Design, reference: Reference) -> Linearized:
    """The coefficients of a linear regression near the model."""
    records = Records(design, reference.codes)
    found, inverse = solve_linear(records, reference.union)
    by_fit = np.stack([solve_linear(records, weights)[0] for weights in reference.weights])

    def influence(codes: Codes) -> Floats:
        at = records if codes is reference.codes else Records(design, codes)
        left = at.kept * (at.y - at.x @ found)
        return np.asarray((at.x * left[:, None]) @ inverse)

    if not design.whole:
        return Linearized(values=found, by_fit=by_fit, influence=influence)
    # psi = U R with U = u0 + sum of u_s and R = r0 + sum of r_s, both sums over attributes.
    splits = _additive(design, found, inverse)
    return Linearized(values=found, by_fit=by_fit, influence=influence, exact=_product(*splits))


def linearize_logistic(design: Design, reference: Reference) -> Linearized:
    """The coefficients of a logistic regression near the model."""
    records = Records(design, reference.codes)
    found, inverse = solve_logistic(records, reference.union)
    by_fit = np.stack([solve_logistic(records, weights, found)[0] for weights in reference.weights])

    def influence(codes: Codes) -> Floats:
        at = records if codes is reference.codes else Records(design, codes)
        left = at.kept * (at.y - _logistic(at.x @ found))
        return np.asarray((at.x * left[:, None]) @ inverse)

    if not design.whole:
        return Linearized(values=found, by_fit=by_fit, influence=influence)
    pulls, _ = _additive(design, found, inverse)
    outcome: tuple[Floats, dict[int, Floats]] = (
        np.zeros(1),
        {design.outcome.attribute: design.outcome.columns.T.copy()},
    )

    def rest(codes: Codes) -> Floats:
        x = records.x if codes is reference.codes else Records(design, codes).x
        return np.asarray(-(x * _logistic(x @ found)[:, None]) @ inverse)

    return Linearized(values=found, by_fit=by_fit, influence=influence, exact=_product(pulls, outcome), rest=rest)


# A sum over attributes: its constant, shape (q,), and a function of each attribute's levels, shape (q, levels).
_Additive = tuple[Floats, dict[int, Floats]]


def _additive(design: Design, found: Floats, inverse: Floats) -> tuple[_Additive, _Additive]:
    """A^-1 x and y - x'b as sums over attributes."""
    pulls: dict[int, Floats] = {}
    rest: dict[int, Floats] = {design.outcome.attribute: design.outcome.columns.T.copy()}
    at = 1
    for term in design.regressors:
        own = slice(at, at + term.columns.shape[1])
        at = own.stop
        _add(pulls, term.attribute, inverse[:, own] @ term.columns.T)
        _add(rest, term.attribute, -(term.columns @ found[own])[None, :])
    return (inverse[:, 0], pulls), (-found[:1], rest)


def _add(into: dict[int, Floats], attribute: int, function: Floats) -> None:
    into[attribute] = into[attribute] + function if attribute in into else function


def _product(first: _Additive, second: _Additive) -> dict[Subset, Floats]:
    """The product of two sums over attributes, as functions of pairs and of single attributes."""
    (u0, us), (r0, rs) = first, second
    found: dict[Subset, Floats] = {}

    def add(subset: Subset, function: Floats) -> None:
        found[subset] = found[subset] + function if subset in found else function

    for s, u in us.items():
        add((s,), u * r0[:, None])
        for t, r in rs.items():
            if s == t:
                add((s,), u * r)
            elif s < t:
                add((s, t), u[:, :, None] * r[:, None, :])
            else:
                add((t, s), r[:, :, None] * u[:, None, :])
    for t, r in rs.items():
        add((t,), u0[:, None] * r)
    return found


def clearness(design: Design, effects: Effects, reference: Reference) -> float:
    """By how many standard errors the smallest eigenvalue of the regressors' noisy moment matrix exceeds zero.

    Regressors are in units of the model's standard deviation, less the model's mean.
    """
    levels: dict[int, list[Floats]] = {}
    union = reference.union
    for term in design.regressors:
        margin = reference.table((term.attribute,), union)
        columns = term.columns - margin @ term.columns * term.known[:, None]
        sds = np.sqrt(np.maximum(margin @ columns**2, 1e-12))
        levels.setdefault(term.attribute, []).append(columns / sds)
    columns_of = {attribute: np.concatenate(columns, axis=1) for attribute, columns in levels.items()}
    places, at = {}, 0
    for attribute, columns in columns_of.items():
        places[attribute] = slice(at, at + columns.shape[1])
        at += columns.shape[1]
    moments = np.zeros((at, at))
    for s, columns in columns_of.items():
        own = measured_table(effects, (s,))
        moments[places[s], places[s]] = (columns * own[:, None]).T @ columns
        for t, others in columns_of.items():
            if s < t:
                block = columns.T @ measured_table(effects, (s, t)) @ others
                moments[places[s], places[t]], moments[places[t], places[s]] = block, block.T
    values, vectors = np.linalg.eigh(moments)
    sums = {attribute: columns @ vectors[places[attribute], 0] for attribute, columns in columns_of.items()}
    functional: dict[Subset, Floats] = {}
    for s, one in sums.items():
        functional[(s,)] = one[None, :] ** 2
        for t, other in sums.items():
            if s < t:
                functional[s, t] = 2 * np.outer(one, other)[None, :, :]
    error = float(np.sqrt(noise_covariance(parts(functional), effects)[0, 0]))
    return float(values[0]) / max(error, 1e-300)


def measured_table(effects: Effects, attributes: Subset) -> Floats:
    """The noisy table of some attributes as shares of rows, all its effects pooled."""
    sizes = [effects.size_of(i) for i in attributes]
    table = np.full(sizes, 1 / np.prod(sizes))
    for subset, effect in effects.by_set.items():
        if set(subset) <= set(attributes):
            shape = [size if i in subset else 1 for i, size in zip(attributes, sizes, strict=True)]
            others = np.prod([size for i, size in zip(attributes, sizes, strict=True) if i not in subset])
            table = table + effect.values.reshape(shape) / others
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """How categories enter a regression: those with a column of their own, those taken together, and the reference.

    `joined` says that the rare ones are too few for a column even together: they count as the reference.
    """

    own: tuple[str, ...]
    rare: tuple[str, ...]
    reference: str
    joined: bool


def code_levels(columns: Mapping[str, Floats], shares: Floats, error: float) -> Coding:
    """The coding of categories, by the noisy shares of levels and their error.

    `columns` gives the levels of each category as 0 and 1.
    """
    clear = [name for name, levels in columns.items() if float(levels @ shares) >= CLEAR_LEVEL * error]
    rare = [name for name in columns if name not in clear]
    together = float(np.sum([columns[name] @ shares for name in rare]))
    joined = bool(rare) and together < CLEAR_LEVEL * error * np.sqrt(len(rare))
    if not clear or len(clear) + (bool(rare) and not joined) < 2:
        raise QueryError("a regressor needs two categories with far more rows than noise. Leave it out.")
    return Coding(own=tuple(clear[1:]), rare=tuple(rare), reference=clear[0], joined=joined)


def indicators(coding: Coding, columns: Mapping[str, Floats]) -> tuple[Floats, list[str]]:
    """Columns of 0 and 1, shape (levels, k), of a coding; and their names."""
    found, names = [columns[name] for name in coding.own], list(coding.own)
    if coding.rare and not coding.joined:
        found.append(np.sum([columns[name] for name in coding.rare], axis=0))
        names.append(coding.rare[0] if len(coding.rare) == 1 else f"{len(coding.rare)} rare levels")
    return np.stack(found, axis=1), names
