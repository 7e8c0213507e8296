"""Domains that are not public: how a release looks for them, and what it pays.

Categories are found by a stability-based histogram (Korolova et al. 2009; Bun, Nissim and Stemmer 2016): every value
that occurs gets noise, and those whose noisy count reaches a threshold are listed; all others go to `other`. Numbers
are counted between declared bounds, table by table in finer cells (`ladder`): all cells of a table, seen or not, get
noise, and bins and heaps follow from what comes out (`fitting.domains`). One small table more, of decade by step, tells
to what numbers are rounded.

A row stands in at most one cell of each of these tables, as of any other, and at most `Budget.rows` rows of a person
are counted. The proof of what a threshold costs beside its noise is in `Budget.less`.

What a search takes is chosen for the whole release. A column of numbers wants counts whose standard error is `WANTED`
of the rows, whatever the budget: then edges, heaps and shapes are as good as bins of a twentieth need them. That is a
small part of the cost where rows are many. Where they are few, all searches together take no more than `MOST` of the
cost: the two-way tables over the levels that are found get the rest, and would lose more than the search gains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sklar.budget.ladder import ladder_of, next_cells
from sklar.errors import BudgetError
from sklar.kernel.theorems import Budget, Spend, chance_of_one, least_threshold
from sklar.public.schema import Attribute, Schema

# The standard error of a number's counts that a search wants, as a part of the rows.
WANTED = 0.0034
# What the tables of one column cost together, in tables at that noise. Two cost as much as four: where they reach every
# grain, the shape inside a bin is theirs alone.
_WHOLE_SEARCH = 4
# Of the whole cost, the most that finding numbers may take, however many columns there are.
MOST = 0.15
# Of the whole cost, a table of numbers where the number of rows is not public.
_UNKNOWN_ROWS = 0.005
# Of the whole cost, what one table of decade by step takes.
ROUNDING_SHARE = 0.0025
# Of the whole cost, what finding categories takes where all private domains are categories.
SHARE = 0.1
# Of delta, the chance that a threshold lets a value pass that one person alone brought.
DELTA_SHARE = 0.1
# Numbers take at most this many tables, or took in Sklar 0.2.
_MOST_TABLES = 8
# Longer texts are no categories.
MAX_TEXT = 200

# The cost that is left is held as that of many equal tables, so that no few tables are dearer than it.
_REST_TABLES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one search measures: noisy tables at one scale; a threshold for categories, and its chance to fail.

    It looks for a `domain`, or for the `rounding` of numbers; these lie between `bounds`, and get at most `at_most`
    levels.
    """

    attribute: str
    tables: int
    scale: float
    threshold: int | None
    lost_delta: float
    of: Literal["domain", "rounding"] = "domain"
    bounds: tuple[float, float] | None = None
    at_most: int = 0

    @classmethod
    def of_dict(cls, document: Mapping[str, Any]) -> Finding:
        """From JSON, which has lists for tuples."""
        bounds = document.get("bounds")
        return cls(**{**document, "bounds": None if bounds is None else (bounds[0], bounds[1])})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Search:
    """The plan for all private domains, from public facts, and the cost that it leaves for the rest of the release.

    `share` is the part of the whole cost that it takes, and `wanted` the part that it would take without a limit;
    `factor` is how many times the noise of numbers is what they want. Without private domains all of the budget is
    left, and `rest` is None.
    """

    findings: tuple[Finding, ...] = ()
    rest: Spend | None = None
    share: float = 0.0
    wanted: float = 0.0
    factor: float = 1.0

    def spend(self, budget: Budget) -> Spend:
        """What finding all domains costs."""
        return search_spend(self.findings, budget)


def search_spend(findings: Sequence[Finding], budget: Budget) -> Spend:
    """What these findings cost together."""
    return budget.tables(
        [finding.scale for finding in findings],
        [finding.tables for finding in findings],
        math.fsum(finding.lost_delta for finding in findings),
    )


