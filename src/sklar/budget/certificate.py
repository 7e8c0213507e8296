"""What was spent, on what, against whom: the certificate of a release, and everything that it measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np

from sklar.budget.search import Answer, Finding, read_finding, search_spend
from sklar.errors import ModelError
from sklar.kernel.tables import NoisyTables, Plan
from sklar.kernel.theorems import Budget, Composition, Mechanism, Neighbors
from sklar.public.schema import Schema

_ORDERS = {0: "number of rows", 1: "one-way tables", 2: "two-way tables"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Tables of one order that were measured at one scale in one stage."""

    stage: int
    order: int
    tables: int
    scale: float
    sensitivity_l1: float
    sensitivity_l2: float

    @property
    def what(self) -> str:
        """In words."""
        return _ORDERS[self.order]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What was spent, on what, against whom: enough for a stranger to recompute the claim.

    `claimed_by` names who measured the tables where Sklar did not: then all of it is what the caller says, and nothing
    was checked. `rounded` says that such tables held values that are not whole.
    """

    neighbors: Neighbors
    mechanism: Mechanism
    composition: Composition
    epsilon: float
    delta: float
    spent_epsilon: float
    public_rows: int | None
    schema_sha256: str
    measurements: tuple[Measurement, ...]
    domains: tuple[Finding, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    claimed_by: str | None = None
    rounded: bool = False

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Certificate:
        """From JSON."""
        try:
            measurements = tuple(Measurement(**entry) for entry in document["measurements"])
            domains = tuple(read_finding(entry) for entry in document["domains"])
            return cls(**{**document, "measurements": measurements, "domains": domains})
        except (TypeError, KeyError) as error:
            raise ModelError(f"the privacy certificate is not readable ({error}). Get an intact copy.") from None


def certify(
    schema: Schema,
    budget: Budget,
    plans: Sequence[Plan],
    public_rows: int | None,
    findings: Sequence[Finding] = (),
) -> Certificate:
    """The certificate of finding domains, then measuring these plans, one stage after the other, under this budget."""
    return Certificate(
        neighbors=budget.neighbors,
        mechanism=budget.mechanism,
        composition=budget.composition,
        epsilon=budget.epsilon,
        delta=budget.delta,
        spent_epsilon=budget.spent(sum((plan.spend for plan in plans), search_spend(findings))),
        public_rows=public_rows,
        schema_sha256=schema.digest,
        measurements=measurements(plans, budget.shifts),
        domains=tuple(findings),
        versions=_versions(),
    )


def measurements(plans: Sequence[Plan], shifts: int) -> tuple[Measurement, ...]:
    """What these plans measure, one stage after the other. A person makes `shifts` unit shifts in a table."""
    return tuple(
        Measurement(
            stage=stage,
            order=order,
            tables=int(tables),
            scale=float(scale),
            sensitivity_l1=float(shifts),
            sensitivity_l2=math.sqrt(shifts),
        )
        for stage, plan in enumerate(plans, start=1)
        for order, scales in ((0, [] if plan.total is None else [plan.total]), (1, plan.one_way), (2, plan.pairs))
        for scale, tables in zip(*np.unique(np.asarray(scales), return_counts=True), strict=True)
    )


@cache
def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("sklar", "numpy", "numba", "cryptography", "polars")}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """Everything that was measured of one table, stage after stage, with its certificate: public.

    `schema` is the measured part of the release's schema, without the attributes that others determine. `answers` are
    the noisy answers of the search for private domains, in the order of the certificate's `domains`; empty where they
    were not kept.
    """

    schema: Schema
    stages: tuple[NoisyTables, ...]
    certificate: Certificate
    answers: tuple[Answer, ...] = ()

    @property
    def n_rows(self) -> int | None:
        """The public number of rows; None under add-remove."""
        return self.stages[0].n_rows
