"""Domains that are not public: how a release looks for them, and what it pays.

Categories are found by a stability-based histogram (Korolova et al. 2009; Bun, Nissim and Stemmer 2016): every value
that occurs gets noise, and those whose noisy count reaches a threshold are listed; all others go to `other`. Edges are
found on a public grid between declared bounds, four times as fine at each of up to eight levels: all its cells, seen or
not, get noise, and the edges are quantiles of what comes out (`fitting.domains`).

A row stands in at most one cell of each of these tables, as of any other. The proof of what a threshold
costs beside its noise is in `Budget.less`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from sklar.errors import BudgetError
from sklar.kernel.theorems import Budget, Spend, chance_of_one, least_threshold
from sklar.public.schema import Attribute, Schema

# Of the whole cost, what finding domains may take, however many there are.
SHARE = 0.1
# Of delta, the chance that a threshold lets a value pass that one row alone brought.
DELTA_SHARE = 0.1
BRANCHES = 4
MOST_DEPTH = 8
# Longer texts are no categories.
MAX_TEXT = 200

# The cost that is left is held as that of many equal tables, so that no few tables are dearer than it.
_REST_TABLES = 1000


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
    """The plan for all private domains, from public facts, and the cost that it leaves for the rest of the release."""

    findings: tuple[Finding, ...]
    rest: Spend

    @property
    def spend(self) -> Spend:
        """What finding all domains costs."""
        return search_spend(self.findings)


def search_spend(findings: Sequence[Finding]) -> Spend:
    """What these findings cost together."""
    return Spend.of(
        [finding.scale for finding in findings],
        [finding.tables for finding in findings],
        math.fsum(finding.lost_delta for finding in findings),
    )


def plan_search(schema: Schema, budget: Budget) -> Search:
    """Plan how the schema's private domains are found, for `SHARE` of the cost, evenly over attributes and tables."""
    if budget.mechanism != "gaussian":
        names = ", ".join(attribute.name for attribute in schema.private_domains)
        raise BudgetError(
            f"private domains ({names}) are found with Gaussian noise, got mechanism '{budget.mechanism}'. Use "
            "mechanism 'gaussian', or list their values."
        )
    wanted = schema.private_domains
    return _planned(wanted, [1 if each.kind == "categorical" else depth(each) for each in wanted], budget)


def _planned(wanted: Sequence[Attribute], numbers: Sequence[int], budget: Budget) -> Search:
    """The plan for these attributes, each found by so many tables."""
    categorical = sum(attribute.kind == "categorical" for attribute in wanted)
    chance = DELTA_SHARE * budget.delta / max(categorical, 1)
    inner = budget.less(categorical * chance)
    tables = np.array(numbers)
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
        rest=Spend.of(scales[ends[-1] :]),
    )


def finding_faults(
    schema: Schema, budget: Budget, findings: Sequence[Finding], earlier: Sequence[str]
) -> tuple[str, ...]:
    """What is wrong with the searches that a certificate states for this schema; none where it is what a release does.

    Every domain that was found has its search here, or was found by an `earlier` release, and no other has one; each
    was found by as many tables as its grid has levels, at the scale and the threshold that the budget gives to a
    search of so many tables.
    """
    found = [attribute.name for attribute in schema.attributes if attribute.domain == "found"]
    searched = [finding.attribute for finding in findings]
    if sorted([*searched, *earlier]) != sorted(found):
        odd = sorted({*found} ^ {*searched, *earlier}) or sorted(searched)
        return (f"the domain of '{odd[0]}' is found with no search stated, or searched for and not found",)
    if [name for name in found if name in searched] != searched or [each for each in found if each in earlier] != [
        *earlier
    ]:
        return ("searches are stated in another order than the schema's",)
    if not findings:
        return ()
    if budget.mechanism != "gaussian":
        return (f"a search takes Gaussian noise, not '{budget.mechanism}'",)
    attributes = [schema.attribute(name) for name in searched]
    for attribute, finding in zip(attributes, findings, strict=True):
        least, most = _possible_tables(attribute)
        if not least <= finding.tables <= most:
            return (f"the domain of '{attribute.name}' takes {least} to {most} tables, not {finding.tables}",)
    return tuple(
        f"the search for the domain of '{stated.attribute}' is not the one that this budget plans"
        for stated, wanted in zip(findings, replan_search(schema, budget, findings).findings, strict=True)
        if not _alike(stated, wanted)
    )


def replan_search(schema: Schema, budget: Budget, findings: Sequence[Finding]) -> Search:
    """The plan that a release by this budget had for these findings, by the schema that it found."""
    attributes = [schema.attribute(finding.attribute) for finding in findings]
    return _planned(attributes, [finding.tables for finding in findings], budget)


def _possible_tables(attribute: Attribute) -> tuple[int, int]:
    """The least and the largest number of tables by which this domain can have been found.

    The bounds that the grid lay between were at least as wide as the edges that were found.
    """
    if attribute.kind == "categorical":
        return 1, 1
    return depth(replace(attribute, edges=(attribute.edges[0], attribute.edges[-1]))), MOST_DEPTH


def _alike(stated: Finding, planned: Finding) -> bool:
    """Whether two plans are one, but for the last digits, which may differ between machines."""
    if stated.threshold is None or planned.threshold is None:
        return stated.threshold == planned.threshold and stated.lost_delta == 0 and _near(stated.scale, planned.scale)
    close = abs(stated.threshold - planned.threshold) <= 1 and _near(stated.scale, planned.scale)
    return close and math.isclose(stated.lost_delta, chance_of_one(stated.scale, stated.threshold), rel_tol=1e-9)


def _near(stated: float, planned: float) -> bool:
    return math.isclose(stated, planned, rel_tol=1e-6)


def _finding(attribute: Attribute, tables: int, scale: float, chance: float) -> Finding:
    if attribute.kind != "categorical":
        return Finding(attribute=attribute.name, tables=tables, scale=scale, threshold=None, lost_delta=0.0)
    threshold = least_threshold(scale, chance)
    return Finding(
        attribute=attribute.name, tables=1, scale=scale, threshold=threshold, lost_delta=chance_of_one(scale, threshold)
    )


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
    return replace(attribute, edges=edges, points=(), domain="public", at_most=0)
