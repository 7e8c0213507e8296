"""A model file against its certificate: what it cost, recomputed from its parts by another path than `budget`'s.

`exact_epsilon` knows nothing of zCDP, of the Gaussian curve, of incomplete beta functions: it inverts the Laplace
transform of the privacy loss of the discrete noise itself (Gaussian), or adds up the loss's probabilities one by one
(Laplace). It is the true epsilon of the measurements, to a stated tolerance; a sound certificate states no less.

What this cannot show: that the noise was really drawn. For that, see `audit` and the code.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import Certificate, NoisyTables, above_diagonal, spent_with
from sklar.budget.search import search_scales
from sklar.errors import SklarError
from sklar.files.model import Model, load
from sklar.kernel.theorems import MAX_SCALE, MIN_SCALE, Budget

# Relative error that is allowed to the independent epsilon.
TOLERANCE = 1e-3
# Below this scale the sum over the whole numbers is taken as it is; above, it is an integral to 1e-70.
_DIRECT = 3.0
_MOST_POINTS = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """All that was looked at in one model file."""

    path: str
    checks: tuple[Check, ...]
    certificate: Certificate | None
    independent_epsilon: float | None

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts the certificate."""
        return all(check.passed for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "path": self.path,
            "passed": self.passed,
            "independent_epsilon": self.independent_epsilon,
            "checks": [asdict(check) for check in self.checks],
            "certificate": None if self.certificate is None else self.certificate.to_dict(),
        }

    def lines(self) -> list[str]:
        """For a person."""
        lines = [f"{'ok  ' if check.passed else 'FAIL'} {check.name}: {check.detail}" for check in self.checks]
        if not self.passed or self.certificate is None:
            return [*lines, "", f"{self.path} contradicts its certificate. Do not rely on its privacy claim."]
        stated = self.certificate
        if stated.claimed_by is not None:
            return [
                *lines,
                "",
                f"{self.path} was fitted to tables that Sklar did not measure. Its parts agree with one another.",
                "Whether its tables were measured with the noise that they state, and cost epsilon = "
                f"{stated.spent_epsilon:.4g} at delta = {stated.delta:.3g},",
                f"is claimed by the caller ('{stated.claimed_by}') and was not checked.",
            ]
        if stated.neighbors == "replace-one":
            whom = "what any one row holds (the number of rows is public)"
        else:
            whom = "whether any one row is in the table"
        odds = math.exp(min(stated.spent_epsilon, 700.0))
        return [
            *lines,
            "",
            f"{self.path} agrees with its certificate. If its noise was drawn as it says (sklar audit tests the code",
            f"that does), then whoever sees it, with any other knowledge, learns little about {whom}:",
            f"no conclusion becomes more than {odds:.4g} times as likely, or as unlikely, by that row (epsilon = "
            f"{stated.spent_epsilon:.4g}),",
            f"but for a chance of {stated.delta:.3g} (delta). Rows drawn from it, however many, add nothing to that.",
            "Other releases of the same rows do add to it, and so do several rows about one person.",
        ]


def verify(path: str | Path) -> Verification:
    """Check a model file; a file that cannot be read as a model fails too."""
    try:
        model = load(path)
    except SklarError as error:
        failed = Check(name="format", passed=False, detail=str(error))
        return Verification(path=str(path), checks=(failed,), certificate=None, independent_epsilon=None)
    return verify_model(model, str(path))


def verify_model(model: Model, name: str = "the model") -> Verification:
    """Check a loaded model."""
    stated = model.certificate
    if stated.claimed_by is not None:
        return _verify_claimed(model, name)
    checks = [
        Check(name="format", passed=True, detail="arrays have the types and sizes that the schema implies"),
        Check(name="schema", passed=stated.schema_sha256 == model.schema.digest, detail=f"hash {stated.schema_sha256}"),
        _settings(stated),
    ]
    if not checks[-1].passed:
        return Verification(path=name, checks=tuple(checks), certificate=stated, independent_epsilon=None)
    checks += [_rows(model), _measurements(model), _arrays(model)]
    if stated.domains:
        checks.append(_domains(model))
    independent: float | None = None
    if all(check.passed for check in checks):
        try:
            independent, totals = _totals(model)
        except SklarError as error:
            totals = [Check(name="theorem", passed=False, detail=str(error))]
        checks += totals
    return Verification(path=name, checks=tuple(checks), certificate=stated, independent_epsilon=independent)


