"""What was spent, on what, against whom: the certificate of a release, and everything that it measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from decimal import ROUND_CEILING, Context, Decimal
from functools import cache
from typing import Any, Literal, get_args

import numpy as np

from sklar.budget.plan import INSIDE, said_of
from sklar.budget.receipt import Receipt
from sklar.budget.search import Finding, search_spend
from sklar.errors import ModelError
from sklar.kernel.queries import Block, Distances, Parities, Shares, Tables
from sklar.kernel.theorems import Budget, Composition, Mechanism, Neighbors, Spend
from sklar.machine.notebook import Tabular, html_card
from sklar.machine.wording import said
from sklar.public.schema import Schema
from sklar.public.settings import Count, Person
from sklar.public.tree import Known, Tree

# Added to the order of the tables that scores are about, one number for each.
SCORES = 10
_WAYS = ("one-way", "two-way", "three-way", "four-way")
_COUNTED = {"people": "people, one row of each", "everyone": "people"}
_PARITIES = ("counts of ones", "parities of pairs", "parities of triples")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Tables of one order that were measured at one scale in one stage.

    The sensitivities are one table's. Parities of bits stand in place of tables where `parity` says so, and scores have
    `SCORES` added to their order: single numbers, in parts of a row (`queries`). One person makes `moves` moves in all
    of them together, over separate cells, each of L1 norm at most `reach`.

    Scale and sensitivities are in rows or people. Where these have tokens, `reach` is in tokens, and so is the noise
    that was drawn. `kind` names tables that are not of attributes: first moments inside bins, or sides of linked tables
    (`plan.SIDES`), with the name of the table that they are of before it.
    """

    stage: int
    order: int
    tables: int
    scale: float
    sensitivity_l1: float
    sensitivity_l2: float
    parity: bool = False
    moves: float = 0.0
    reach: float = 1.0
    kind: str = ""

    @property
    def what(self) -> str:
        """In words."""
        if self.kind == INSIDE:
            return "tables of where numbers lie inside bins"
        if self.kind:
            return said_of(self.kind)
        if not self.order:
            return "number of rows"
        if self.parity:
            return _PARITIES[self.order - 1]
        tables = f"{_WAYS[self.order % SCORES - 1]} tables"
        return f"scores of {tables}" if self.order > SCORES else tables + " over coarse levels" * (self.order > 2)

    @property
    def unit(self) -> str:
        """Of what its scale is, in words."""
        if self.kind:
            return "rows" if self.kind == INSIDE else "people"
        return "a score" if self.order > SCORES else "a count"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Certificate(Tabular):
    """What may be spent, on what, against whom: enough for a stranger to recompute the claim.

    `epsilon` and `delta` are the budget's, which was fixed before anything was measured: what the tables cost together
    is no more. (What they happened to cost is less by a little, depends on noisy tables, and is claimed nowhere.)
    `domains` says how this release found domains that were not public. `earlier` names attributes whose domain an
    earlier release had found and paid for. `read_from_rows` names those whose domain the custodian read from the rows:
    the promise does not cover what those domains tell, nor what the entries of `unread` attributes state, which a draft
    of the rows proposed and nobody read.

    `receipt` is that of the charge, where a ledger was charged.

    `count` is None where a row is a person. Else neighbors differ in all rows of one person: "people" counts one row of
    each, "rows" at most `rows_per_person` of each. `public_rows` is the number of rows that were counted, where
    neighbors share it: that of all rows, or that of people. `tokens` is how many parts a person's unit is cut into
    where people are protected with all their rows in several tables; else None.
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
    receipt: Receipt | None = None
    read_from_rows: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    count: Count | Literal["everyone"] | None = None
    rows_per_person: int | None = None
    tokens: int | None = None

    def __repr__(self) -> str:
        stages = max((each.stage for each in self.measurements), default=0)
        numbers: Counter[str] = Counter()
        for each in self.measurements:
            numbers[each.what] += each.tables
        tables = ", ".join(f"{number:,} {what}" for what, number in numbers.items())
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
        if self.read_from_rows:
            facts["read from the rows"] = ", ".join(self.read_from_rows)
        if self.unread:
            facts["accepted unread"] = ", ".join(self.unread)
        return html_card("Privacy certificate", facts, self.to_columns())

    @property
    def not_covered(self) -> str:
        """What the promise does not cover of a schema that nobody read, in words; empty where somebody read it."""
        columns = f"{len(self.unread):,} column{'s' if len(self.unread) > 1 else ''}"
        return said("budget.unread", columns=columns) if self.unread else ""

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """What was measured: one line for every stage, kind of table and noise scale."""
        names = ("stage", "what", "tables", "scale")
        return {name: [getattr(each, name) for each in self.measurements] for name in names}

    @property
    def unit(self) -> str:
        """Whom the promise is about, in words."""
        if self.tokens is not None:
            return "person, with all their rows in all tables"
        return "row" if self.count is None else "person, with all their rows"

    @property
    def counted(self) -> str:
        """What counts are of, in words."""
        if self.count == "rows":
            return f"rows, at most {self.rows_per_person:,} of each person"
        return "rows" if self.count is None else _COUNTED[self.count]

    @property
    def by_chance(self) -> bool:
        """Whether rows of each person were chosen at random."""
        return self.count in get_args(Count)

    @property
    def rows(self) -> int:
        """The most rows of one person that were counted."""
        return self.budget.rows

    @property
    def budget(self) -> Budget:
        """The budget that was fixed before anything was measured."""
        return Budget(**{each.name: getattr(self, each.name) for each in fields(Budget)})

    @property
    def search_spend(self) -> Spend:
        """What the search for domains cost."""
        return search_spend(self.domains, self.budget)

    @property
    def search_share(self) -> float:
        """The part of the cost that the search for domains took."""
        search, rest = (self.budget.cost(spend).rho for spend in (self.search_spend, self.spend))
        return search / (search + rest) if self.domains else 0.0

    @property
    def spend(self) -> Spend:
        """What the measurements cost, without the search for domains."""
        return self.spend_of(*self.measurements)

    def spend_of(self, *measured: Measurement) -> Spend:
        """What these measurements cost. The noise of whole tokens is stated in people or rows."""
        tokens = [each.reach / self.rows if each.order < SCORES else 1.0 for each in measured]
        lines = [(each.scale * n, each.moves, each.reach) for each, n in zip(measured, tokens, strict=True)]
        return Spend.of(*np.array(lines).reshape(-1, 3).T)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: without rounds that are none."""
        domains = [{key: own for key, own in asdict(each).items() if key != "round" or own} for each in self.domains]
        return asdict(self) | {"domains": domains}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Certificate:
        """From JSON."""
        try:
            receipt, found = document.get("receipt"), document["domains"]
            bounds = (None if each.get("bounds") is None else tuple(each["bounds"]) for each in found)
            parts = {key: tuple(document[key]) for key in ("earlier", "read_from_rows", "unread")} | {
                "measurements": tuple(Measurement(**entry) for entry in document["measurements"]),
                "domains": tuple(Finding(**{**each, "bounds": own}) for each, own in zip(found, bounds, strict=True)),
                "receipt": None if receipt is None else Receipt(**receipt),
            }
            return cls(**{**document, **parts})
        except (TypeError, KeyError) as error:
            raise ModelError(f"the privacy certificate is not readable ({error}). Get an intact copy.") from None


