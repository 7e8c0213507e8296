"""What a certificate claims, recomputed from the parts of its model file by another path (`trust.exact`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import Measurement, is_of_schema, measurements, rounded_up, unit_of, vouched
from sklar.budget.search import finding_faults, search_spend
from sklar.errors import SklarError
from sklar.files.model import Model
from sklar.fitting.density import searched
from sklar.fitting.domains import common_counts, domain_faults
from sklar.fitting.margins import estimate_rows
from sklar.kernel.queries import Block, Common, Distances, Parities, Tables
from sklar.kernel.theorems import MAX_SCALE, MIN_SCALE, Budget, round_up_scale
from sklar.machine.wording import said
from sklar.trust.exact import TOLERANCE, exact_epsilon


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked; `passed` is None where it was not, or could not be."""

    name: str
    passed: bool | None
    detail: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", printable(self.detail))


def printable(text: str) -> str:
    r"""The text on one line, whatever a file says: what is not printable is spelled out.

    >>> printable("a\nb")
    'a\\nb'
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def judge(name: str, detail: str = "", wrong: str = "") -> Check:
    """A check that passes where nothing is wrong."""
    return Check(name, not wrong, wrong or detail)


def attempt(name: str, compare: Callable[..., str | Check], *arguments: Any) -> Check:
    """A check that passes unless an error says what is wrong, or that says itself what it could not check."""
    try:
        found = compare(*arguments)
    except (SklarError, OSError) as error:
        return judge(name, wrong=str(error))
    return found if isinstance(found, Check) else judge(name, found)


def check_claims(model: Model) -> list[Check]:
    """All that is claimed but the cost and the noise."""
    stated = model.certificate
    checks = [judge("format", "members, keys, types and sizes are those of a model and no other"), _check_schema(model)]
    try:
        _ = stated.budget
    except SklarError as error:
        return [*checks, judge("settings", wrong=str(error))]
    epsilon, delta = rounded_up(stated.epsilon, 6), rounded_up(stated.delta, 3)
    settings = said("trust.settings", of=stated, epsilon=epsilon, delta=delta)
    person = model.schema.person
    unit = "any one row" if person is None else f"any one person, with all their rows; counted are {person.words}"
    named = {"count": stated.count, "rows_per_person": stated.rows_per_person}
    agree = named == ({"count": None, "rows_per_person": None} | unit_of(person))
    checks += [judge("settings", settings), judge("unit", unit, "" if agree else "the schema names another unit")]
    return [*checks, *(check(model) for check in (_check_rows, _check_measurements, _check_arrays, _check_domains))]


def _check_schema(model: Model) -> Check:
    """The certificate is for the model's schema, and names the domains that its custodian read from the rows."""
    stated = model.certificate
    known = model.measured.known
    named = all(getattr(stated, key) == names for key, names in vouched(model.schema).items())
    same = stated.schema_sha256 == known.digest and named
    read = f"; {len(stated.read_from_rows)} domains were read from the rows" if stated.read_from_rows else ""
    read += f"; {len(stated.unread)} entries were accepted unread" if stated.unread else ""
    return Check("schema", same, f"hash {stated.schema_sha256}{read}")


def _check_rows(model: Model) -> Check:
    """The number of rows: stated in one place where it is public; elsewhere what noisy totals say."""
    stated, blocks = model.certificate, model.measured.blocks
    totals = [block for block in blocks if isinstance(block.query, Tables) and block.query.order == 0]
    if stated.budget.rows_are_public:
        passed = stated.public_rows == model.n_rows and not totals
        return Check("rows", passed, f"{model.n_rows:,}{' people' if stated.count else ''}, public")
    # Exactly this number follows from the tables: another one would be somebody's knowledge.
    passed = stated.public_rows is None and bool(totals)
    passed = passed and estimate_rows(model.measured.counted, stated.mechanism, None) == model.n_rows
    return Check("rows", passed, f"not public: about {model.n_rows:,} by the noisy tables")


def _check_measurements(model: Model) -> Check:
    """The certificate's lines are those of the blocks' scales, stage by stage, with the right sensitivity."""
    stated, blocks = model.certificate, model.measured.blocks
    # What one person does, by a certificate whose other claims may be anything.
    unit = Budget(epsilon=1.0, neighbors=stated.neighbors, rows_per_person=stated.rows_per_person)
    lines = measurements(blocks, unit)

    def alike(line: Measurement, own: Measurement) -> bool:
        # But for the last digits of what is computed.
        real = ("sensitivity_l1", "sensitivity_l2", "moves", "reach")
        close = all(math.isclose(getattr(line, name), getattr(own, name), rel_tol=1e-12) for name in real)
        return close and replace(line, **{name: getattr(own, name) for name in real}) == own

    right = len(lines) == len(stated.measurements) and all(map(alike, lines, stated.measurements))
    here, there = (sum(entry.tables for entry in entries) for entries in (stated.measurements, lines))
    attributes = model.measured_schema.n_attributes
    detail = f"{here:,} tables stated, {there:,} in the arrays of scales, {attributes} attributes"
    if here == there and not right:
        detail = "a stage states another sensitivity, scale or order"
    return Check("measurements", right and bool(lines), detail)


