"""Which tables of linked people and events are measured, at which scale, and what that costs: frozen public values.

Every table is one to which a person gives at most one unit, however many events they have (`kernel.tokens`): its noise
does not grow with the number of events. A person stands in one cell of a table of people. In a table with events, each
of a person's k events weighs 1/k; in one of two events, each pair of them 2/(k (k - 1)). The one-way tables of events
come in two halves, w and 1 - w of every person with w = min(k, 12)/12: their sum says what people's events are, their
first half, where k is at most 12, what events are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import installed_versions
from sklar.budget.receipt import Receipt
from sklar.errors import BudgetError, ModelError
from sklar.kernel.queries import Block, Shares
from sklar.kernel.theorems import MAX_SCALE, NOTHING, Budget, Composition, Mechanism, Neighbors, Spend
from sklar.public.events import Linked

TableKind = Literal[
    "people",
    "person",
    "number",
    "person-person",
    "number-person",
    "person-event",
    "event-event",
    "number-event",
    "event",
    "two-events",
]

# Of the cost of all tables. What a kind has no table for goes to the others.
SHARES: Mapping[TableKind, float] = {
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
WORDS: Mapping[TableKind, str] = {
    "people": "number of people",
    "person": "one-way tables of people",
    "number": "number of events of a person",
    "person-person": "two-way tables of people",
    "number-person": "number of events by an attribute of people",
    "person-event": "tables of an attribute of people and one of events",
    "event-event": "two-way tables of events",
    "number-event": "number of events by an attribute of events",
    "event": "one-way tables of events",
    "two-events": "one attribute in two events of a person",
}
WITH_EVENTS = ("person-event", "event-event", "number-event", "event", "two-events")
# From this number of events on, the one-way tables of events count a person whole in their first half.
FULL_WEIGHT = 12
# So many tokens make what largest remainders round away invisible: a thousandth of a person.
_TOKENS = 1_024
# As in plan: larger tables need less noise per cell.
_CELLS_POWER = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedTable:
    """One table: its kind, and the attributes (numbers in their schemas) that it is about, with its shape."""

    kind: TableKind
    first: int = 0
    second: int = 0
    shape: tuple[int, ...] = (1,)

    @property
    def cells(self) -> int:
        """How many cells it has. Two events have no order: a triangle of cells."""
        if self.kind == "two-events":
            return self.shape[0] * (self.shape[0] + 1) // 2
        return math.prod(self.shape)


def linked_tables(linked: Linked, *, total: bool) -> tuple[LinkedTable, ...]:
    """All tables of two linked schemas, kind after kind; with the number of people where it is not public."""
    person, event = linked.people.sizes.tolist(), linked.events.sizes.tolist()
    bins = len(linked.bins) - 1
    made: list[LinkedTable] = [LinkedTable(kind="people")] if total else []
    made += [LinkedTable(kind="person", first=i, shape=(size,)) for i, size in enumerate(person)]
    made.append(LinkedTable(kind="number", shape=(linked.at_most + 1,)))
    made += _pairs("person-person", person)
    made += [LinkedTable(kind="number-person", first=i, shape=(bins, size)) for i, size in enumerate(person)]
    made += [
        LinkedTable(kind="person-event", first=i, second=j, shape=(height, width))
        for i, height in enumerate(person)
        for j, width in enumerate(event)
    ]
    made += _pairs("event-event", event)
    # People without events have no part in what their events are.
    made += [LinkedTable(kind="number-event", first=j, shape=(bins - 1, size)) for j, size in enumerate(event)]
    made += [LinkedTable(kind="event", first=j, shape=(2, size)) for j, size in enumerate(event)]
    if linked.at_most > 1:
        made += [LinkedTable(kind="two-events", first=j, shape=(size,)) for j, size in enumerate(event)]
    return tuple(made)


def _pairs(kind: TableKind, sizes: Sequence[int]) -> list[LinkedTable]:
    return [
        LinkedTable(kind=kind, first=i, second=j, shape=(sizes[i], sizes[j]))
        for i in range(len(sizes))
        for j in range(i + 1, len(sizes))
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkedPlan:
    """All tables of linked people and events with the scales of their noise, in people; shape (tables,).

    A person deals `tokens` tokens to a table with events, and one to any other.
    """

    tables: tuple[LinkedTable, ...]
    scales: NDArray[np.float64]
    tokens: int

    def __post_init__(self) -> None:
        self.scales.setflags(write=False)

    @property
    def parts(self) -> tuple[tuple[Shares, NDArray[np.float64]], ...]:
        """Queries, one for each kind, with the scales of their noise in tokens."""
        found = []
        for kind in dict.fromkeys(table.kind for table in self.tables):
            own = [at for at, table in enumerate(self.tables) if table.kind == kind]
            lengths = np.array([self.tables[at].cells for at in own])
            query = Shares(what=kind, lengths=lengths, each=self.tokens if kind in WITH_EVENTS else 1)
            found.append((query, self.scales[own] * query.each))
        return tuple(found)

    def each(self, table: LinkedTable) -> int:
        """How many tokens a person deals to this table at most."""
        return self.tokens if table.kind in WITH_EVENTS else 1

    def spend(self, budget: Budget) -> Spend:
        """What the measurement costs."""
        return sum((query.bound(scales, budget) for query, scales in self.parts), NOTHING)


def plan_linked(linked: Linked, budget: Budget) -> LinkedPlan:
    """All tables, at scales that spend the whole budget; from public facts alone."""
    if budget.mechanism != "gaussian":
        raise BudgetError(
            f"linked tables take gaussian noise, got mechanism '{budget.mechanism}': a person moves many cells by a "
            "little each. Leave the mechanism out."
        )
    tables = linked_tables(linked, total=budget.neighbors == "add-remove")
    weights = np.array([table.cells**_CELLS_POWER for table in tables])
    kinds = np.array([table.kind for table in tables])
    costs = np.empty(len(tables))
    for kind in sorted(set(kinds.tolist())):
        of_kind = kinds == kind
        costs[of_kind] = SHARES[kind] * weights[of_kind] / weights[of_kind].sum()
    scales = budget.scales(costs**-0.5)
    tokens = _TOKENS
    while tokens > 1 and float(scales.max()) * tokens > MAX_SCALE:
        tokens //= 2
    return LinkedPlan(tables=tables, scales=scales, tokens=tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedMeasurement:
    """Tables of one kind that were measured at one scale, in people; sensitivities are in people, too."""

    kind: TableKind
    tables: int
    scale: float
    sensitivity_l1: float
    sensitivity_l2: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedCertificate:
    """What may be spent on any one person with all their events: enough for a stranger to recompute the claim.

    `public_people` is the number of people where neighbors share it. `tokens` is how many parts a person's unit is cut
    into in tables with events. `receipt` is that of the charge, where a ledger was charged. `read_from_rows` names
    attributes whose domain was read from the rows: the promise does not cover what those domains tell.
    """

    neighbors: Neighbors
    mechanism: Mechanism
    composition: Composition
    epsilon: float
    delta: float
    public_people: int | None
    schema_sha256: str
    tokens: int
    measurements: tuple[LinkedMeasurement, ...]
    unit: Literal["person"] = "person"
    versions: Mapping[str, str] = field(default_factory=dict)
    receipt: Receipt | None = None
    read_from_rows: tuple[str, ...] = ()

    @property
    def budget(self) -> Budget:
        """The budget that was fixed before anything was measured."""
        return Budget(
            epsilon=self.epsilon,
            delta=self.delta,
            neighbors=self.neighbors,
            mechanism=self.mechanism,
            composition=self.composition,
            rows_per_person=1,
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> LinkedCertificate:
        """From JSON."""
        try:
            parts = {
                "measurements": tuple(LinkedMeasurement(**entry) for entry in document["measurements"]),
                "receipt": Receipt.of(document["receipt"]),
                "read_from_rows": tuple(document["read_from_rows"]),
            }
            return cls(**{**document, **parts})
        except (TypeError, KeyError) as error:
            raise ModelError(f"the privacy certificate is not readable ({error}). Get an intact copy.") from None


def certify_linked(
    linked: Linked, budget: Budget, plan: LinkedPlan, public_people: int | None, receipt: Receipt | None
) -> LinkedCertificate:
    """The certificate of measuring this plan under this budget."""
    spent = budget.spent(plan.spend(budget))
    if spent > budget.epsilon:
        raise BudgetError(
            f"these tables cost epsilon={spent:.6g}, above the budget of {budget.epsilon:.6g}. Plan anew."
        )
    return LinkedCertificate(
        neighbors=budget.neighbors,
        mechanism=budget.mechanism,
        composition=budget.composition,
        epsilon=budget.epsilon,
        delta=budget.delta,
        public_people=public_people,
        schema_sha256=linked.digest,
        tokens=plan.tokens,
        measurements=linked_measurements(plan, budget.shifts),
        versions=installed_versions(),
        receipt=receipt,
        read_from_rows=linked.read_from_rows,
    )


def linked_measurements(plan: LinkedPlan, shifts: int) -> tuple[LinkedMeasurement, ...]:
    """What a plan measures, kind by kind and scale by scale."""
    kinds = np.array([table.kind for table in plan.tables])
    return tuple(
        LinkedMeasurement(
            kind=kind,
            tables=int(tables),
            scale=float(scale),
            sensitivity_l1=float(shifts),
            sensitivity_l2=math.sqrt(shifts),
        )
        for kind in dict.fromkeys(kinds.tolist())
        for scale, tables in zip(*np.unique(plan.scales[kinds == kind], return_counts=True), strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkedMeasured:
    """Everything that was measured of linked tables, with its certificate: public. A block for every kind of table."""

    linked: Linked
    plan: LinkedPlan
    blocks: tuple[Block, ...]
    certificate: LinkedCertificate

    @property
    def counts(self) -> tuple[NDArray[np.int64], ...]:
        """The noisy tables in the order of the plan, flat, in tokens."""
        return tuple(table for block in self.blocks for table in block.by_scale())

    @property
    def n_people(self) -> int:
        """How many people there are: public, or by the noisy tables in which everybody stands in one cell."""
        if self.certificate.public_people is not None:
            return self.certificate.public_people
        each = [
            (int(counts.sum()), scale**2 * table.cells)
            for table, counts, scale in zip(self.plan.tables, self.counts, self.plan.scales.tolist(), strict=True)
            if table.kind in ("people", "number")
        ]
        totals, variances = np.array(each, dtype=np.float64).T
        return max(round(float(np.sum(totals / variances) / np.sum(1 / variances))), 1)