def require_gaussian(schema: Schema, budget: Budget) -> None:
    """Refuse a budget whose noise finds no domains where the schema has private ones."""
    if schema.private_domains and budget.mechanism != "gaussian":
        names = ", ".join(attribute.name for attribute in schema.private_domains)
        raise BudgetError(
            f"private domains ({names}) are found with Gaussian noise, got mechanism '{budget.mechanism}'. Use "
            "mechanism 'gaussian', or list their values."
        )


def plan_search(schema: Schema, budget: Budget, *, n_rows: int | None) -> Search:
    """Plan how the schema's private domains are found: from the schema, the budget and the rows' number if public."""
    require_gaussian(schema, budget)
    return _planned(schema.private_domains, budget, n_rows)


def _planned(wanted: Sequence[Attribute], budget: Budget, n_rows: int | None) -> Search:
    if not wanted:
        return Search()
    categories = [attribute for attribute in wanted if attribute.categorical]
    ladders = {attribute.name: ladder_of(attribute) for attribute in wanted if not attribute.categorical}
    searched = len(categories) + sum(ladder.tables > 0 for ladder in ladders.values())
    chance = DELTA_SHARE * budget.delta / max(len(categories), 1)
    inner = budget.less(len(categories) * chance)
    # What the whole budget buys, as a sum of 1 / scale^2.
    whole = float(np.sum(inner.scales(np.ones(_REST_TABLES)) ** -2.0))
    table = _UNKNOWN_ROWS if n_rows is None else (WANTED * max(n_rows, 1)) ** -2.0 / whole
    asked = sum(
        bool(ladder.tables) * _WHOLE_SEARCH * table + bool(ladder.steps) * ROUNDING_SHARE for ladder in ladders.values()
    )
    factor = min(1.0, MOST / asked) if asked else 1.0

    findings: list[tuple[Finding, float]] = []
    for attribute in wanted:
        if attribute.categorical:
            blank = Finding(attribute=attribute.name, tables=1, scale=0.0, threshold=0, lost_delta=0.0)
            findings.append((blank, SHARE / searched))
            continue
        ladder, low, high = ladders[attribute.name], attribute.edges[0], attribute.edges[-1]
        blank = Finding(
            attribute=attribute.name,
            tables=ladder.tables,
            scale=0.0,
            threshold=None,
            lost_delta=0.0,
            bounds=(low, high),
            at_most=attribute.at_most,
        )
        if ladder.tables:
            findings.append((blank, table * factor * _WHOLE_SEARCH / ladder.tables))
        if ladder.steps:
            findings.append((replace(blank, of="rounding", tables=1), ROUNDING_SHARE * factor))
    costs = [cost for finding, cost in findings for _ in range(finding.tables)]
    share = math.fsum(costs)
    rest = np.full(_REST_TABLES, (1 - share) / _REST_TABLES)
    scales = inner.scales(np.concatenate([costs, rest]) ** -0.5)
    placed = np.cumsum([finding.tables for finding, _ in findings], dtype=np.int64) - 1
    return Search(
        findings=tuple(
            _at_scale(finding, float(scales[place]), chance, budget.rows)
            for (finding, _), place in zip(findings, placed.tolist(), strict=True)
        ),
        rest=budget.tables(scales[len(costs) :]),
        share=share,
        wanted=share - asked * factor + asked,
        factor=factor**-0.5,
    )


