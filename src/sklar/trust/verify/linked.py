"""A model file of linked tables, checked as a stranger would: what it cost, and that its tables of people hold noise.

Tables with events are shares that were rounded to tokens (`kernel.tokens`): two of them that speak of one number differ
by rounding, too, so that their noise is not tested. The tables of people alone are counts, as those of any model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sklar.budget.certificate import rounded_up
from sklar.budget.views import NoisyTables, Scales
from sklar.errors import SklarError
from sklar.files.linked import LinkedModel, describe_linked, linked_arrays, load_linked
from sklar.fitting.classes import fit_classes
from sklar.kernel.theorems import round_up_scale
from sklar.machine.progress import SILENT, Progress
from sklar.trust.exact import TOLERANCE, exact_epsilon
from sklar.trust.verify.layout import check_bytes
from sklar.trust.verify.noise import FALSE_ALARM, LEAST_SCALE, NoiseTest, examine
from sklar.trust.verify.result import Check, Verification

# Fits on other machines differ in their last digits, and descent lets these grow a little.
_CLOSE = 1e-3


def verify_linked(path: str | Path, *, refit: bool = False, progress: Progress = SILENT) -> Verification:
    """Check a model file of linked tables; a file that cannot be read as one fails too. See `verify`."""
    try:
        model = load_linked(path)
    except SklarError as error:
        failed = Check(name="format", passed=False, detail=str(error))
        return Verification(path=str(path), checks=(failed,), certificate=None)
    known = "members, keys, types and sizes are those of a model of linked tables and no other"
    checks = [Check(name="format", passed=True, detail=known), _layout(Path(path), model)]
    stated = model.certificate
    people = (
        f"{model.n_people:,}, public" if stated.public_people is not None else f"about {model.n_people:,}, by noise"
    )
    cells = sum(counts.size for counts in model.measured.counts)
    checks += [
        Check(name="schema", passed=True, detail=f"hash {stated.schema_sha256}"),
        Check(name="people", passed=True, detail=f"{people}; the unit is a person with all events"),
        Check(name="measurements", passed=True, detail=f"{model.measured.plan.scales.size:,} tables, {cells:,} cells"),
        _scales(model),
    ]
    independent, totals = _totals(model)
    tests = _noise_tests(model)
    checks += [*totals, _noise(tests)]
    if refit and all(check.passed for check in checks):
        checks.append(_refitted(model, progress))
    return Verification(
        path=str(path),
        checks=tuple(checks),
        certificate=stated,
        independent_epsilon=independent,
        noise=tuple(tests),
    )


def _layout(path: Path, model: LinkedModel) -> Check:
    try:
        detail = check_bytes(path, describe_linked(model), list(linked_arrays(model)))
    except (SklarError, OSError) as error:
        return Check(name="layout", passed=False, detail=str(error))
    return Check(name="layout", passed=True, detail=detail)


def _refitted(model: LinkedModel, progress: Progress) -> Check:
    """Fit the model again: nothing but what follows from the noisy tables may be in it."""
    classes, settings = fit_classes(model.measured, progress=progress)
    same = settings["steps"] == model.settings["steps"] and settings.keys() == model.settings.keys()
    found, wanted = model.classes.arrays(), classes.arrays()
    away = [
        float(np.mean(abs(found[name] - wanted[name]))) if found[name].shape == wanted[name].shape else 1.0
        for name in wanted
    ]
    passed = same and max(away) <= _CLOSE
    return Check(name="refit", passed=passed, detail=f"a fit of the same tables differs by {max(away):.1g} on average")


def _scales(model: LinkedModel) -> Check:
    scales, tokens = model.measured.plan.scales, model.measured.plan.tokens
    if (round_up_scale(scales) != scales).any() or tokens & (tokens - 1):
        return Check(name="arrays", passed=False, detail="a noise scale has more digits than the sampler draws")
    return Check(name="arrays", passed=True, detail=f"scales can be drawn exactly, in {tokens:,} parts of a person")


def _totals(model: LinkedModel) -> tuple[float, list[Check]]:
    """What the tables cost, by the theorems with every rounding outward, and numerically; both within the claim."""
    stated, budget = model.certificate, model.certificate.budget
    spend = model.measured.plan.spend(budget)
    claimed = budget.spent(spend)
    independent = exact_epsilon(stated.mechanism, spend.scales / spend.reach, spend.moves, stated.delta)
    epsilon = rounded_up(stated.epsilon, 6)
    return independent, [
        Check(
            name="theorem",
            passed=claimed <= stated.epsilon,
            detail=f"all tables cost epsilon {rounded_up(claimed, 6)} together; {epsilon} is stated",
        ),
        Check(
            name="independent",
            passed=independent <= stated.epsilon * (1 + TOLERANCE),
            detail=f"numerically they cost epsilon {independent:.6g} at delta {rounded_up(stated.delta, 3)}",
        ),
    ]


def _noise_tests(model: LinkedModel) -> list[NoiseTest]:
    measured, schema = model.measured, model.linked.people

    def of_kind(kind: str) -> list[int]:
        return [place for place, table in enumerate(measured.plan.tables) if table.kind == kind]

    one_way, pairs, total = of_kind("person"), of_kind("person-person"), of_kind("people")
    stage = NoisyTables(
        cells=schema.cells,
        mechanism=model.certificate.mechanism,
        n_rows=model.certificate.public_people,
        total=int(measured.counts[total[0]][0]) if total else None,
        one_way=np.concatenate([measured.counts[place] for place in one_way]),
        pairs=np.concatenate([np.empty(0, dtype=np.int64), *(measured.counts[place] for place in pairs)]),
        plan=Scales(
            one_way=measured.plan.scales[one_way],
            pairs=measured.plan.scales[pairs],
            total=float(measured.plan.scales[total[0]]) if total else None,
        ),
    )
    return examine([stage], schema)


def _noise(tests: Sequence[NoiseTest]) -> Check:
    if not tests:
        detail = f"not tested: some of it is stated below scale {LEAST_SCALE:g}, where an epsilon promises little"
        return Check(name="noise", passed=True, detail=detail)
    failed = next((test for test in tests if not test.passed), None)
    if failed is not None:
        seen = f"{failed.name}: {failed.seen}; genuine noise looks so with a chance of {failed.chance:.1g}"
        return Check(name="noise", passed=False, detail=seen)
    detail = (
        f"{len(tests)} tests of the tables of people, which fail a genuine file less than once in "
        f"{1 / FALSE_ALARM:,.0f}; tables with events are not tested"
    )
    return Check(name="noise", passed=True, detail=detail)