def _verify_claimed(model: Model, name: str) -> Verification:
    """Check a model of tables that Sklar did not measure: only that its parts agree."""
    stated = model.certificate
    checks = (
        Check(name="format", passed=True, detail="arrays have the types and sizes that the schema implies"),
        Check(name="schema", passed=stated.schema_sha256 == model.schema.digest, detail=f"hash {stated.schema_sha256}"),
        _measurements(model),
        _arrays(model),
        Check(
            name="privacy",
            passed=True,
            detail=f"claimed by the caller, not checked: epsilon {stated.spent_epsilon:.6g} at delta "
            f"{stated.delta:.3g}, {stated.neighbors} neighbors, {stated.mechanism} noise, measured by "
            f"'{stated.claimed_by}'",
        ),
    )
    return Verification(path=name, checks=checks, certificate=stated, independent_epsilon=None)


def _settings(stated: Certificate) -> Check:
    try:
        Budget(
            epsilon=float(stated.epsilon),
            delta=float(stated.delta),
            neighbors=stated.neighbors,
            mechanism=stated.mechanism,
            composition=stated.composition,
        )
        spent = float(stated.spent_epsilon)
        sound = math.isfinite(spent) and 0 <= spent <= stated.epsilon
        detail = f"{stated.neighbors} neighbors, {stated.mechanism} noise, {stated.composition} composition; " + (
            f"spent epsilon {spent:.6g} of {stated.epsilon:.6g} at delta {stated.delta:.3g}"
        )
        return Check(name="settings", passed=sound, detail=detail)
    except (SklarError, TypeError, ValueError) as error:
        return Check(name="settings", passed=False, detail=str(error))


def _rows(model: Model) -> Check:
    """The number of rows: stated in one place, public under replace-one, measured under add-remove."""
    stated = model.certificate
    known = {tables.n_rows for tables in model.measured} | {stated.public_rows}
    totals = [tables.total for tables in model.measured if tables.total is not None]
    scales = [tables.plan.total for tables in model.measured if tables.plan.total is not None]
    if stated.neighbors == "replace-one":
        passed = known == {model.n_rows} and not totals and not scales
        return Check(name="rows", passed=passed, detail=f"{model.n_rows:,}, public")
    passed = known == {None} and len(totals) == len(scales) > 0 and all(type(total) is int for total in totals)
    return Check(name="rows", passed=passed, detail="not public: measured with noise")


def _measurements(model: Model) -> Check:
    """The certificate's groups are those of the arrays of scales, stage by stage, with the right sensitivity."""
    stated = model.certificate
    shifts = 2 if stated.neighbors == "replace-one" else 1
    wanted = Counter(
        (stage, order, scale)
        for stage, tables in enumerate(model.measured, start=1)
        for order, scales in enumerate(_scales(tables))
        for scale in scales
    )
    found: Counter[tuple[int, int, float]] = Counter()
    for entry in stated.measurements:
        right = entry.sensitivity_l1 == shifts and math.isclose(entry.sensitivity_l2, math.sqrt(shifts))
        if not right or type(entry.tables) is not int or entry.tables < 1:
            return Check(name="measurements", passed=False, detail=f"stage {entry.stage} states another sensitivity")
        found[entry.stage, entry.order, entry.scale] += entry.tables
    m = model.measured_schema.n_attributes
    detail = f"{sum(found.values()):,} tables stated, {sum(wanted.values()):,} in the arrays of scales, {m} attributes"
    return Check(name="measurements", passed=found == wanted and bool(wanted), detail=detail)


def _scales(tables: NoisyTables) -> tuple[list[float], list[float], list[float]]:
    plan = tables.plan
    return ([] if plan.total is None else [plan.total]), plan.one_way.tolist(), plan.pairs.tolist()


def _arrays(model: Model) -> Check:
    """Every cell of the public domain is there, with noise that its scale makes likely."""
    where = above_diagonal(model.measured_schema)
    d = model.measured_schema.n_levels
    for tables in model.measured:
        scales = np.array([scale for group in _scales(tables) for scale in group])
        if not ((scales >= MIN_SCALE) & (scales <= MAX_SCALE)).all():
            return Check(name="arrays", passed=False, detail="a noise scale is not one that can be drawn exactly")
        if tables.one_way.size not in (0, d) or tables.pairs.size not in (0, d * d):
            return Check(name="arrays", passed=False, detail="tables do not cover the public domain")
        if tables.pairs.size and tables.pairs[~where].any():
            return Check(name="arrays", passed=False, detail="counts stand where no table is")
    cells = sum(tables.one_way.size + (int(where.sum()) if tables.pairs.size else 0) for tables in model.measured)
    return Check(name="arrays", passed=True, detail=f"{cells:,} noisy cells cover the public domain, whole numbers all")