def certify(
    of: Schema,
    budget: Budget,
    blocks: Sequence[Block],
    public_rows: int | None,
    findings: Sequence[Finding] = (),
    tree: Tree | None = None,
) -> Certificate:
    """The certificate of finding domains, then measuring these blocks; of linked tables `public_rows` counts people."""
    own = {finding.attribute for finding in findings}
    earlier = tuple(each.name for each in of.attributes if each.domain == "found" and each.name not in own)
    return Certificate(
        public_rows=public_rows,
        schema_sha256=of.digest if tree is None else tree.digest,
        measurements=measurements(blocks, budget),
        domains=tuple(findings),
        versions=installed_versions(),
        earlier=earlier,
        tokens=None if tree is None else tokens_of(blocks),
        **(asdict(budget) | vouched(of.whole or of) | unit_of(of.person)),
    )


def tokens_of(blocks: Sequence[Block]) -> int:
    """How many tokens are a person's unit in these blocks of linked tables."""
    return max(int(getattr(block.query, "each", 1)) for block in blocks)


def vouched(of: Schema) -> dict[str, Any]:
    """What a certificate says of entries that are not public knowledge."""
    return {"read_from_rows": of.read_from_rows, "unread": of.unread}


def unit_of(person: Person | None) -> dict[str, Any]:
    """What a certificate says of the unit that a schema names."""
    return {} if person is None else {"count": person.count, "rows_per_person": person.rows_per_person}


