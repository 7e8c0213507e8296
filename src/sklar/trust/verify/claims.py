"""What a certificate claims, recomputed from the parts of its model file by another path (`trust.exact`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import Certificate, Measurement, measurements, rounded_up, unit_of
from sklar.budget.search import finding_faults, search_spend
from sklar.budget.views import is_of_schema
from sklar.errors import SklarError
from sklar.files.model import Model
from sklar.fitting.domains import domain_faults
from sklar.fitting.margins import estimate_rows
from sklar.kernel.cells import Cells
from sklar.kernel.queries import Block, Distances, Parities, Query, Tables
from sklar.kernel.theorems import MAX_SCALE, MIN_SCALE, Budget, round_up_scale
from sklar.trust.exact import TOLERANCE, exact_epsilon
from sklar.trust.verify.result import Check


def check_schema(model: Model) -> Check:
    """The certificate is for the model's schema, and names the domains that its custodian read from the rows."""
    stated = model.certificate
    named = stated.claimed_by is not None or stated.read_from_rows == model.schema.read_from_rows
    same = stated.schema_sha256 == model.schema.digest and named
    told = f"; {len(stated.read_from_rows)} domains were read from the rows" if stated.read_from_rows else ""
    return Check(name="schema", passed=same, detail=f"hash {stated.schema_sha256}{told}")


def check_settings(stated: Certificate) -> Check:
    """The budget is one that there can be."""
    try:
        _ = stated.budget
    except SklarError as error:
        return Check(name="settings", passed=False, detail=str(error))
    detail = (
        f"{stated.neighbors} neighbors, {stated.mechanism} noise, {stated.composition} composition; epsilon "
        f"{rounded_up(stated.epsilon, 6)} at delta {rounded_up(stated.delta, 3)}, fixed before anything was measured"
    )
    return Check(name="settings", passed=True, detail=detail)


def check_unit(model: Model) -> Check:
    """Whom the claim is about is what the schema says, and the noise is meant for as many rows as are counted."""
    stated, person = model.certificate, model.schema.person
    detail = "any one row" if person is None else f"any one person, with all their rows; counted are {person.words}"
    said = {"count": stated.count, "rows_per_person": stated.rows_per_person}
    agree = said == ({"count": None, "rows_per_person": None} | unit_of(person))
    return Check(name="unit", passed=agree, detail=detail if agree else "the schema names another unit")


def check_rows(model: Model) -> Check:
    """The number of rows: stated in one place where it is public; elsewhere what noisy totals say."""
    stated, stages = model.certificate, model.measured.stages
    known = {tables.n_rows for tables in stages} | {stated.public_rows}
    totals = [tables.total for tables in stages if tables.total is not None]
    scales = [tables.plan.total for tables in stages if tables.plan.total is not None]
    if stated.neighbors == "replace-one" and stated.rows == 1:
        passed = known == {model.n_rows} and not totals and not scales
        return Check(name="rows", passed=passed, detail=f"{model.n_rows:,}{' people' if stated.count else ''}, public")
    passed = known == {None} and len(totals) == len(scales) > 0
    # Exactly this number follows from the tables: another one would be somebody's knowledge.
    passed = passed and estimate_rows(model.measured.blocks, stated.mechanism, None) == model.n_rows
    return Check(name="rows", passed=passed, detail=f"not public: about {model.n_rows:,} by the noisy tables")


def check_measurements(model: Model) -> Check:
    """The certificate's lines are those of the blocks' scales, stage by stage, with the right sensitivity."""
    stated, blocks = model.certificate, model.measured.blocks
    wanted = measurements(blocks, _unit(stated))
    right = len(wanted) == len(stated.measurements) and all(map(_alike, wanted, stated.measurements))
    tables = sum(entry.tables for entry in stated.measurements), sum(entry.tables for entry in wanted)
    detail = (
        f"{tables[0]:,} tables stated, {tables[1]:,} in the arrays of scales, {model.measured_schema.n_attributes} "
        "attributes"
    )
    if tables[0] == tables[1] and not right:
        detail = "a stage states another sensitivity, scale or order"
    return Check(name="measurements", passed=right and bool(wanted), detail=detail)


