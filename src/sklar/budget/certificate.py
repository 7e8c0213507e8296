"""What was spent, on what, against whom: the certificate of a release, and everything that it measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import ROUND_CEILING, Context, Decimal
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np

from sklar.budget.receipt import Receipt
from sklar.budget.search import Answer, Finding, read_finding, search_spend
from sklar.errors import BudgetError, ModelError
from sklar.kernel.parities import parity_spend
from sklar.kernel.tables import NoisyTables, Plan
from sklar.kernel.theorems import Budget, Composition, Mechanism, Neighbors, Spend, sensitivity
from sklar.kernel.triples import NoisyScores, NoisyTriples
from sklar.machine.notebook import Tabular, html_card
from sklar.public.person import Count, Person
from sklar.public.schema import Schema

# In place of an order: scores, one number for every three-way table.
SCORES = 4
_ORDERS = {
    0: "number of rows",
    1: "one-way tables",
    2: "two-way tables",
    3: "three-way tables over coarse levels",
    SCORES: "scores of three-way tables",
}
_PARITIES = {0: "number of rows", 1: "counts of ones", 2: "parities of pairs", 3: "parities of triples"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Tables of one order that were measured at one scale in one stage.

    The sensitivities are one table's. Parities of bits stand in place of tables where `parity` says so: single counts,
    which do not all move at once (`kernel.parities`). Scores have the order `SCORES`: single numbers, whose scale and
    sensitivity are in units in which a table's are as large (`kernel.count.score_plainly`).
    """

    stage: int
    order: int
    tables: int
    scale: float
    sensitivity_l1: float
    sensitivity_l2: float
    parity: bool = False

    @property
    def what(self) -> str:
        """In words."""
        return (_PARITIES if self.parity else _ORDERS)[self.order]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Certificate(Tabular):
    """What may be spent, on what, against whom: enough for a stranger to recompute the claim.

    `epsilon` and `delta` are the budget's, which was fixed before anything was measured: what the tables cost together
    is no more. (What they happened to cost is less by a little, depends on noisy tables, and is claimed nowhere.)
    `domains` says how this release found domains that were not public. `earlier` names attributes whose domain an
    earlier release had found: its cost is that release's, and not in this epsilon.

    `claimed_by` names who measured the tables where Sklar did not: then all of it is what the caller says, and nothing
    was checked. `rounded` says that such tables held values that are not whole. `receipt` is that of the charge, where
    a ledger was charged. `read_from_rows` names the attributes whose domain the custodian read from the rows: the
    promise does not cover what those domains tell. All others are public knowledge, or were found (`domains`).

    `count` is None where a row is a person. Else neighbors differ in all rows of one person: "people" counts one row of
    each, "rows" at most `rows_per_person` of each. `public_rows` is the number of rows that were counted, where
    neighbors share it: that of all rows, or that of people.
    """

    neighbors: Neighbors
    mechanism: Mechanism
    composition: Composition
    epsilon: float
    delta: float
    public_rows: int | None
    schema_sha256: str
    measurements: tuple[Measurement, ...]
    domains: tuple[Finding, ...] = ()
    earlier: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    claimed_by: str | None = None
    rounded: bool = False
    receipt: Receipt | None = None
    read_from_rows: tuple[str, ...] = ()
    count: Count | None = None
    rows_per_person: int | None = None

    def __repr__(self) -> str:
        stages = max((each.stage for each in self.measurements), default=0)
        counted: dict[str, int] = {}
        for each in self.measurements:
            counted[each.what] = counted.get(each.what, 0) + each.tables
        tables = ", ".join(f"{number:,} {what}" for what, number in counted.items())
        return (
            f"Certificate(epsilon={rounded_up(self.epsilon, 4)}, delta={rounded_up(self.delta, 3)}, {self.neighbors}, "
            f"{self.mechanism}: {tables} in {stages} stages)"
        )

    def _repr_html_(self) -> str:
        facts = {
            "epsilon": rounded_up(self.epsilon, 4),
            "delta": rounded_up(self.delta, 3),
            "protects": f"any one {self.unit} ({self.neighbors} neighbors)",
            "noise": f"{self.mechanism}, {self.composition} composition",
            "rows": "not public" if self.public_rows is None else f"{self.public_rows:,} (public)",
        }
        if self.claimed_by is not None:
            facts["claimed by"] = f"{self.claimed_by}; not checked"
        if self.read_from_rows:
            facts["read from the rows"] = ", ".join(self.read_from_rows)
        return html_card("Privacy certificate", facts, self.to_columns())

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """What was measured: one line for every stage, kind of table and noise scale."""
        return {
            "stage": [each.stage for each in self.measurements],
            "what": [each.what for each in self.measurements],
            "tables": [each.tables for each in self.measurements],
            "scale": [each.scale for each in self.measurements],
        }

    @property
    def unit(self) -> str:
        """Whom the promise is about, in words."""
        return "row" if self.count is None else "person, with all their rows"

    @property
    def counted(self) -> str:
        """What counts are of, in words."""
        if self.count == "people":
            return "people, one row of each"
        return "rows" if self.count is None else f"rows, at most {self.rows:,} of each person"

    @property
    def rows(self) -> int:
        """The most rows of one person that were counted."""
        return 1 if self.rows_per_person is None else self.rows_per_person

    @property
    def budget(self) -> Budget:
        """The budget that was fixed before anything was measured."""
        return Budget(
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            neighbors=self.neighbors,
            mechanism=self.mechanism,
            composition=self.composition,
            rows_per_person=self.rows_per_person,
        )

    @property
    def search_share(self) -> float:
        """The part of the cost, of the sum of 1 / scale^2, that the search for domains took."""
        search = math.fsum(each.tables * each.scale**-2.0 for each in self.domains)
        rest = self.spend
        tables = math.fsum(rest.tables * rest.scales**-2.0)
        return search / (search + tables) if search else 0.0

    @property
    def spend(self) -> Spend:
        """What the measurements cost, without the search for domains."""
        tables = [each for each in self.measurements if not each.parity]
        spend = Spend.of([each.scale for each in tables], [each.tables for each in tables])
        for stage in sorted({each.stage for each in self.measurements if each.parity}):
            orders = [each for each in self.measurements if each.parity and each.stage == stage]
            scales = np.array([each.scale for each in orders])
            spend = spend + parity_spend(orders[0].tables, scales, self.neighbors)
        return spend

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Certificate:
        """From JSON."""
        try:
            measurements = tuple(Measurement(**entry) for entry in document["measurements"])
            domains = tuple(read_finding(entry) for entry in document["domains"])
            parts = {
                "measurements": measurements,
                "domains": domains,
                "earlier": tuple(document["earlier"]),
                "receipt": Receipt.of(document.get("receipt")),
                "read_from_rows": tuple(document.get("read_from_rows", ())),
            }
            return cls(**{**document, **parts})
        except (TypeError, KeyError) as error:
            raise ModelError(f"the privacy certificate is not readable ({error}). Get an intact copy.") from None