def _check_arrays(model: Model) -> Check:
    """Every cell of the public domain is there, at scales that can be drawn."""
    cells, stated = model.measured_schema.cells, model.certificate
    blocks = [block for block in model.measured.blocks if is_of_schema(block)]
    normal = stated.mechanism == "gaussian"
    scales, wrong = np.concatenate([np.empty(0), *(block.scales for block in model.measured.blocks)]), []
    if not ((scales >= MIN_SCALE) & (scales <= MAX_SCALE)).all():
        wrong.append("a noise scale is not one that can be drawn exactly")
    elif (round_up_scale(scales) != scales).any():
        wrong.append("a noise scale has more digits than the sampler draws")
    orders, third = set(), False
    for block in blocks:
        query = block.query
        about = query.of.cells if isinstance(query, Distances) else getattr(query, "cells", cells)
        if block.scales.shape != query.sizes.shape or block.values.size != query.n_cells or about != cells:
            wrong.append("tables do not cover the public domain")
        if query.gaussian_only and not normal:
            wrong.append(f"{type(query).__name__.lower()} go with gaussian noise")
        if isinstance(query, Parities):
            orders |= set(range(1, query.orders + 1))
        elif isinstance(query, Tables) and query.sets is None:
            orders.add(query.order)
        third = third or isinstance(query, Distances) or (isinstance(query, Tables) and query.order > 2)
    if 1 not in orders or (cells.n_pairs and 2 not in orders):
        wrong.append("a release measures all one-way and all two-way tables")
    if third and (not normal or any(isinstance(block.query, Parities) for block in blocks)):
        wrong.append("three-way tables go with gaussian noise and two-way tables")
    size = sum(block.values.size for block in blocks)
    detail = f"{size:,} noisy cells cover the public domain, whole numbers all"
    return judge("arrays", detail, next(iter(wrong), ""))


def _moves(block: Block, budget: Budget) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scales of a block, and how many moves by all rows of a person there are at each: of parities, the worst.

    A row that changes s of m bits moves the sets of k bits of which an odd number is among these s. A distance moves
    further than a count does, and shares are in tokens: their scale is that of a count with as much noise beside its
    move.
    """
    query = block.query
    if isinstance(query, Parities):
        m, orders = query.cells.n_attributes, range(1, query.orders + 1)

        def odd(s: int, k: int) -> float:
            return float(sum(math.comb(s, i) * math.comb(m - s, k - i) for i in range(1, k + 1, 2)))

        moved = np.array([[odd(s, k) for k in orders] for s in range(m + 1)])
        return block.scales, moved[np.argmax(moved @ block.scales**-2.0)]
    if isinstance(query, Distances):
        reach = 15 * math.sqrt(budget.shifts) * budget.rows + 1.3
        return block.scales * budget.rows / math.floor(reach), np.array([float(query.n_cells)])
    each = getattr(query, "each", 1)
    scales, times = np.unique(block.scales / each, return_counts=True)
    return scales, budget.shifts * times.astype(np.float64)


def _check_domains(model: Model) -> Check:
    """Every domain that was found has its search and no other has one, and thresholds fail as rarely as is stated."""
    stated = model.certificate
    blocks, public = model.measured.blocks, stated.public_rows
    faults = [*finding_faults(model.schema, stated.budget, stated.domains, stated.earlier, blocks, public)]
    lost = math.fsum(finding.lost_delta for finding in stated.domains)
    for finding in stated.domains:
        if finding.threshold is not None:
            # A value that one person alone has, in all rows, or in each row another.
            same, apart = (_tail(finding.scale, finding.threshold - rows) for rows in (stated.rows, 1))
            if finding.lost_delta < max(same, -math.expm1(stated.rows * math.log1p(-min(apart, 0.5)))):
                faults.append(f"the threshold of '{finding.attribute}' fails more often than is stated")
    faults += _answer_faults(model)
    if not faults:
        names = domain_faults(model.measured)
        faults += [f"the bins and points of '{name}' are not those that its noisy answers give" for name in names]
    if not lost < stated.delta:
        faults.append(f"thresholds fail with a chance of {lost:.3g}, more than delta")
    number = len({finding.attribute for finding in stated.domains})
    detail = f"{number} found with noise; a threshold fails with a chance of {lost:.3g}, part of delta"
    if stated.earlier:
        detail += f"; {len(stated.earlier)} found by another release, whose cost is not part of this epsilon"
    return judge("domains", detail, next(iter(faults), ""))


def _answer_faults(model: Model) -> list[str]:
    """What is wrong with the noisy answers: all are kept, and categories are those that reached their threshold."""
    searches = list(searched(model.certificate.domains, model.measured.blocks))
    if len(searches) != len(model.certificate.domains):
        return ["the noisy answers of a search are missing"]
    if any((block.scales != finding.scale).any() for finding, own in searches for block in own):
        return ["a search has another noise scale than is stated for it"]
    common = [(each, answer) for each, (answer, *_) in searches if isinstance(answer.query, Common)]
    faults = []
    for finding, answer in common:
        rounds = [own for each, own in common if each.attribute == finding.attribute]
        listed = set(model.schema.attribute(finding.attribute).values) <= common_counts(rounds).keys()
        if not listed or (answer.values < (finding.threshold or 0)).any():
            faults.append(f"the categories of '{finding.attribute}' are not those that its noisy answers give")
    return faults


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
    epsilon, delta = rounded_up(stated.epsilon, 6), rounded_up(stated.delta, 3)
    number, near = f"numerically they cost epsilon {independent:.6g} at delta {delta}", stated.epsilon * (1 + TOLERANCE)
    costs = (
        ("theorem", f"all tables cost epsilon {rounded_up(claimed, 6)} together", claimed <= stated.epsilon),
        ("independent", number, independent <= near),
    )
    return independent, [
        Check(name, within, f"{words}, {'within' if within else 'more than'} the {epsilon} stated")
        for name, words, within in costs
    ]