def _domains(model: Model) -> Check:
    """Domains that were found are those of the schema, and the thresholds' chances to fail are what they are."""
    stated, schema = model.certificate, model.schema
    found = [attribute.name for attribute in schema.attributes if attribute.domain == "found"]
    # A schema whose domains were found by an earlier release spends nothing on them again.
    passed = {finding.attribute for finding in stated.domains} <= set(found) and stated.mechanism == "gaussian"
    lost = 0.0
    for finding in stated.domains:
        sound = math.isfinite(finding.scale) and finding.scale > 0 and finding.tables >= 1 and passed
        categorical = sound and schema.attribute(finding.attribute).kind == "categorical"
        if finding.threshold is None:
            passed = sound and not categorical and finding.lost_delta == 0
            continue
        passed = sound and categorical and finding.lost_delta >= _chance_of_one(finding.scale, finding.threshold)
        lost += finding.lost_delta
    passed = passed and lost < stated.delta
    detail = f"{len(stated.domains)} found with noise; a threshold fails with a chance of {lost:.3g}, part of delta"
    return Check(name="domains", passed=passed, detail=detail)


def _chance_of_one(scale: float, threshold: int) -> float:
    """P(1 + X >= threshold) of discrete Gaussian X, added up: from the threshold on, term by term, over the whole."""
    first = threshold - 1
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


def _totals(model: Model) -> tuple[float, list[Check]]:
    stated = model.certificate
    scales = np.array([scale for tables in model.measured for group in _scales(tables) for scale in group])
    lost = math.fsum(finding.lost_delta for finding in stated.domains)
    values, counts = np.unique(np.concatenate([search_scales(stated.domains), scales]), return_counts=True)
    budget = Budget(
        epsilon=stated.epsilon,
        delta=stated.delta,
        neighbors=stated.neighbors,
        mechanism=stated.mechanism,
        composition=stated.composition,
    )
    shifts = 2 if stated.neighbors == "replace-one" else 1
    claimed = spent_with(budget, stated.domains, scales)
    # A threshold that fails costs its chance of delta, and of the odds the rest of all chances.
    independent = exact_epsilon(stated.mechanism, values, counts * shifts, stated.delta - lost) - math.log1p(-lost)
    return independent, [
        Check(
            name="theorem",
            passed=math.isclose(claimed, stated.spent_epsilon, rel_tol=1e-9),
            detail=f"composition of the arrays' scales gives epsilon {claimed:.6g}, stated {stated.spent_epsilon:.6g}",
        ),
        Check(
            name="independent",
            passed=independent <= stated.spent_epsilon * (1 + TOLERANCE),
            detail=f"numerically the tables cost epsilon {independent:.6g} at delta {stated.delta:.3g}, no more than "
            f"the {stated.spent_epsilon:.6g} stated",
        ),
    ]


def exact_epsilon(mechanism: str, scales: NDArray[np.float64], shifts: Sequence[int] | Any, delta: float) -> float:
    """The epsilon at this delta of `shifts[g]` unit shifts under discrete noise of `scales[g]`, to `TOLERANCE`.

    >>> 0.99 < exact_epsilon("gaussian", np.array([79.8]), np.array([210]), 2.0**-30) < 1.001
    True
    """
    scales, shifts = np.asarray(scales, dtype=np.float64), np.asarray(shifts, dtype=np.float64)
    pure = float(np.sum(shifts / scales))

    def enough(epsilon: float) -> bool:
        if mechanism == "laplace" and scales.size <= 2:
            return _laplace_delta(epsilon, scales, shifts) <= delta
        return _transform_delta(mechanism, epsilon, scales, shifts) <= delta

    # About where a normal loss would have it: sqrt(2 ln(1/delta)) deviations.
    low, high = 0.0, max(math.sqrt(2 * math.log(1 / delta) * float(np.sum(shifts / scales**2))), 1e-9)
    while not enough(high):
        low, high = high, 2 * high
        if mechanism == "laplace" and high >= pure:
            high = pure
            break
    while high - low > TOLERANCE / 20 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _laplace_delta(epsilon: float, scales: NDArray[np.float64], shifts: NDArray[np.float64]) -> float:
    """E[(1 - e^(epsilon - L))+], one binomial probability after the other."""
    losses, chances = np.zeros(1), np.ones(1)
    for scale, count in zip(scales, shifts, strict=True):
        more, likely = _binomial_losses(scale, int(count))
        if losses.size * more.size <= 4_000_000:
            losses, chances = np.add.outer(losses, more).ravel(), np.multiply.outer(chances, likely).ravel()
            continue
        # Large: the expectation over the second group by sums from its largest loss down, for each loss of the first.
        first = np.searchsorted(more, epsilon - losses, side="right")
        above = np.append(np.cumsum(likely[::-1])[::-1], 0.0)
        tilted = np.append(np.cumsum((likely * np.exp(more[-1] - more))[::-1])[::-1], 0.0)
        return float(chances @ (above[first] - np.exp(epsilon - losses - more[-1]) * tilted[first]))
    over = losses > epsilon
    return float(np.sum(chances[over] * -np.expm1(epsilon - losses[over])))


