"""Which tables of linked people and events are measured, at which scale, and what that costs: frozen public values.

Every table is one to which a person gives at most one unit, however many events they have (`kernel.queries.Shares`):
its noise does not grow with the number of events. A person stands in one cell of a table of people. In a table with
events, each of a person's k events weighs 1/k; in one of two events, each pair of them 2/(k (k - 1)). The one-way
tables of events come in two halves, w and 1 - w of every person with w = min(k, 12)/12: their sum says what people's
events are, their first half, where k is at most 12, what events are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import Certificate, installed_versions, measurements
from sklar.budget.plan import CELLS_POWER, Plan
from sklar.budget.receipt import Receipt
from sklar.errors import BudgetError
from sklar.kernel.queries import Block, Shares
from sklar.kernel.theorems import MAX_SCALE, NOTHING, Budget, drawable, smallest
from sklar.public.events import Linked

# Of the cost of all tables, by their kind. What a kind has no table for goes to the others.
KINDS: Mapping[str, float] = {
    "people": 0.01,
    "person": 0.04,
    "number": 0.01,
    "person-person": 0.16,
    "number-person": 0.05,
    "person-event": 0.29,
    "event-event": 0.24,
    "number-event": 0.05,
    "event": 0.09,
    "two-events": 0.08,
}
# Kinds in which everybody stands in one cell of every table.
_TOTALS = ("people", "number")
WITH_EVENTS = ("person-event", "event-event", "number-event", "event", "two-events")
# From this number of events on, the one-way tables of events count a person whole in their first half.
FULL_WEIGHT = 12
# So many tokens make what largest remainders round away invisible: a thousandth of a person.
_TOKENS = 1_024


@dataclass(frozen=True, slots=True)
class LinkedTable:
    """One table: its kind, its shape, and the attributes (numbers in their schemas) that it is about."""

    kind: str
    shape: tuple[int, ...]
    first: int = 0
    second: int = 0

    @property
    def cells(self) -> int:
        """How many cells it has. Two events have no order: a triangle of cells."""
        if self.kind == "two-events":
            return self.shape[0] * (self.shape[0] + 1) // 2
        return math.prod(self.shape)


def linked_tables(linked: Linked) -> dict[str, list[LinkedTable]]:
    """All tables of two linked schemas by kind; kinds without tables are left out."""
    person, event = list(enumerate(linked.people.sizes.tolist())), list(enumerate(linked.events.sizes.tolist()))
    bins, twice = len(linked.bins) - 1, event if linked.at_most > 1 else []
    # People without events have no part in what their events are.
    shapes: dict[str, list[tuple[tuple[int, ...], int, int]]] = {
        "people": [((1,), 0, 0)],
        "person": [((size,), i, 0) for i, size in person],
        "number": [((linked.at_most + 1,), 0, 0)],
        "person-person": [((height, width), i, j) for (i, height), (j, width) in combinations(person, 2)],
        "number-person": [((bins, size), i, 0) for i, size in person],
        "person-event": [((height, width), i, j) for (i, height), (j, width) in product(person, event)],
        "event-event": [((height, width), i, j) for (i, height), (j, width) in combinations(event, 2)],
        "number-event": [((bins - 1, size), j, 0) for j, size in event],
        "event": [((2, size), j, 0) for j, size in event],
        "two-events": [((size,), j, 0) for j, size in twice],
    }
    return {kind: [LinkedTable(kind, *each) for each in tables] for kind, tables in shapes.items() if tables}


def linked_queries(linked: Linked, tokens: int, *, total: bool) -> list[Shares]:
    """One query for every kind of table, with the number of people where it is not public.

    A person deals `tokens` tokens to a table with events, and one to any other.
    """
    return [
        Shares(
            what=kind, lengths=np.array([table.cells for table in tables]), each=tokens if kind in WITH_EVENTS else 1
        )
        for kind, tables in linked_tables(linked).items()
        if total or kind != "people"
    ]


def plan_linked(linked: Linked, budget: Budget) -> Plan:
    """All tables, at scales that spend the whole budget; from public facts alone."""
    if budget.mechanism != "gaussian":
        raise BudgetError(
            f"linked tables take gaussian noise, got mechanism '{budget.mechanism}': a person moves many cells by a "
            "little each. Leave the mechanism out."
        )

    def queries(tokens: int) -> list[Shares]:
        return linked_queries(linked, tokens, total=budget.neighbors == "add-remove")

    weights = [(KINDS[query.what], query.sizes**CELLS_POWER) for query in queries(1)]
    # In people. Tokens are finer, and their noise costs a little less.
    scales = budget.scales(np.concatenate([share * each / each.sum() for share, each in weights]) ** -0.5)
    tokens = _TOKENS
    while tokens > 1 and float(scales.max()) * tokens > MAX_SCALE:
        tokens //= 2
    own = np.split(scales, np.cumsum([each.size for _, each in weights])[:-1])
    parts = [(query, part * query.each) for query, part in zip(queries(tokens), own, strict=True)]
    spend = sum((query.bound(part, budget) for query, part in parts), NOTHING)
    factor = smallest(lambda each: budget.spent(spend * each) <= budget.epsilon, start=1.0)
    return Plan(parts=tuple((query, drawable(part * factor)) for query, part in parts))


def certify_linked(
    linked: Linked, budget: Budget, blocks: Sequence[Block], public_people: int | None, receipt: Receipt | None
) -> Certificate:
    """The certificate of measuring these blocks under this budget, of any one person with all their events."""
    return Certificate(
        neighbors=budget.neighbors,
        mechanism=budget.mechanism,
        composition=budget.composition,
        epsilon=budget.epsilon,
        delta=budget.delta,
        public_rows=public_people,
        schema_sha256=linked.digest,
        measurements=measurements(blocks, budget),
        versions=installed_versions(),
        receipt=receipt,
        read_from_rows=linked.read_from_rows,
        count="people",
        rows_per_person=1,
        tokens=max(block.query.each for block in blocks if isinstance(block.query, Shares)),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkedMeasured:
    """Everything that was measured of linked tables, with its certificate: public. A block for every kind of table."""

    linked: Linked
    blocks: tuple[Block, ...]
    certificate: Certificate

    @property
    def tables(self) -> list[tuple[LinkedTable, NDArray[np.float64], float]]:
        """Every table with its noisy cells, flat, and the scale of their noise: both in people."""
        known = linked_tables(self.linked)
        return [
            (table, values / block.query.each, float(scale / block.query.each))
            for block in self.blocks
            if isinstance(block.query, Shares)
            for table, values, scale in zip(known[block.query.what], block.by_scale(), block.scales, strict=True)
        ]

    @property
    def n_people(self) -> int:
        """How many people there are: public, or by the noisy tables in which everybody stands in one cell."""
        if self.certificate.public_rows is not None:
            return self.certificate.public_rows
        each = [(cells.sum(), scale**2 * cells.size) for table, cells, scale in self.tables if table.kind in _TOTALS]
        totals, variances = np.array(each, dtype=np.float64).T
        return max(round(float(np.sum(totals / variances) / np.sum(1 / variances))), 1)
