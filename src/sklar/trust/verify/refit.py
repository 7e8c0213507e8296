"""Whether the copula of a model file follows from its tables: fitted again, and compared.

Fitting is a function of the tables, and draws from fixed seeds. Its last bits may still differ between machines and
runs, because sums of single precision are added up in an order that depends on the processor and on where memory lies.
So not bits are compared but what the copula says: of a latent model the probability of every level in every component
and the predicted two-way tables, in units of the noise on measured ones; of a binary copula the probabilities and cut
points of levels, and all correlations.

Between a processor with and one without vector instructions, predicted tables of the census example were seen to differ
by 0.003 of their noise (root mean square; 0.08 at most), components by 0.0001 (0.004), correlations by 3e-8 and cut
points by 0.0005. The tolerances are a few times that: what a forger could put below them is hidden in the tables' noise
already, which has as much room. Where rounding turns a choice (how many steps, which parametrization), the fit is
repeated with the choices that the file states: a handful of small numbers, each a post-processing of the same tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import OLD_DISTANCE, is_of_schema, stage_numbers
from sklar.budget.method import Method, MethodName
from sklar.budget.plan import plan_release, plan_scores
from sklar.budget.search import replan_search
from sklar.draw.blocks import Copula
from sklar.draw.repair import hold_margins
from sklar.errors import ModelError
from sklar.files.model import LinkedModel, Model, fit_tables
from sklar.fitting.choose import fit_steps, refined, starting, step_limit
from sklar.fitting.classes import fit_classes
from sklar.fitting.denoise import denoise_margins
from sklar.fitting.latent import LatentModel, independent
from sklar.fitting.margins import Estimates, pool
from sklar.fitting.third import look_ahead
from sklar.kernel.queries import PARTS, Block, Distances, Parities, Query, Tables
from sklar.kernel.theorems import NOTHING
from sklar.machine.progress import SILENT, Progress
from sklar.paper.gaussian import BinaryCopula
from sklar.trust.verify.claims import Check, attempt

# Of the classes of linked tables, on average.
_CLASSES_TOLERANCE = 1e-3
# Of held-out errors relative to independence, which choices are made by.
_GAIN_TOLERANCE = 1e-3
# Scales are rounded up to single precision: the last bit may differ between machines.
_SCALE_TOLERANCE = 1e-6
# Three-way tables are chosen by fits: rounding may turn those that are hardly worth their price.
_TRIPLES_ALIKE = 0.9


def refit_checks(model: Model | LinkedModel, progress: Progress = SILENT) -> list[Check]:
    """The plan and the model, made again from the tables."""
    if isinstance(model, Model):
        return [*([] if model.certificate.claimed_by else [check_plan(model)]), check_copula(model, progress)]
    classes, settings = fit_classes(model.measured, progress=progress)
    same = settings["steps"] == model.settings["steps"] and settings.keys() == model.settings.keys()
    stated, fitted = model.classes.arrays(), classes.arrays()
    away = max(
        float(np.mean(abs(stated[name] - fitted[name]))) if stated[name].shape == fitted[name].shape else 1.0
        for name in fitted
    )
    detail = f"a fit of the same tables differs by {away:.1g} on average"
    return [Check("refit", same and away <= _CLASSES_TOLERANCE, detail)]


def check_copula(model: Model, progress: Progress = SILENT) -> Check:
    """Fit the model again and compare."""
    model.measured_schema.require_square("verify --refit")
    if "factor" in (model.settings["method"], model.settings.get("kind")):
        detail = "not possible: this version of Sklar fits no model of method 'factor'. Verify with the one that did"
        return Check("refit", None, detail)
    return attempt("refit", _refit, model, progress)


def _refit(model: Model, progress: Progress) -> str:
    again = fit_tables(model.measured, method=_method(model), progress=progress)
    copula, note, stated, fitted = again.copula, "", model.settings, again.settings
    if stated.keys() != fitted.keys():
        raise ModelError("the settings are not those of this fit")
    if any(stated.get(key) != fitted.get(key) for key in ("kind", "steps", "components", "rank", "fits")):
        copula = _with_choices(model, progress)
        note = "; with the choices that the file states, which this machine would not make"
    elif stated.get("priors") != fitted.get("priors"):
        raise ModelError("the settings name other priors than the tables do")
    else:
        gains = [each.get("gain_over_independence", 0.0) for each in (stated, fitted)]
        if abs(gains[0] - gains[1]) > _GAIN_TOLERANCE:
            raise ModelError("the settings state other held-out errors than the tables give")
    apart = distances(model.copula, copula, pool(model.measured))
    for what, (distance, limit) in apart.items():
        if not distance <= limit:
            raise ModelError(
                f"cannot confirm that the copula follows from the tables: a refit differs in {what} by {distance:.2g}, "
                f"more than {limit:g}{note}. Rounding does less, on any machine that was tried"
            )
    seen = ", ".join(f"{what} within {distance:.1g}" for what, (distance, _) in apart.items())
    return f"the copula follows from the tables: {seen}{note}"


def check_plan(model: Model) -> Check:
    """The scales of the first stage are those that a release by this budget plans, and later stages cost no more.

    A second stage is planned by noisy tables, within a cost that public facts fix.
    """
    return attempt("plan", _replan, model)


def _replan(model: Model) -> str:
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
    weights = schema.importance
    planned = plan_release(cells, budget, _method(model), n_rows=n_rows, rest=rest, importance=weights, again=again)
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
    spent = sum((block.spend(budget) for block in later), NOTHING)
    if later and not budget.cost(budget.tables(planned.reserve)).covers(budget.cost(spent)):
        raise ModelError("the later stages cost more than was set aside for them")
    scores = [block for block in later if isinstance(block.query, Distances)]
    for block in scores:
        scored = plan_scores(cells, pool(measured, first=True).n_rows, planned)
        # Until 0.2.0 scores had a little more noise: 16 times that of a table, which costs no less.
        reach = math.floor(PARTS * math.sqrt(budget.shifts) * budget.rows + 1.3)
        most = OLD_DISTANCE * math.sqrt(budget.shifts) * budget.rows / reach
        ratio = 0.0 if scored is None else float(block.scales[0]) / scored[0]
        if not 1 - _SCALE_TOLERANCE <= ratio <= most * (1 + _SCALE_TOLERANCE):
            raise ModelError("the scores of three-way tables do not have the scale that this Sklar plans")
    chosen = next((query for query in tables if query.sets is not None), None)
    if chosen is None:
        return right
    # A file of an earlier release has no scores: then the first stage alone chose.
    choice = look_ahead(first, schema, planned, n_rows).wanted(scores)
    if choice is None or not np.array_equal(np.asarray(chosen.coarse), np.asarray(choice[0].coarse)):
        raise ModelError("the three-way tables are not over the levels that the first stage's noisy tables give")
    ours, theirs = ({tuple(each) for each in query.members.tolist()} for query in (choice[0], chosen))
    share, by = len(ours & theirs) / len(ours | theirs), "the first stage's noisy tables"
    if share < _TRIPLES_ALIKE:
        raise ModelError(f"only {share:.0%} of the three-way tables are those that {by} ask for")
    return f"{right}; of the three-way tables, {share:.0%} are those that this machine would choose from {by}"


def as_planned(
    blocks: Sequence[Block], parts: Sequence[tuple[Query, NDArray[np.float64]]], tolerance: float = _SCALE_TOLERANCE
) -> bool:
    """Whether blocks answer the planned queries at the planned scales, but for their last digits."""
    return len(blocks) == len(parts) and all(
        type(block.query) is type(query)
        and np.array_equal(block.query.sizes, query.sizes)
        and all(np.array_equal(getattr(block.query, name, 0), getattr(query, name, 0)) for name in ("sets", "coarse"))
        and np.allclose(block.scales, scales, rtol=tolerance, atol=0.0)
        for block, (query, scales) in zip(blocks, parts, strict=True)
    )


def _method(model: Model) -> Method:
    name, paper = model.settings["method"], model.settings["preset"] == "paper"
    # Files of earlier releases: what `factor` measured is what a mixture measures.
    name = "auto" if name == "factor" else name
    return Method(name=cast(MethodName, name), paper=paper, dummies=model.copula.dummies)


def _with_choices(model: Model, progress: Progress) -> Copula:
    """The latent model that the stated choices give."""
    settings, estimates = model.settings, pool(model.measured)
    levels = denoise_margins(estimates).levels
    if settings["kind"] == "independence":
        return refined(hold_margins(independent(model.measured_schema, levels)), estimates)
    start, fits = starting(estimates, calm=settings.get("calm", False))
    if (
        settings["components"] != start.components
        or settings["rank"] is not None
        or not 0 < settings["steps"] <= step_limit(estimates, start)
        or not 0 < settings["fits"] <= fits
    ):
        raise ModelError("the settings state choices that no fit of these tables makes")
    chosen = {name: settings[name] for name in ("steps", "fits")}
    fitted = fit_steps(estimates, model.measured_schema, levels, start, **chosen, progress=progress)
    return refined(hold_margins(fitted), estimates)


def distances(one: Copula, other: Copula, measured: Estimates) -> dict[str, tuple[float, float]]:
    """How far two copulas are apart, each distance with its limit; infinite where they cannot be compared."""
    if isinstance(one, LatentModel) and isinstance(other, LatentModel):
        alike = [(each.probabilities.shape, each.rounds, each.matched) for each in (one, other)]
        if alike[0] != alike[1]:
            return {"components": (np.inf, 0.0)}
        cells = measured.cells
        apart = cells.flat(one.predict_pairs() - other.predict_pairs()) * np.float64(measured.n_rows)
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
    return {
        "levels": (_largest(one.levels - other.levels), 1e-6),
        "correlations": (_largest(one.factor @ one.factor.T - other.factor @ other.factor.T), 1e-5),
        # Cut points of levels that nobody has are infinite: as far out as any.
        "cut points": (_largest(np.clip(one.cuts, -40, 40) - np.clip(other.cuts, -40, 40)), 5e-3),
        "repairs": (float(one.repairs.clipped_pairs != other.repairs.clipped_pairs), 0.0),
    }


def _rms(apart: NDArray[np.floating[Any]]) -> float:
    return float(np.sqrt(np.mean(np.square(apart, dtype=np.float64)))) if apart.size else 0.0


def _largest(apart: NDArray[np.floating[Any]]) -> float:
    return float(np.abs(apart).max(initial=0.0))