def certify(
    schema: Schema,
    budget: Budget,
    plans: Sequence[Plan],
    public_rows: int | None,
    findings: Sequence[Finding] = (),
    triples: NoisyTriples | None = None,
    scores: NoisyScores | None = None,
) -> Certificate:
    """The certificate of finding domains, then measuring these plans, one stage after the other, under this budget.

    Three-way tables and scores of them, where there are any, are the last stage.
    """
    third = sum((own.spend for own in (triples, scores) if own is not None), Spend.of([]))
    spent = budget.spent(sum((plan.spend for plan in plans), search_spend(findings) + third))
    if spent > budget.epsilon:
        raise BudgetError(
            f"these tables cost epsilon={spent:.6g}, above the budget of {budget.epsilon:.6g}. Plan for less."
        )
    own = {finding.attribute for finding in findings}
    return Certificate(
        neighbors=budget.neighbors,
        mechanism=budget.mechanism,
        composition=budget.composition,
        epsilon=budget.epsilon,
        delta=budget.delta,
        public_rows=public_rows,
        schema_sha256=schema.digest,
        measurements=measurements(plans, sensitivity(budget.neighbors, budget.rows), triples, scores),
        domains=tuple(findings),
        earlier=tuple(each.name for each in schema.attributes if each.domain == "found" and each.name not in own),
        versions=installed_versions(),
        read_from_rows=(schema.whole or schema).read_from_rows,
        **unit_of(schema.person),
    )


