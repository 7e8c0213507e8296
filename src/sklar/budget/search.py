"""Domains that are not public: what a release pays to find them, and what it makes of the noisy answers.

Categories are found by a stability-based histogram (Korolova et al. 2009; Bun, Nissim and Stemmer 2016): every value
that occurs gets noise, and those whose noisy count reaches a threshold are listed; all others go to `other`. Edges are
found on a public grid between declared bounds, four times as fine at each of up to eight levels: all its cells, seen or
not, get noise, and the edges are quantiles of what comes out.

A row stands in at most one cell of each of these tables, as of any other (`budget`). The proof of what a threshold
costs beside its noise is in `Budget.less`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sklar.errors import BudgetError
from sklar.kernel.theorems import Budget
from sklar.public.schema import Attribute, Schema

# Of the whole cost, what finding domains may take, however many there are.
SHARE = 0.1
# Of delta, the chance that a threshold lets a value pass that one row alone brought.
DELTA_SHARE = 0.1
BRANCHES = 4
MOST_DEPTH = 8
# Longer texts are no categories.
MAX_TEXT = 200

# The cost that is left is held as that of so many equal tables, so that no few of them are dearer than it.
_REST_TABLES = 1000
# A cell of the grid whose estimate is not so many standard errors above zero is not divided by the next level.
_SOLID = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """How one domain is found: noisy tables at one scale; a threshold for categories, and its chance to fail."""

    attribute: str
    tables: int
    scale: float
    threshold: int | None
    lost_delta: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Search:
    """The plan for all private domains, from public facts, and scales whose cost is what it leaves for the rest."""

    findings: tuple[Finding, ...]
    rest: NDArray[np.float64]

    @property
    def scales(self) -> NDArray[np.float64]:
        """All scales, one per table."""
        return search_scales(self.findings)

    @property
    def lost_delta(self) -> float:
        """The chance that some threshold fails."""
        return math.fsum(finding.lost_delta for finding in self.findings)


def search_scales(findings: Sequence[Finding]) -> NDArray[np.float64]:
    """The scales of all tables, one each."""
    return np.repeat([finding.scale for finding in findings], [finding.tables for finding in findings]).astype(float)


def plan_search(schema: Schema, budget: Budget) -> Search:
    """Plan how the schema's private domains are found, for `SHARE` of the cost, evenly over attributes and tables."""
    if budget.mechanism != "gaussian":
        names = ", ".join(attribute.name for attribute in schema.private_domains)
        raise BudgetError(
            f"private domains ({names}) are found with Gaussian noise, got mechanism '{budget.mechanism}'. Use "
            "mechanism 'gaussian', or list their values."
        )
    wanted = schema.private_domains
    categorical = sum(attribute.kind == "categorical" for attribute in wanted)
    chance = DELTA_SHARE * budget.delta / max(categorical, 1)
    inner = budget.less(categorical * chance)
    tables = np.array([1 if attribute.kind == "categorical" else depth(attribute) for attribute in wanted])
    costs = np.concatenate(
        [SHARE / len(wanted) / tables, np.full(_REST_TABLES, (1 - SHARE) / _REST_TABLES)],
    )
    repeated = np.repeat(costs, np.concatenate([tables, np.ones(_REST_TABLES, dtype=np.int64)]))
    scales = inner.scales(repeated**-0.5)
    ends = np.cumsum(tables)
    return Search(
        findings=tuple(
            _finding(attribute, int(count), float(scale), chance)
            for attribute, count, scale in zip(wanted, tables, scales[ends - 1], strict=True)
        ),
        rest=scales[ends[-1] :].copy(),
    )


def _finding(attribute: Attribute, tables: int, scale: float, chance: float) -> Finding:
    if attribute.kind != "categorical":
        return Finding(attribute=attribute.name, tables=tables, scale=scale, threshold=None, lost_delta=0.0)
    threshold = least_threshold(scale, chance)
    return Finding(
        attribute=attribute.name, tables=1, scale=scale, threshold=threshold, lost_delta=chance_of_one(scale, threshold)
    )


def chance_of_one(scale: float, threshold: int) -> float:
    """A bound on the chance that a value of one row reaches the threshold: P(1 + X >= threshold).

    X is discrete Gaussian, P(X = k) = exp(-k^2 / (2 sigma^2)) / N. By Poisson summation N >= sigma sqrt(2 pi), and as
    the density falls, the sum over k >= t is at most its integral from t - 1: P(X >= t) <= Phi(-(t - 1) / sigma).
    """
    from scipy.special import ndtr

    # A hair more, for the rounding of ndtr.
    return float(ndtr(-(threshold - 2) / scale)) * (1 + 1e-12)


def least_threshold(scale: float, chance: float) -> int:
    """The smallest whole threshold that `chance_of_one` shows to be passed with at most this chance.

    >>> chance_of_one(10.0, least_threshold(10.0, 1e-9)) <= 1e-9 < chance_of_one(10.0, least_threshold(10.0, 1e-9) - 1)
    True
    """
    from scipy.special import ndtri

    threshold = max(math.ceil(2 - scale * float(ndtri(chance))) - 2, 2)
    while chance_of_one(scale, threshold) > chance:
        threshold += 1
    return threshold


def depth(attribute: Attribute) -> int:
    """How many levels the grid between an attribute's bounds has: up to eight, fewer where whole numbers end it."""
    if attribute.kind == "real":
        return MOST_DEPTH
    low, high = attribute.edges
    levels = 1
    while levels < MOST_DEPTH and BRANCHES**levels < high - low:
        levels += 1
    return levels