def finding_faults(
    schema: Schema, budget: Budget, findings: Sequence[Finding], earlier: Sequence[str], n_rows: int | None
) -> tuple[str, ...]:
    """What is wrong with the searches that a certificate states for this schema; none where it is what a release does.

    Every domain that was found has its search here, or was found by an `earlier` release, and no other has one; each
    was found by the tables that its bounds take, at the scale and the threshold that the budget gives to it. Searches
    of Sklar 0.2 do not state their bounds and cannot be checked: a fault.
    """
    found = [attribute.name for attribute in schema.attributes if attribute.domain == "found"]
    searched = list(dict.fromkeys(finding.attribute for finding in findings))
    if sorted([*searched, *earlier]) != sorted(found):
        odd = sorted({*found} ^ {*searched, *earlier}) or sorted(searched)
        return (f"the domain of '{odd[0]}' is found with no search stated, or searched for and not found",)
    if any([name for name in found if name in own] != [*own] for own in (searched, earlier)):
        return ("searches are stated in another order than the schema's",)
    if not findings:
        return ()
    if budget.mechanism != "gaussian":
        return (f"a search takes Gaussian noise, not '{budget.mechanism}'",)
    for finding in findings:
        attribute = schema.attribute(finding.attribute)
        numbers = not attribute.categorical
        if numbers != (finding.threshold is None) or not 1 <= finding.tables <= (_MOST_TABLES if numbers else 1):
            return (f"the domain of '{attribute.name}' cannot take {finding.tables} tables as stated",)
        low, high = finding.bounds or (-math.inf, math.inf)
        if finding.bounds and not (numbers and low <= attribute.edges[0] and attribute.edges[-1] <= high):
            return (f"the domain of '{attribute.name}' was searched for between other bounds than it lies in",)
        if finding.bounds is None and numbers:
            # As in files of Sklar 0.2: any number of tables could be stated for them.
            return (
                f"the search for the domain of '{finding.attribute}' does not state its bounds, and cannot be checked",
            )
    planned = replan_search(schema, budget, findings, n_rows).findings
    if len(planned) != len(findings):
        return (f"searches of {len(planned)} kinds are planned, and {len(findings)} are stated",)
    return tuple(
        f"the search for the domain of '{stated.attribute}' is not the one that this budget plans"
        for stated, wanted in zip(findings, planned, strict=True)
        if not _alike(stated, wanted, budget.rows)
    )


def replan_search(schema: Schema, budget: Budget, findings: Sequence[Finding], n_rows: int | None) -> Search:
    """The plan that a release by this budget had for these findings, by the schema that it found."""
    asked = {finding.attribute: asked_of(finding, schema.attribute(finding.attribute)) for finding in findings}
    return _planned(list(asked.values()), budget, n_rows)


def _alike(stated: Finding, planned: Finding, rows: int) -> bool:
    """Whether two plans are one, but for the last digits, which may differ between machines."""
    same = (stated.attribute, stated.of, stated.tables) == (planned.attribute, planned.of, planned.tables)
    close = same and math.isclose(stated.scale, planned.scale, rel_tol=1e-6)
    if stated.threshold is None or planned.threshold is None:
        return close and stated.threshold == planned.threshold and stated.lost_delta == 0
    near = abs(stated.threshold - planned.threshold) <= 1
    lost = chance_of_one(stated.scale, stated.threshold, rows)
    return close and near and math.isclose(stated.lost_delta, lost, rel_tol=1e-9)


def _at_scale(finding: Finding, scale: float, chance: float, rows: int) -> Finding:
    if finding.threshold is None:
        return replace(finding, scale=scale)
    threshold = least_threshold(scale, chance, rows)
    return replace(finding, scale=scale, threshold=threshold, lost_delta=chance_of_one(scale, threshold, rows))


def asked_of(finding: Finding, attribute: Attribute) -> Attribute:
    """The private domain that a finding looked for, from the attribute that it found."""
    if finding.bounds is None:
        return attribute
    return replace(attribute, edges=finding.bounds, domain="private", at_most=finding.at_most)


def fits(finding: Finding, schema: Schema, tables: Sequence[NDArray[np.int64]]) -> bool:
    """Whether the tables of a number's answer have the cells that its bounds and the tables before them imply."""
    if finding.attribute not in schema.names or finding.bounds is None or len(tables) != finding.tables:
        return False
    ladder = ladder_of(asked_of(finding, schema.attribute(finding.attribute)))
    if finding.of == "rounding":
        return [table.size for table in tables] == [ladder.rounding_size]
    if ladder.tables != len(tables):
        return False
    return all(
        table.size == next_cells(ladder, tables[:number], finding.scale)[-1].size - 1
        for number, table in enumerate(tables)
    )