def _alike(wanted: Measurement, stated: Measurement) -> bool:
    """Whether two lines are one, but for the last digits of what is computed."""
    real = ("sensitivity_l1", "sensitivity_l2", "moves", "reach")
    close = all(math.isclose(getattr(wanted, name), getattr(stated, name), rel_tol=1e-12) for name in real)
    return close and replace(wanted, **{name: getattr(stated, name) for name in real}) == stated


def _unit(stated: Certificate) -> Budget:
    """What one person does, by a certificate whose other claims may be anything."""
    return Budget(epsilon=1.0, neighbors=stated.neighbors, rows_per_person=stated.rows_per_person)


def check_arrays(model: Model) -> Check:
    """Every cell of the public domain is there, at scales that can be drawn."""
    cells, stated = model.measured_schema.cells, model.certificate
    blocks = [block for block in model.measured.blocks if is_of_schema(block)]
    for block in model.measured.blocks:
        scales = block.scales
        if not ((scales >= MIN_SCALE) & (scales <= MAX_SCALE)).all():
            return Check(name="arrays", passed=False, detail="a noise scale is not one that can be drawn exactly")
        if stated.claimed_by is None and not (round_up_scale(scales) == scales).all():
            return Check(name="arrays", passed=False, detail="a noise scale has more digits than the sampler draws")
    for block in blocks:
        query = block.query
        if scales_differ(block) or block.values.size != query.n_cells or cells_of(query) != cells:
            return Check(name="arrays", passed=False, detail="tables do not cover the public domain")
        if query.gaussian_only and stated.mechanism != "gaussian":
            return Check(name="arrays", passed=False, detail=f"{type(query).__name__.lower()} go with gaussian noise")
    queries = [block.query for block in blocks]
    parities = any(isinstance(query, Parities) and query.orders > 1 for query in queries)
    whole = {query.order for query in queries if isinstance(query, Tables) and query.sets is None}
    if not parities and (1 not in whole or (cells.n_pairs and 2 not in whole)):
        return Check(name="arrays", passed=False, detail="a release measures all one-way and all two-way tables")
    third = any(isinstance(query, Distances) or (isinstance(query, Tables) and query.order > 2) for query in queries)
    if third and (stated.mechanism != "gaussian" or parities):
        return Check(name="arrays", passed=False, detail="three-way tables go with gaussian noise and two-way tables")
    size = sum(block.values.size for block in blocks)
    return Check(name="arrays", passed=True, detail=f"{size:,} noisy cells cover the public domain, whole numbers all")


def scales_differ(block: Block) -> bool:
    """Whether a block has not one scale for each of its groups of cells."""
    return bool(block.scales.shape != block.query.sizes.shape)


def cells_of(query: Query) -> Cells | None:
    """The cells that a query is about."""
    return query.of.cells if isinstance(query, Distances) else getattr(query, "cells", None)