def _binomial_losses(scale: float, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Losses (2x - count) / scale and their probabilities, those below 1e-30 left out, by ratios from the mode."""
    mode = int((count + 1) / (1 + math.exp(-1 / scale)))
    reach = int(min(count, 13 * math.sqrt(count) + 13))
    low, high = max(mode - reach, 0), min(mode + reach, count)
    x = np.arange(low, high + 1)
    steps = np.log((count - x[:-1]) / (x[:-1] + 1)) + 1 / scale
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    chances = np.exp(logs - logs.max())
    return (2 * x - count) / scale, chances / chances.sum()


def _transform_delta(mechanism: str, epsilon: float, scales: NDArray[np.float64], shifts: NDArray[np.float64]) -> float:
    """delta = 1/(2 pi i) int exp(K(z) - epsilon z) / (z (z + 1)) dz along Re z = s > 0, K = log E[exp(z L)].

    (Alghamdi et al. 2022, "The saddle-point method in differential privacy"; the line crosses at the saddle, so that
    the integrand is largest there and a tiny delta keeps its digits.)
    """
    grow = _cumulants(mechanism, scales, shifts)
    variance = float(np.sum(shifts / scales**2))

    def exponent(s: float) -> float:
        return float(grow(np.array([complex(s)]))[0].real) - epsilon * s - math.log(s * (s + 1))

    s = _minimum(exponent)
    top = exponent(s) + math.log(s * (s + 1))
    spread = 1 / math.sqrt(variance)
    step = min(s / 6, spread / 5, 2 * math.pi / (60 * math.sqrt(variance) + 2 * epsilon))
    # Losses on a lattice make the integrand come back; the larger the noise, the later and the lower.
    length = 13 * spread + 40 * s if scales.min() > _DIRECT else max(13 * spread, 2000 * s * (s + 1))
    points = int(min(length / step, _MOST_POINTS)) + 1
    total = 0.0
    for start in range(0, points, 1 << 16):
        t = (np.arange(start, min(start + (1 << 16), points)) + 0.5) * step
        z = s + 1j * t
        total += float(np.sum((np.exp(grow(z) - epsilon * z - top) / (z * (z + 1))).real))
    return math.exp(min(top, 700.0)) * total * step / math.pi


def _cumulants(mechanism: str, scales: NDArray[np.float64], shifts: NDArray[np.float64]) -> Any:
    wide = scales > _DIRECT if mechanism == "gaussian" else np.zeros(scales.size, dtype=bool)
    rho = float(np.sum(shifts[wide] / (2 * scales[wide] ** 2)))
    narrow = list(zip(scales[~wide].tolist(), shifts[~wide].tolist(), strict=True))

    def grow(z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        total = rho * z * (z + 1)
        for scale, count in narrow:
            if mechanism == "laplace":
                up = 1 / (1 + math.exp(-1 / scale))
                parts = [np.log(up) + z / scale, np.log(1 - up) - z / scale]
            else:
                # Loss (2x + 1) / (2 scale^2) at x; the tilt moves the mean by Re z, which the support must hold.
                reach = int(16 * scale + abs(float(z.real.max()))) + 2
                x = np.arange(-reach, reach + 1)
                mass = np.exp(-(x**2) / (2 * scale**2))
                logs = np.log(np.maximum(mass, 1e-300) / mass.sum())
                # All points share their real part: terms that are nothing there are nothing everywhere.
                real = logs + float(z.real.max()) * (2 * x + 1) / (2 * scale**2)
                kept = real > real.max() - 40
                pairs = zip(x[kept], logs[kept], strict=True)
                parts = [log + z * ((2 * at + 1) / (2 * scale**2)) for at, log in pairs]
            peak = np.max([part.real for part in parts], axis=0)
            inner = sum(np.exp(part - peak) for part in parts)
            total = total + count * (peak + np.log(inner))
        return np.asarray(total)

    return grow


def _minimum(value: Any) -> float:
    """Where a convex function of s > 0 is smallest, to a percent: any s is right, a good one is accurate."""
    low, high = -12.0, 14.0
    ratio = (math.sqrt(5) - 1) / 2
    while high - low > 0.01:
        one, two = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, two) if value(math.exp(one)) < value(math.exp(two)) else (one, high)
    return math.exp((low + high) / 2)