def grid(attribute: Attribute) -> Attribute:
    """The attribute with the finest cells of its grid as bins. The last may end beyond the upper bound.

    >>> age = Attribute(name="age", kind="integer", edges=(0, 100), domain="private", at_most=10)
    >>> grid(age).n_values, grid(age).edges[-2:]
    (256, (255, 256))
    """
    cells = BRANCHES ** depth(attribute)
    low, high = attribute.edges
    edges: tuple[int, ...] | tuple[float, ...]
    if attribute.kind == "real":
        width = (Fraction(high) - Fraction(low)) / cells
        edges = tuple(sorted({float(Fraction(low) + width * step) for step in range(cells + 1)}))
    else:
        step = -(-int(high - low) // cells)
        edges = tuple(int(low) + step * index for index in range(cells + 1))
    return replace(attribute, edges=edges, domain="public", at_most=0)


def found_values(
    attribute: Attribute, texts: Sequence[str], noisy: NDArray[np.int64], threshold: int, taken: frozenset[str]
) -> Attribute:
    """The attribute with the categories whose noisy count reaches the threshold: the largest `at_most` of them, sorted.

    A text that is the name of another level of the table (`taken`, as dummy names) stays in `other`.
    """
    reserved = {"other", "", "(missing)", attribute.missing}
    listed = [
        (-int(count), text)
        for text, count in zip(texts, noisy, strict=True)
        if count >= threshold and text not in reserved and f"{attribute.name}={text}" not in taken
    ]
    values = tuple(sorted(text for _, text in sorted(listed)[: attribute.at_most]))
    return replace(attribute, values=values, domain="found", at_most=0)


def found_edges(attribute: Attribute, levels: Sequence[NDArray[np.int64]], scale: float) -> Attribute:
    """The attribute with at most `at_most` bins of about equal numbers of rows, by noisy counts on every grid level.

    `levels[l]` holds the counts of 4^(l+1) cells. A cell that holds the share of a bin by itself (a common value) gets
    a bin of its own. The outermost edges leave out at each end what noise alone might have put there: bounds are wide,
    and values are spread evenly over their bin. Rows beyond them meet the fate that `outside` says.
    """
    fine = np.asarray(grid(attribute).edges)
    masses = _masses(levels, scale)[: fine.size - 1]
    low, high = attribute.edges
    total = float(masses.sum())
    if total > 0:
        upto = np.concatenate([[0.0], np.cumsum(masses)])
        tail = min(_SOLID * scale, total / attribute.at_most / 2)
        first = int(np.searchsorted(upto, tail, side="right")) - 1
        last = int(np.searchsorted(upto, total - tail))
        starts = first + _fitting(masses[first:last], total, attribute.at_most, least=_SOLID * scale)
        places = np.concatenate([[first], starts, [last]])
    else:
        # Nothing but noise: even bins say as much.
        places = np.linspace(0, masses.size, attribute.at_most + 1).astype(np.int64)
    edges = np.unique(np.clip(fine[places], low, high)).tolist()
    whole = attribute.kind != "real"
    return replace(
        attribute,
        edges=tuple(int(edge) if whole else float(edge) for edge in (edges if len(edges) > 1 else (low, high))),
        domain="found",
        at_most=0,
    )


def _masses(levels: Sequence[NDArray[np.int64]], scale: float) -> NDArray[np.float64]:
    """Non-negative counts of the finest cells: every level is fitted to the one above it, cell by cell."""
    parent = np.array([max(float(levels[0].sum()), 0.0)])
    for noisy in levels:
        children = noisy.reshape(-1, BRANCHES).astype(np.float64)
        children += ((parent - children.sum(axis=1)) / BRANCHES)[:, None]
        fitted = _project(children, parent)
        even = np.repeat(parent[:, None] / BRANCHES, BRANCHES, axis=1)
        parent = np.where((parent > _SOLID * scale)[:, None], fitted, even).ravel()
    return parent


def _project(rows: NDArray[np.float64], sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest non-negative rows with these sums (Duchi et al. 2008).

    >>> _project(np.array([[3.0, -1.0, 1.0]]), np.array([3.0])).tolist()
    [[2.5, 0.0, 0.5]]
    """
    descending = -np.sort(-rows, axis=1)
    cut = (np.cumsum(descending, axis=1) - sums[:, None]) / np.arange(1, rows.shape[1] + 1)
    last = np.count_nonzero(descending > cut, axis=1).clip(1) - 1
    return np.asarray(np.maximum(rows - cut[np.arange(len(rows)), last][:, None], 0.0))


def _fitting(masses: NDArray[np.float64], total: float, at_most: int, least: float) -> NDArray[np.int64]:
    """Where the bins after the first begin: as many bins as are allowed, none meant to hold less than `least`."""
    target = total / at_most
    starts = _starts(masses, target)
    while starts.size >= at_most:
        target *= 1.1
        starts = _starts(masses, target)
    # Common values took more than their share: what they left over is divided more finely.
    while target > least:
        target *= 0.9
        finer = _starts(masses, target)
        if finer.size >= at_most:
            break
        starts = finer
    return starts


def _starts(masses: NDArray[np.float64], target: float) -> NDArray[np.int64]:
    """The cells at which a new bin begins: once the last holds `target`, and around a cell that holds it by itself."""
    upto = np.concatenate([[0.0], np.cumsum(masses)])
    heavy = np.append(np.flatnonzero(masses >= target), masses.size)
    starts, here = [], 0
    while here < masses.size:
        full = int(np.searchsorted(upto, upto[here] + target * (1 - 1e-9)))
        large = int(heavy[np.searchsorted(heavy, here)])
        here = large + 1 if large == here else min(max(full, here + 1), large)
        starts.append(here)
    return np.array([start for start in starts if start < masses.size], dtype=np.int64)
