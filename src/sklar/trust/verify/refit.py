"""Whether the copula of a model file follows from its tables: fitted again, and compared.

Fitting is a function of the tables; what it draws, it draws from fixed seeds. Its last bits may still differ between
machines and between runs, because sums of single precision are added up in an order that depends on the processor and
on where memory lies. So not bits are compared but what the copula says:

- a latent model: the probability of every level in every component, and of all pairs of levels;
- a binary copula: the probabilities and cut points of levels, and all correlations.

The tolerances are far above what rounding was seen to do and far below what could hold anything of a row: one row of n
moves a probability by 1/n in the sum over all components, and no single one can be told from rounding.

Where rounding turns a choice (how many steps, which parametrization), the fit is repeated with the choices that the
file states. They are a handful of small numbers, and any of them would be post-processing of the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sklar.budget.method import Method, MethodName
from sklar.draw.repair import hold_margins
from sklar.files.model import Model
from sklar.fitting.binary import BinaryCopula
from sklar.fitting.denoise import denoise_margins, denoise_tables
from sklar.fitting.descent import Start
from sklar.fitting.latent import LatentModel, fit_latent, independent
from sklar.fitting.margins import pool
from sklar.fitting.model import Copula
from sklar.machine.progress import SILENT, Progress
from sklar.release import fit_tables
from sklar.trust.verify.result import Check

# Of a probability: of one level in one component, and of two levels together.
COMPONENT_TOLERANCE = 1e-2
PAIR_TOLERANCE = 1e-5
# Of a probability and of a correlation of the binary copula.
LEVEL_TOLERANCE = 1e-6
CORRELATION_TOLERANCE = 1e-4
# Of held-out errors relative to independence, which choices are made by.
_GAIN_TOLERANCE = 1e-3
_CHOICES = ("kind", "shrinkage", "start_sd", "steps", "components", "rank", "fits")


def check_copula(model: Model, progress: Progress = SILENT) -> Check:
    """Fit the model again and compare."""
    again = fit_tables(model.measured, method=_method(model), progress=progress)
    told, note = _told(model.settings, again.settings), ""
    copula = again.copula
    if told == "other choices":
        copula, told = _with_choices(model, progress), ""
        note = "; with the choices that the file states, which this machine would not make"
    if told:
        return Check(name="refit", passed=False, detail=told)
    worst = distances(model.copula, copula)
    far = [f"{what} by {apart:.2g}, more than {limit:g}" for what, (apart, limit) in worst.items() if not apart <= limit]
    if far:
        return Check(name="refit", passed=False, detail=f"the copula does not follow from the tables: {far[0]}{note}")
    seen = ", ".join(f"{what} within {apart:.1g}" for what, (apart, _) in worst.items())
    return Check(name="refit", passed=True, detail=f"the copula follows from the tables: {seen}{note}")


def _method(model: Model) -> Method:
    name, paper = model.settings["method"], model.settings["preset"] == "paper"
    return Method(name=cast(MethodName, name), paper=paper, dummies=model.copula.dummies)


def _told(stated: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """What the settings of a file say wrongly of its fit: nothing, 'other choices', or what."""
    if stated.keys() != found.keys():
        return "the settings are not those of this fit"
    if any(stated.get(key) != found.get(key) for key in _CHOICES):
        return "other choices"
    if stated.get("priors") != found.get("priors"):
        return "the settings name other priors than the tables do"
    gains = [
        ([each["gain_over_independence"], *(trial["gain"] for trial in each["tried"])] if "tried" in each else [])
        for each in (stated, found)
    ]
    if len(gains[0]) != len(gains[1]) or any(abs(a - b) > _GAIN_TOLERANCE for a, b in zip(*gains, strict=True)):
        return "the settings state other held-out errors than the tables give"
    return ""


def _with_choices(model: Model, progress: Progress) -> Copula:
    """The latent model that the stated choices give."""
    settings, estimates = model.settings, pool(model.measured.stages)
    margins = denoise_margins(estimates)
    if settings["kind"] == "independence":
        return hold_margins(independent(model.measured_schema, margins.levels))
    start = Start(kind=settings["kind"], components=settings["components"], sd=settings["start_sd"])
    fitted = fit_latent(
        denoise_tables(estimates, margins.levels),
        model.measured_schema,
        settings["shrinkage"],
        start,
        steps=settings["steps"],
        fits=settings["fits"],
        progress=progress,
    )
    return hold_margins(fitted)


def distances(one: Copula, other: Copula) -> dict[str, tuple[float, float]]:
    """How far two copulas are apart, each distance with its limit; infinite where they cannot be compared."""
    if isinstance(one, LatentModel) and isinstance(other, LatentModel):
        if one.probabilities.shape != other.probabilities.shape:
            return {"components": (np.inf, 0.0)}
        return {
            "components": (_largest(one.probabilities, other.probabilities), COMPONENT_TOLERANCE),
            "pairs of levels": (_largest(one.predict_pairs(), other.predict_pairs()), PAIR_TOLERANCE),
        }
    if not isinstance(one, BinaryCopula) or not isinstance(other, BinaryCopula) or one.dummies != other.dummies:
        return {"kind of model": (np.inf, 0.0)}
    return {
        "levels": (_largest(one.levels, other.levels), LEVEL_TOLERANCE),
        "cut points": (_largest(_finite(one.cuts), _finite(other.cuts)), CORRELATION_TOLERANCE),
        "correlations": (_largest(one.factor @ one.factor.T, other.factor @ other.factor.T), CORRELATION_TOLERANCE),
        "repairs": (float(one.repairs.clipped_pairs != other.repairs.clipped_pairs), 0.0),
    }


def _finite(cuts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cut points, where those of levels that nobody has are as far out as any."""
    return np.clip(cuts, -40.0, 40.0)


def _largest(one: NDArray[np.floating[Any]], other: NDArray[np.floating[Any]]) -> float:
    apart = np.abs(one - other).max(initial=0.0)
    return float(apart) if np.isfinite(apart) else np.inf
