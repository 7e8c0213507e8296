"""A model file against its certificate: what it cost, recomputed from its parts by another path (`trust.exact`).

What this cannot show: that the noise was really drawn. For that, see `audit` and the code.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sklar.budget.certificate import Certificate
from sklar.budget.search import search_spend
from sklar.errors import SklarError
from sklar.files.archive import load
from sklar.files.model import Model
from sklar.kernel.tables import NoisyTables
from sklar.kernel.theorems import MAX_SCALE, MIN_SCALE, Budget, Spend
from sklar.trust.exact import TOLERANCE, exact_epsilon


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
    known = {tables.n_rows for tables in model.measured.stages} | {stated.public_rows}
    totals = [tables.total for tables in model.measured.stages if tables.total is not None]
    scales = [tables.plan.total for tables in model.measured.stages if tables.plan.total is not None]
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
        for stage, tables in enumerate(model.measured.stages, start=1)
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
    cells = model.measured_schema.cells
    for tables in model.measured.stages:
        scales = np.array([scale for group in _scales(tables) for scale in group])
        if not ((scales >= MIN_SCALE) & (scales <= MAX_SCALE)).all():
            return Check(name="arrays", passed=False, detail="a noise scale is not one that can be drawn exactly")
        if tables.one_way.size not in (0, cells.n_levels) or tables.pairs.size not in (0, cells.n_cells):
            return Check(name="arrays", passed=False, detail="tables do not cover the public domain")
    size = sum(tables.one_way.size + tables.pairs.size for tables in model.measured.stages)
    return Check(name="arrays", passed=True, detail=f"{size:,} noisy cells cover the public domain, whole numbers all")


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
    scales = np.array([scale for tables in model.measured.stages for group in _scales(tables) for scale in group])
    spend = search_spend(stated.domains) + Spend.of(scales)
    budget = Budget(
        epsilon=stated.epsilon,
        delta=stated.delta,
        neighbors=stated.neighbors,
        mechanism=stated.mechanism,
        composition=stated.composition,
    )
    shifts = 2 if stated.neighbors == "replace-one" else 1
    claimed, lost = budget.spent(spend), spend.lost_delta
    # A threshold that fails costs its chance of delta, and of the odds the rest of all chances.
    independent = exact_epsilon(
        stated.mechanism, spend.scales, spend.tables * shifts, stated.delta - lost
    ) - math.log1p(-lost)
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
