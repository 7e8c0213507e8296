"""The path of a release as an attacker sees it: a file goes in, noisy cells and public facts come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import Measured
from sklar.budget.method import PAPER, Method
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from sklar.release import measure

# Noise at this epsilon is zero but for a chance below exp(-1000).
_EXACT = 1e9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Released:
    """All noisy cells of a release, the noise scale of each, the number of its table, and all that was let out."""

    cells: NDArray[np.int64]
    scales: NDArray[np.float64]
    tables: NDArray[np.int64]
    measured: Measured


# What an attack is made on: from a table, a schema and a budget to what is released.
Release = Callable[[object, Schema, Budget], Released]


def release_once(data: object, schema: Schema, budget: Budget) -> Released:
    """All tables at once, at equal scales: what `fit` measures for the paper's method."""
    return released(measure(data, schema, budget, method=PAPER))


def release_twice(data: object, schema: Schema, budget: Budget) -> Released:
    """Both stages: what `fit` measures by default."""
    return released(measure(data, schema, budget, method=Method()))


def exactly(release: Release) -> Release:
    """The same release with noise that is always zero: exact cells, by the public interface."""
    return lambda data, schema, budget: release(data, schema, replace(budget, epsilon=_EXACT))


def released(measured: Measured) -> Released:
    """Everything that a measurement let out."""
    cells: list[Any] = []
    scales: list[Any] = []
    sizes: list[Any] = []
    # Parities of triples last: an exact release measures them also where one with noise does not.
    for tables in measured.stages:
        plan, layout = tables.plan, tables.cells
        total = [] if tables.total is None else [tables.total]
        widths = [np.ones(len(total), dtype=np.int64), *plan.sizes(layout)]
        cells += [np.array(total, dtype=np.int64), tables.one_way, tables.pairs]
        scales += [np.repeat(each, width) for each, width in zip(_scales(plan), widths, strict=True)]
        sizes += widths
    for tables in measured.stages:
        cells.append(tables.trios)
        scales.append(tables.plan.trios)
        sizes.append(np.ones(tables.trios.size, dtype=np.int64))
    return Released(
        cells=np.concatenate(cells),
        scales=np.concatenate(scales),
        tables=np.repeat(np.arange(sum(each.size for each in sizes)), np.concatenate(sizes)),
        measured=measured,
    )


def _scales(plan: Any) -> tuple[Any, Any, Any]:
    return np.array([] if plan.total is None else [plan.total]), plan.one_way, plan.pairs


def facts_of(measured: Measured) -> dict[str, str]:
    """All that is released beside noisy cells, each thing by where it stands."""
    found: dict[str, str] = {}

    def note(place: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                note(f"{place}.{key}", item)
        elif isinstance(value, list | tuple):
            note(f"{place}.length", len(value))
            for number, item in enumerate(value):
                note(f"{place}.{number}", item)
        else:
            found[place] = repr(value)

    note("certificate", measured.certificate.to_dict())
    note("schema", measured.schema.to_dict())
    note("rows", measured.n_rows)
    for number, tables in enumerate(measured.stages):
        note(f"stage {number}", {"rows": tables.n_rows, "total": tables.total is None, "scales": [*tables.plan.scales]})
    if measured.triples is not None:
        own = measured.triples
        chosen = {"attributes": own.triples.attributes.tolist(), "coarse": own.triples.coarse.tolist()}
        note("third stage", {**chosen, "scales": own.scales.tolist()})
    if measured.scores is not None:
        note("scores", {"number": measured.scores.scores.size, "scale": measured.scores.scale})
    return found
