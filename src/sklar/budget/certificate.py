"""NoisyTables: noisy counts, their noise scales, their privacy certificate. The one value that leaves `private/`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.budget.plan import Plan
from sklar.budget.search import Finding, search_scales
from sklar.errors import ModelError
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
            domains = tuple(Finding(**entry) for entry in document["domains"])
            return cls(**{**document, "measurements": measurements, "domains": domains})
        except (TypeError, KeyError) as error:
            raise ModelError(f"the privacy certificate is not readable ({error}). Get an intact copy.") from None


def spent_with(budget: Budget, findings: Sequence[Finding], scales: NDArray[np.float64]) -> float:
    """The epsilon spent on finding domains and on tables at these scales together, at the budget's delta."""
    lost = math.fsum(finding.lost_delta for finding in findings)
    return budget.less(lost).spent(np.concatenate([search_scales(findings), scales])) - math.log1p(-lost)


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
        spent_epsilon=spent_with(budget, findings, np.concatenate([plan.scales for plan in plans])),
        public_rows=public_rows,
        schema_sha256=schema.digest,
        measurements=measurements(plans, budget.shifts),
        domains=tuple(findings),
        versions=_versions(),
    )


def measurements(plans: Sequence[Plan], shifts: int) -> tuple[Measurement, ...]:
    """What these plans measure, one stage after the other, where a person makes so many unit shifts in a table."""
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
    return {name: version(name) for name in ("sklar", "numpy", "scipy", "numba", "cryptography", "pyarrow")}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyTables:
    """What one measurement let out: tables with noise on every cell of the public domain.

    `one_way` has shape (d,). `pairs` has shape (d, d): the table of attributes i < j stands at the rows of i's levels
    and the columns of j's; all else is zero. `n_rows` is the public number of rows under replace-one, None under
    add-remove, where `total` is its noisy measurement instead. What the plan does not measure has size 0. The
    certificate covers this measurement and all before it.
    """

    schema: Schema
    n_rows: int | None
    total: int | None
    one_way: NDArray[np.int64]
    pairs: NDArray[np.int64]
    plan: Plan
    certificate: Certificate

    def __post_init__(self) -> None:
        for counts in (self.one_way, self.pairs):
            counts.setflags(write=False)

    def variances(self, scales: NDArray[np.float64]) -> NDArray[np.float64]:
        """Variance of the noise at these scales."""
        return noise_variance(self.certificate.mechanism, scales)


def noise_variance(mechanism: Mechanism, scales: NDArray[np.float64]) -> NDArray[np.float64]:
    """Variance of discrete noise: sigma^2 (an upper bound, reached but for 1e-6 above sigma = 1), or Laplace's exactly.

    >>> noise_variance("laplace", np.array([10.0])).round(2).tolist()
    [199.83]
    """
    if mechanism == "gaussian":
        return scales**2
    with np.errstate(over="ignore"):
        return np.where(scales > 0, 0.5 / np.sinh(0.5 / np.where(scales > 0, scales, 1.0)) ** 2, 0.0)


def block_of_level(schema: Schema) -> NDArray[np.int64]:
    """The attribute that each of the d levels belongs to, shape (d,)."""
    return np.repeat(np.arange(schema.n_attributes), schema.sizes)


def above_diagonal(schema: Schema) -> NDArray[np.bool_]:
    """Where `NoisyTables.pairs` holds counts: blocks of attributes i < j, shape (d, d)."""
    block = block_of_level(schema)
    mask: NDArray[np.bool_] = block[:, None] < block[None, :]
    return mask