def is_of_schema(block: Block) -> bool:
    """Whether a block is about the schema's own attributes, and not of a search."""
    return not getattr(block.query, "about", "")


def stage_numbers(blocks: Sequence[Block]) -> list[int]:
    """The stage of every block, from 1; 0 for those of a search.

    A stage ends where a question is asked again, and before distances and chosen tables, which follow from answers.
    """
    kinds: set[tuple[str, str | int]] = set()
    numbers, stage = [], 1
    for block in blocks:
        query = block.query
        if not is_of_schema(block):
            numbers.append(0)
            continue
        later = isinstance(query, Distances) or (isinstance(query, Tables) and query.sets is not None)
        kind = ("later", 0) if later else (type(query).__name__, getattr(query, "order", getattr(query, "what", 0)))
        if (kind in kinds) != later:
            stage, kinds = stage + bool(kinds), set()
        kinds.add(kind)
        numbers.append(stage)
    return numbers


def measurements(blocks: Sequence[Block], budget: Budget) -> tuple[Measurement, ...]:
    """What these blocks measure under this budget, one line for every stage, order and scale; not those of a search."""
    lines: list[Measurement] = []
    of_table = float(budget.shifts * budget.rows), math.sqrt(budget.shifts) * budget.rows
    for block, stage in zip(blocks, stage_numbers(blocks), strict=True):
        query, scales = block.query, block.scales
        if not stage:
            continue
        groups: Iterable[tuple[int, Any, Any, Any]]
        if isinstance(query, Parities):
            groups = zip(range(1, query.orders + 1), query.sizes, scales, query.moves(scales), strict=True)
        elif isinstance(query, Distances):
            groups = [(SCORES + query.of.order, query.n_cells, scales[0], query.n_cells)]
        else:
            order = query.order if isinstance(query, Tables) else 0
            unique = zip(*np.unique(scales, return_counts=True), strict=True)
            groups = [(order, number, scale, budget.shifts * number) for scale, number in unique]
        reach = float(query.bound(scales, budget).reach[0])
        each, kind = getattr(query, "each", 1), query.what if isinstance(query, Shares) else ""
        l1, l2 = (reach, reach) if isinstance(query, Parities | Distances) else of_table
        own: dict[str, Any] = {"stage": stage, "reach": reach, "kind": kind, "parity": isinstance(query, Parities)}
        own |= {"sensitivity_l1": l1, "sensitivity_l2": l2}
        lines += [
            Measurement(order=order, tables=int(number), scale=float(scale) / each, moves=float(moves), **own)
            for order, number, scale, moves in groups
        ]
    return tuple(lines)


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
    # Reading a model needs none of them.
    from importlib.metadata import version

    return {name: version(name) for name in ("sklar", "numpy", "numba", "cryptography", "polars")}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Measured:
    """Everything that was measured of one table, with its certificate: public.

    `schema` is the measured part of the release's schema, without the attributes that others determine. `blocks` are in
    this order: those of the search for private domains, as the certificate's `domains` name them (none where they were
    not kept); those of the first plan, of its second look; chosen tables and distances. Of linked tables (`tree`) it is
    the joint one.
    """

    schema: Schema
    blocks: tuple[Block, ...]
    certificate: Certificate
    tree: Tree | None = None

    def __repr__(self) -> str:
        return f"Measured({self.schema!r}, {len(self.blocks)} blocks, {self.certificate!r})"

    @property
    def n_rows(self) -> int | None:
        """The public number of rows; None where neighbors do not share it."""
        return self.certificate.public_rows

    @property
    def counted(self) -> tuple[Block, ...]:
        """The same blocks, in rows: of linked tables in people, no more in tokens of theirs."""
        return tuple(block.in_rows for block in self.blocks)

    @property
    def known(self) -> Known:
        """All that is publicly known of the table, or of linked ones."""
        return self.tree or self.schema.whole or self.schema
