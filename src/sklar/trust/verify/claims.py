"""What a certificate claims, recomputed from the parts of its model file by another path (`trust.exact`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import SCORES, Certificate, rounded_up, unit_of
from sklar.budget.search import finding_faults, search_spend
from sklar.errors import SklarError
from sklar.files.model import Model
from sklar.fitting.domains import domain_faults
from sklar.fitting.margins import estimate_rows
from sklar.kernel.tables import NoisyTables
from sklar.kernel.theorems import MAX_SCALE, MIN_SCALE, Spend, round_up_scale, sensitivity
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
    passed = passed and estimate_rows(stages) == model.n_rows
    return Check(name="rows", passed=passed, detail=f"not public: about {model.n_rows:,} by the noisy tables")


def check_measurements(model: Model) -> Check:
    """The certificate's groups are those of the arrays of scales, stage by stage, with the right sensitivity."""
    stated = model.certificate
    moved = sensitivity(stated.neighbors, stated.rows)
    wanted = Counter(
        {
            (stage, order, float(scale), parity): int(times)
            for stage, order, scales, parity in _groups(model)
            for scale, times in zip(*np.unique(scales, return_counts=True), strict=True)
        }
    )
    found: Counter[tuple[int, int, float, bool]] = Counter()
    for entry in stated.measurements:
        # One parity is one count; how many of them move at once is what `check_totals` is about.
        one, two = (stated.rows, stated.rows) if entry.parity else moved
        # A score is one number.
        one = two if entry.order == SCORES else one
        right = entry.sensitivity_l1 == one and math.isclose(entry.sensitivity_l2, two)
        if not right or type(entry.tables) is not int or entry.tables < 1:
            return Check(name="measurements", passed=False, detail=f"stage {entry.stage} states another sensitivity")
        found[entry.stage, entry.order, entry.scale, entry.parity] += entry.tables
    m = model.measured_schema.n_attributes
    # In the one order and grouping that there is: others could tell something.
    listed = [(entry.stage, entry.order, entry.scale, entry.parity) for entry in stated.measurements]
    detail = f"{sum(found.values()):,} tables stated, {sum(wanted.values()):,} in the arrays of scales, {m} attributes"
    return Check(
        name="measurements", passed=found == wanted and bool(wanted) and listed == sorted(wanted), detail=detail
    )


def _scales(tables: NoisyTables) -> tuple[NDArray[np.float64], ...]:
    """Of the number of rows, of one-way tables, of two-way tables and of parities of triples."""
    plan = tables.plan
    return np.array([] if plan.total is None else [plan.total]), plan.one_way, plan.pairs, plan.trios


def _groups(model: Model) -> list[tuple[int, int, NDArray[np.float64], bool]]:
    """All scales by stage and order, and whether they are those of parities; three-way tables are the last stage."""
    stages, triples, scores = model.measured.stages, model.measured.triples, model.measured.scores
    groups = [
        (stage, order, own, each.plan.parities is not None and order > 0)
        for stage, each in enumerate(stages, start=1)
        for order, own in enumerate(_scales(each))
    ]
    if triples is not None:
        groups.append((len(stages) + 1, 3, triples.scales, False))
    if scores is not None:
        groups.append((len(stages) + 1, SCORES, np.full(scores.scores.size, scores.scale), False))
    return groups


def check_arrays(model: Model) -> Check:
    """Every cell of the public domain is there, at scales that can be drawn."""
    cells, triples, scores = model.measured_schema.cells, model.measured.triples, model.measured.scores
    for _, _, scales, _ in _groups(model):
        if not ((scales >= MIN_SCALE) & (scales <= MAX_SCALE)).all():
            return Check(name="arrays", passed=False, detail="a noise scale is not one that can be drawn exactly")
        if model.certificate.claimed_by is None and not (round_up_scale(scales) == scales).all():
            return Check(name="arrays", passed=False, detail="a noise scale has more digits than the sampler draws")
    for tables in model.measured.stages:
        sizes = [int(own.sum()) for own in tables.plan.sizes(cells)]
        if [tables.one_way.size, tables.pairs.size] != sizes or tables.trios.size != tables.plan.trios.size:
            return Check(name="arrays", passed=False, detail="tables do not cover the public domain")
        if tables.plan.parities is not None and not _right_parities(tables, model.certificate):
            return Check(name="arrays", passed=False, detail="parities are not of all bits, or not at one scale")
    stages = model.measured.stages
    every = [any(part.size for part in parts) for parts in zip(*((t.one_way, t.pairs) for t in stages), strict=True)]
    if not every[0] or not (every[1] or cells.n_pairs == 0):
        return Check(name="arrays", passed=False, detail="a release measures all one-way and all two-way tables")
    third = triples is not None or scores is not None
    if third and (model.certificate.mechanism != "gaussian" or stages[0].plan.parities is not None):
        return Check(name="arrays", passed=False, detail="three-way tables go with gaussian noise and two-way tables")
    if scores is not None and scores.scores.size != math.comb(cells.n_attributes, 3):
        return Check(name="arrays", passed=False, detail="scores are not those of all tables of three attributes")
    size = sum(tables.one_way.size + tables.pairs.size + tables.trios.size for tables in stages)
    size += (0 if triples is None else triples.counts.size) + (0 if scores is None else scores.scores.size)
    return Check(name="arrays", passed=True, detail=f"{size:,} noisy cells cover the public domain, whole numbers all")


def _right_parities(tables: NoisyTables, stated: Certificate) -> bool:
    plan, cells = tables.plan, tables.cells
    whole = plan.one_way.size == cells.n_attributes and plan.pairs.size == cells.n_pairs
    whole = whole and plan.trios.size in (0, cells.n_trios) and bool((cells.sizes == 2).all())
    same = all(np.unique(scales).size < 2 for scales in (plan.one_way, plan.pairs, plan.trios))
    return whole and same and plan.parities == stated.neighbors and stated.mechanism == "gaussian"


def _moves(tables: NoisyTables, shifts: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scales of one stage, and how many counts one row moves at each: of parities, the row that moves most.

    A row that changes s of m bits moves the sets of k bits of which an odd number is among these s.
    """
    plan = tables.plan
    if plan.parities is None:
        scales, times = np.unique(plan.scales, return_counts=True)
        return scales, shifts * times.astype(np.float64)
    m, total = plan.one_way.size, _scales(tables)[0]
    scales = np.array([group[0] for group in _scales(tables)[1:] if group.size])
    odd = [
        [sum(math.comb(s, i) * math.comb(m - s, k - i) for i in range(1, k + 1, 2)) for k in range(1, scales.size + 1)]
        for s in range(m + 1)
    ]
    moved = np.array(odd, dtype=np.float64)
    worst = moved[np.argmax(moved @ scales**-2.0)]
    return np.concatenate([total, scales]), np.concatenate([np.full(total.size, float(shifts)), worst])


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
    search, later = search_spend(stated.domains), (model.measured.triples, model.measured.scores)
    third = sum((own.spend for own in later if own is not None), Spend.of([]))
    spend = sum((tables.plan.spend for tables in model.measured.stages), search + third)
    budget = stated.budget
    claimed, lost = budget.spent(spend), spend.lost_delta
    moves = [(search.scales, budget.shifts * search.tables.astype(np.float64))]
    moves += [_moves(tables, budget.shifts) for tables in model.measured.stages]
    moves.append((third.scales, budget.shifts * third.tables.astype(np.float64)))
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