def unit_of(person: Person | None) -> dict[str, Any]:
    """What a certificate says of the unit that a schema names."""
    return {} if person is None else {"count": person.count, "rows_per_person": person.rows_per_person}


def measurements(
    plans: Sequence[Plan],
    moved: tuple[float, float],
    triples: NoisyTriples | None = None,
    scores: NoisyScores | None = None,
) -> tuple[Measurement, ...]:
    """What these plans measure, one stage after the other. One person moves a table by `moved`, in L1 and in L2.

    Three-way tables and their scores come after all plans, as a stage of their own.
    """
    groups = [
        (stage, order, scales, plan.parities is not None and order > 0)
        for stage, plan in enumerate(plans, start=1)
        for order, scales in enumerate(
            ([] if plan.total is None else [plan.total], plan.one_way, plan.pairs, plan.trios)
        )
    ]
    if triples is not None:
        groups.append((len(plans) + 1, 3, triples.scales, False))
    if scores is not None:
        groups.append((len(plans) + 1, SCORES, np.full(scores.scores.size, scores.scale), False))
    # A parity is one count, which moves by as many rows as a person has.
    alone = moved[1] if moved[1] == moved[0] else moved[0] / 2
    return tuple(
        Measurement(
            stage=stage,
            order=order,
            tables=int(tables),
            scale=float(scale),
            # A score is one number: it moves as far in L1 as in L2.
            sensitivity_l1=alone if parity else moved[order == SCORES],
            sensitivity_l2=alone if parity else moved[1],
            parity=parity,
        )
        for stage, order, scales, parity in groups
        for scale, tables in zip(*np.unique(np.asarray(scales), return_counts=True), strict=True)
    )


def rounded_up(value: float, digits: int) -> str:
    """A number that is stated as an upper bound, in so many significant digits: rounded up, never to the nearest.

    >>> rounded_up(1.0, 4), rounded_up(0.10001, 4), rounded_up(2.0**-30, 3)
    ('1', '0.1001', '9.32e-10')
    """
    # The digits that Python prints, not the binary fraction behind them: 0.1 is stated as 0.1.
    exact = Decimal(repr(float(value)))
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(exact)):.{digits}g}"


@cache
def installed_versions() -> dict[str, str]:
    """The versions of Sklar and of what its numbers depend on."""
    return {name: version(name) for name in ("sklar", "numpy", "numba", "cryptography", "polars")}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Measured:
    """Everything that was measured of one table, stage after stage, with its certificate: public.

    `schema` is the measured part of the release's schema, without the attributes that others determine. `answers` are
    the noisy answers of the search for private domains, in the order of the certificate's `domains`; empty where they
    were not kept. `triples` are chosen three-way tables over coarse levels, where any were measured, and `scores` what
    they were chosen by beside the first stage's tables.
    """

    schema: Schema
    stages: tuple[NoisyTables, ...]
    certificate: Certificate
    answers: tuple[Answer, ...] = ()
    triples: NoisyTriples | None = None
    scores: NoisyScores | None = None

    def __repr__(self) -> str:
        return f"Measured({self.schema!r}, {len(self.stages)} stages, {self.certificate!r})"

    @property
    def n_rows(self) -> int | None:
        """The public number of rows; None where neighbors do not share it."""
        return self.stages[0].n_rows