def _moves(block: Block, budget: Budget) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scales of a block, and how many moves by all rows of a person there are at each: of parities, the worst.

    A row that changes s of m bits moves the sets of k bits of which an odd number is among these s. A distance moves
    further than a count does: its scale is stated as that of a count with as much noise beside its move.
    """
    query = block.query
    if isinstance(query, Parities):
        m, scales = query.cells.n_attributes, block.scales
        odd = [
            [
                sum(math.comb(s, i) * math.comb(m - s, k - i) for i in range(1, k + 1, 2))
                for k in range(1, scales.size + 1)
            ]
            for s in range(m + 1)
        ]
        moved = np.array(odd, dtype=np.float64)
        return scales, moved[np.argmax(moved @ scales**-2.0)]
    if isinstance(query, Distances):
        reach = 15 * math.sqrt(budget.shifts) * budget.rows + 1.3
        return block.scales * budget.rows / math.floor(reach), np.array([float(query.n_cells)])
    scales, times = np.unique(block.scales, return_counts=True)
    return scales, budget.shifts * times.astype(np.float64)


def check_domains(model: Model) -> Check:
    """Every domain that was found has its search and no other has one, and thresholds fail as rarely as is stated."""
    stated = model.certificate
    faults = finding_faults(model.schema, stated.budget, stated.domains, stated.earlier, stated.public_rows)
    lost = math.fsum(finding.lost_delta for finding in stated.domains)
    for finding in stated.domains:
        threshold = finding.threshold
        if threshold is not None and finding.lost_delta < _chance_of_one(finding.scale, threshold, stated.rows):
            faults = (*faults, f"the threshold of '{finding.attribute}' fails more often than is stated")
    faults += _answer_faults(model)
    for name in domain_faults(model.measured) if not faults else ():
        faults = (*faults, f"the bins and points of '{name}' are not those that its noisy answers give")
    if not lost < stated.delta:
        faults = (*faults, f"thresholds fail with a chance of {lost:.3g}, more than delta")
    detail = f"{len(stated.domains)} found with noise; a threshold fails with a chance of {lost:.3g}, part of delta"
    if stated.earlier:
        detail += f"; {len(stated.earlier)} found by another release, whose cost is not part of this epsilon"
    return Check(name="domains", passed=not faults, detail=faults[0] if faults else detail)


def _answer_faults(model: Model) -> tuple[str, ...]:
    """What is wrong with the noisy answers: all are kept, and categories are those that reached their threshold."""
    stated, answers = model.certificate.domains, model.measured.answers
    if len(answers) != len(stated):
        return ("the noisy answers of a search are missing",)
    return tuple(
        f"the categories of '{finding.attribute}' are not those that its noisy answer gives"
        for finding, answer in zip(stated, answers, strict=True)
        if isinstance(answer, Mapping)
        and not (
            set(model.schema.attribute(finding.attribute).values) <= answer.keys()
            and all(count >= (finding.threshold or 0) for count in answer.values())
        )
    )


def _chance_of_one(scale: float, threshold: int, rows: int) -> float:
    """The chance that a value reaches a threshold which one person alone has: in all rows, or in each row another."""
    apart = _tail(scale, threshold - 1)
    return max(_tail(scale, threshold - rows), -math.expm1(rows * math.log1p(-min(apart, 0.5))))


def _tail(scale: float, first: int) -> float:
    """P(X >= first) of discrete Gaussian X, added up: from the first on, term by term, over the whole."""
    if first <= 0:
        return 1.0
    # Terms fall at least geometrically, by exp(-first / scale^2) each: added up until what is left cannot be seen. Of
    # very many, blocks of equal length are taken as their middle term: a little less, as the terms are convex there.
    log_first = -(first**2) / (2 * scale**2)
    length = int(min(40 * scale**2 / first + 1, 12 * scale + 1))
    step = max(length // 1_000_000, 1)
    k = first + step * np.arange(length // step + 1, dtype=np.float64)
    terms = np.exp(-((k + (step - 1) / 2) ** 2) / (2 * scale**2) - log_first)
    return math.exp(log_first) * step * float(terms.sum()) / (scale * math.sqrt(2 * math.pi)) * (1 - 1e-9)


def check_totals(model: Model) -> tuple[float, list[Check]]:
    """What the tables cost, by the theorems with every rounding outward, and numerically; both within the claim."""
    stated = model.certificate
    budget, blocks = stated.budget, [block for block in model.measured.blocks if is_of_schema(block)]
    search = search_spend(stated.domains, budget)
    spend = sum((block.spend(budget) for block in blocks), search)
    claimed, lost = budget.spent(spend), spend.lost_delta
    moves = [(search.scales, search.moves), *(_moves(block, budget) for block in blocks)]
    scales, shifts = (np.concatenate(part) for part in zip(*moves, strict=True))
    each, groups = np.unique(scales, return_inverse=True)
    # A threshold that fails costs its chance of delta, and of the odds the rest of all chances.
    independent = exact_epsilon(
        stated.mechanism, each, np.bincount(groups, weights=shifts), stated.delta - lost, rows=budget.rows
    ) - math.log1p(-lost)
    epsilon = rounded_up(stated.epsilon, 6)
    return independent, [
        Check(
            name="theorem",
            passed=claimed <= stated.epsilon,
            detail=f"all tables cost epsilon {rounded_up(claimed, 6)} together, {_within(claimed, stated.epsilon)} the "
            f"{epsilon} stated",
        ),
        Check(
            name="independent",
            passed=independent <= stated.epsilon * (1 + TOLERANCE),
            detail=f"numerically they cost epsilon {independent:.6g} at delta {rounded_up(stated.delta, 3)}, "
            f"{_within(independent, stated.epsilon * (1 + TOLERANCE))} the {epsilon} stated",
        ),
    ]


def _within(found: float, stated: float) -> str:
    return "within" if found <= stated else "more than"
