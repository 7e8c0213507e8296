"""Whether the copula of a model file follows from its tables: fitted again, and compared. The derivation:
docs/derivations.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import is_of_schema, stage_numbers
from sklar.budget.plan import RULES, beside_of, plan_release, plan_scores
from sklar.budget.search import replan_search
from sklar.draw.blocks import Copula
from sklar.draw.repair import hold_margins
from sklar.errors import ModelError
from sklar.files.model import Model, TreeModel, fit_tables
from sklar.fitting.choose import SHRINKAGES, completed, fit_steps, refined, starting, step_limit
from sklar.fitting.denoise import denoise_margins
from sklar.fitting.latent import LatentModel, independent
from sklar.fitting.margins import GAIN_DIGITS, Estimates, digits, pool, rounded
from sklar.fitting.order import arrays_in
from sklar.fitting.third import look_ahead
from sklar.kernel.queries import Block, Distances, Parities, Query, Tables
from sklar.kernel.theorems import NOTHING
from sklar.machine.progress import SILENT, Progress
from sklar.machine.wording import said
from sklar.paper.gaussian import BinaryCopula
from sklar.trust.verify.claims import Check, attempt, judge

# Of held-out errors relative to independence, which choices are made by: one unit of the last digit.
_GAIN_TOLERANCE = 1.001 * 10.0**-GAIN_DIGITS
# The share of stored values that may differ from a refit's by one unit of their last digit.
_MAY_DIFFER = 0.01
# Scales are rounded up to single precision: the last bit may differ between machines.
_SCALE_TOLERANCE = 1e-6
# Three-way tables are chosen by fits: rounding may turn those that are hardly worth their price.
_TRIPLES_ALIKE = 0.9
_OLDER = "not recomputed: planned and fitted by the rules of another version of Sklar. Verify with the one that made it"


def refit_checks(model: Model, progress: Progress = SILENT) -> list[Check]:
    """The plan and the model, made again from the tables."""
    model.measured_schema.require_square("verify --refit")
    return [attempt("plan", replanned, model), attempt("refit", refitted, model, progress)]


def open_bits(values: int, differing: int, choices: int = 2) -> float:
    """How many bits could be hidden in which of so many values differ, each in one of so many ways.

    >>> round(open_bits(1_000, 1), 2)
    10.97
    """
    which = math.lgamma(values + 1) - math.lgamma(differing + 1) - math.lgamma(values - differing + 1)
    return which / math.log(2) + differing * math.log2(choices)


def _to_the_last_digit(
    stated: Mapping[str, NDArray[Any]], fitted: Mapping[str, NDArray[Any]], bits: int, note: str = ""
) -> Check:
    """Whether stored values are those of a refit, within one unit of their last digit."""
    size = differing = units = 0
    for name, own in stated.items():
        places, whole = (24, np.int32) if own.dtype == np.float32 else (53, np.int64)
        # Floating-point numbers as whole ones, in their order; whether they differ is asked of all bits.
        one, two = (cast(NDArray[np.int64], each.view(whole)) for each in (own, fitted[name]))
        size, differing = size + own.size, differing + int(np.count_nonzero(one != two))
        ranks = [np.where(rank < 0, float(np.iinfo(whole).min) - rank, rank) for rank in (one, two)]
        apart = np.abs(ranks[0] - ranks[1]) / 2.0 ** (places - bits)
        # A value between two units may be any of those between them.
        between = 1 if (own == rounded(own, bits)).all() else 2 ** (places - bits)
        units = max(units, math.ceil(float(apart.max(initial=0.0))) * between, int((one != two).any()))
    room = open_bits(size, differing, max(2 * units, 1))
    if units <= 1 and differing <= _MAY_DIFFER * size:
        others = f", {differing:,} within a unit of their last digit ({room:,.0f} bits)" if differing else ""
        return judge("refit", f"the model follows from the tables: {size:,} stored values are a refit's{others}{note}")
    why = f"in their last digits, by another processor, version or hand: room for {room / 8:,.0f} bytes of anything"
    detail = f"a refit says the same, but {differing:,} of {size:,} stored values differ {why}{note}"
    return Check("refit", None, f"not confirmed: {detail}")


def refitted(model: Model, progress: Progress = SILENT) -> Check:
    """Fit the model again and compare."""
    if _by_older_rules(model):
        return Check("refit", None, _OLDER)
    again = fit_tables(model.measured, method=model.method, progress=progress)
    copula, note, stated, fitted = again.copula, "", model.settings, again.settings
    if stated.keys() != fitted.keys():
        raise ModelError("the settings are not those of this fit")
    if any(stated.get(key) != fitted.get(key) for key in ("kind", "steps", "components", "fits", "shrinkage")):
        copula = _with_choices(model, progress)
        note = "; with the choices that the file states, which this machine would not make"
    elif stated.get("priors") != fitted.get("priors"):
        raise ModelError("the settings name other priors than the tables do")
    elif abs(stated.get(gain := "gain_over_independence", 0.0) - fitted.get(gain, 0.0)) > _GAIN_TOLERANCE:
        raise ModelError("the settings state other held-out errors than the tables give")
    estimates, bits = pool(model.measured), digits(model.measured.blocks, model.n_rows)
    if isinstance(copula, LatentModel) and isinstance(model.copula, LatentModel):
        # It follows from the stated components: where these differ in a last digit, small differences would in most.
        copula = replace(copula, missed=completed(model.copula, estimates, bits).missed)
    apart = distances(model.copula, copula, estimates)
    for what, (distance, limit) in apart.items():
        if not distance <= limit:
            raise ModelError(said("trust.differs", what=what, distance=distance, limit=limit, note=note))
    # Laws of rows in order follow from components, at random: they are a refit's where these are.
    laws = [arrays_in(own.laws) if isinstance(own, TreeModel) else {} for own in (model, again)]
    return _to_the_last_digit(model.copula.arrays() | laws[0], copula.arrays() | laws[1], bits, note)


def _by_older_rules(model: Model) -> bool:
    """Whether a file states that another Sklar planned and fitted it."""
    return "kind" in model.settings and model.settings.get("rules") != RULES


def replanned(model: Model) -> str | Check:
    """The scales of the first stage are those that a release by this budget plans, and later stages cost no more.

    A second stage is planned by noisy tables, within a cost that public facts fix.
    """
    if _by_older_rules(model):
        return Check("plan", None, _OLDER)
    stated, schema, measured = model.certificate, model.measured_schema, model.measured
    budget, cells = stated.budget, schema.cells
    n_rows, rest = stated.public_rows, None
    if stated.domains:
        rest = replan_search(model.schema, budget, stated.domains, measured.blocks, n_rows).rest
    blocks = [block for block in measured.blocks if is_of_schema(block)]
    first = [block for block, stage in zip(blocks, stage_numbers(blocks), strict=True) if stage == 1]
    later = blocks[len(first) :]
    # Whether rows could be counted again is told by whether they were, where that was to be decided.
    again = any(isinstance(block.query, Parities) and block.query.orders == 3 for block in first)
    public: dict[str, Any] = {"n_rows": n_rows, "importance": schema.importance, "again": again}
    planned = plan_release(cells, budget, model.method, rest=rest, beside=beside_of(measured.known), **public)
    right = "the noise scales are those that public facts and the budget give"
    if not as_planned(first, planned.first.parts):
        raise ModelError("the first stage is not what this Sklar plans for this budget")
    if planned.looks > 1:
        same = as_planned(later, planned.first.parts)
        if not same or any((one.scales != two.scales).any() for one, two in zip(first, later, strict=True)):
            raise ModelError("the looks differ")
        return right
    tables = [block.query for block in later if isinstance(block.query, Tables)]
    if [query.order for query in tables if query.sets is None] != [2] * (planned.reserve.size > 0):
        raise ModelError("the stages are not those that this Sklar plans for this budget")
    spent = sum((block.in_rows.spend(budget) for block in later), NOTHING)
    if later and not budget.cost(budget.tables(planned.reserve)).covers(budget.cost(spent)):
        raise ModelError("the later stages cost more than was set aside for them")
    scores = {block.query.of.order: block for block in later if isinstance(block.query, Distances)}
    n_first = pool(measured, first=True).n_rows
    scored = plan_scores(cells, n_first, planned, schema.targets, tuple(scores)) if scores else None
    asked = {each.tables.order: each.scale for each in scored[0]} if scored else {}
    for order, block in scores.items():
        if abs(float(block.scales[0]) / asked.get(order, math.inf) - 1) > _SCALE_TOLERANCE:
            raise ModelError("the scores of three-way tables do not have the scale that this Sklar plans")
    chosen = {query.order: query for query in tables if query.sets is not None}
    if not chosen:
        return right
    # Where scores are missing, or of three attributes alone, the first stage, or they, chose.
    outlook = look_ahead(first, schema, planned, n_rows, orders=tuple(scores))
    choice = {query.order: query for query, _ in outlook.wanted(tuple(scores.values()))}
    levels = {own.tables.order: own.tables for own in outlook.seen}
    if any(at not in levels or (np.asarray(own.coarse) != levels[at].coarse).any() for at, own in chosen.items()):
        raise ModelError("the three-way tables are not over the levels that the first stage's noisy tables give")
    asking, holding = (own.values() for own in (choice, chosen))
    ours, theirs = ({tuple(each) for query in own for each in query.members.tolist()} for own in (asking, holding))
    share, by = len(ours & theirs) / len(ours | theirs), "the first stage's noisy tables"
    if share < _TRIPLES_ALIKE:
        raise ModelError(f"only {share:.0%} of the three-way tables are those that {by} ask for")
    return f"{right}; of the three-way tables, {share:.0%} are those that this machine would choose from {by}"


def as_planned(
    blocks: Sequence[Block], parts: Sequence[tuple[Query, NDArray[np.float64]]], tolerance: float = _SCALE_TOLERANCE
) -> bool:
    """Whether blocks answer the planned queries at the planned scales, in rows, but for their last digits."""
    names = ("sets", "coarse", "what", "per")
    return len(blocks) == len(parts) and all(
        type(block.query) is type(query)
        and np.array_equal(block.query.sizes, query.sizes)
        and all(np.array_equal(getattr(block.query, name, 0), getattr(query, name, 0)) for name in names)
        and np.allclose(block.in_rows.scales, scales / getattr(query, "each", 1), rtol=tolerance, atol=0.0)
        for block, (query, scales) in zip(blocks, parts, strict=True)
    )


def _with_choices(model: Model, progress: Progress) -> Copula:
    """The latent model that the stated choices give."""
    settings, estimates = model.settings, pool(model.measured)
    levels = denoise_margins(estimates).levels
    bits = digits(model.measured.blocks, model.n_rows)
    if settings["kind"] == "independence":
        return refined(hold_margins(independent(model.measured_schema, levels)), estimates, bits)
    start, fits = starting(estimates)
    if (
        settings["components"] != start.components
        or not 0 < settings["steps"] <= step_limit(estimates, start)
        or not 0 < settings["fits"] <= fits
        or settings["shrinkage"] not in SHRINKAGES
    ):
        raise ModelError("the settings state choices that no fit of these tables makes")
    chosen = {name: settings[name] for name in ("steps", "fits", "shrinkage")}
    fitted = fit_steps(estimates, model.measured_schema, levels, start, **chosen, progress=progress)
    return refined(hold_margins(fitted), estimates, bits)


def distances(one: Copula, other: Copula, measured: Estimates) -> dict[str, tuple[float, float]]:
    """How far two copulas are apart, each distance with its limit; infinite where they cannot be compared."""
    if isinstance(one, LatentModel) and isinstance(other, LatentModel):
        alike = [(each.probabilities.shape, each.rounds, each.matched, each.missed.shape) for each in (one, other)]
        if alike[0] != alike[1]:
            return {"components": (np.inf, 0.0)}
        cells = measured.cells
        apart = cells.flat(one.predict_pairs() - other.predict_pairs()) * np.float64(measured.n_rows)
        if one.missed.size:
            apart += (one.missed - other.missed) * np.float64(measured.n_rows)
        tables = apart / np.repeat(measured.pair_sd, cells.pair_sizes)
        if not cells.n_pairs:
            tables = (one.margins() - other.margins()) * measured.n_rows / measured.one_way_sd[cells.attribute_of_level]
        components = one.probabilities - other.probabilities
        return {
            "predicted tables (rms, of their noise)": (_rms(tables), 0.02),
            "a predicted cell (of its noise)": (_largest(tables), 0.25),
            "components (rms)": (_rms(components), 1e-3),
            "a component's level": (_largest(components), 0.02),
        }
    if not isinstance(one, BinaryCopula) or not isinstance(other, BinaryCopula) or one.dummies != other.dummies:
        return {"the kind of model": (np.inf, 0.0)}
    # But for the last of the digits that are stored of what was moved.
    moved = {name: getattr(other.repairs, name) for name in ("moved", "max_moved")}
    near = all(math.isclose(getattr(one.repairs, name), moved[name], rel_tol=0.0101, abs_tol=1e-6) for name in moved)
    return {
        "levels": (_largest(one.levels - other.levels), 1e-6),
        "correlations": (_largest(one.factor @ one.factor.T - other.factor @ other.factor.T), 1e-5),
        # Cut points of levels that nobody has are infinite: as far out as any.
        "cut points": (_largest(np.clip(one.cuts, -40, 40) - np.clip(other.cuts, -40, 40)), 5e-3),
        "repairs": (float(not near or replace(one.repairs, **moved) != other.repairs), 0.0),
    }


def _rms(apart: NDArray[np.floating[Any]]) -> float:
    return float(np.sqrt(np.mean(np.square(apart, dtype=np.float64)))) if apart.size else 0.0


def _largest(apart: NDArray[np.floating[Any]]) -> float:
    return float(np.abs(apart).max(initial=0.0))
