"""The accountant against the paper's figures, brute force, high precision, and Google's dp-accounting."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from sklar.errors import BudgetError
from sklar.kernel import theorems as accountant
from sklar.kernel.theorems import DEFAULT_DELTA, Budget, Spend, cost, curve_epsilon, gaussian_epsilon, gdp_delta

KINDS: Any = [("gaussian", "tight"), ("laplace", "tight"), ("laplace", "advanced"), ("laplace", "basic")]


def array(*values: float) -> Any:
    return np.array(values)


@pytest.mark.parametrize(("m", "each"), [(14, 0.014782), (27, 0.007791), (9, 0.022579)])
def test_the_papers_formula_gives_the_papers_figures(m: int, each: float) -> None:
    k = m + m * (m - 1) // 2
    scale = Budget(epsilon=1.0, mechanism="laplace", composition="advanced").scales(np.ones(k))[0]
    assert math.floor(2 / scale * 1e6) / 1e6 == each


# Standard deviations at epsilon 1, delta 2^-30: advanced composition, discrete Laplace, zCDP, Gaussian curve.
@pytest.mark.parametrize(("k", "paper", "laplace", "zcdp", "gaussian"), [
    (45, 125.3, 71.9, 54.9, 52.2), (105, 191.3, 111.6, 83.9, 79.8), (378, 363.0, 213.5, 159.2, 151.4),
    (500_500, 13_208.0, 7_792.0, 5_793.0, 5_510.0), (2_001_000, 26_408.0, 15_580.0, 11_584.0, 11_017.0),
])  # fmt: skip
def test_standard_deviations(k: int, paper: float, laplace: float, zcdp: float, gaussian: float) -> None:
    weights = np.ones(k)
    advanced = Budget(epsilon=1.0, mechanism="laplace", composition="advanced").scales(weights)[0] * math.sqrt(2)
    tight = Budget(epsilon=1.0, mechanism="laplace").scales(weights)[0] * math.sqrt(2)
    curve = Budget(epsilon=1.0).scales(weights)[0]
    assert advanced == pytest.approx(paper, rel=2e-3)
    assert tight == pytest.approx(laplace, rel=2e-3)
    assert curve == pytest.approx(gaussian, rel=2e-3)
    assert accountant.zcdp_epsilon(k / zcdp**2, DEFAULT_DELTA) == pytest.approx(1.0, rel=2e-3)


@settings(max_examples=60, deadline=None)
@given(
    epsilon=st.floats(0.01, 20),
    delta=st.floats(1e-12, 1e-3),
    tables=st.integers(1, 500),
    neighbors=st.sampled_from(["replace-one", "add-remove"]),
    rows=st.sampled_from([None, 1, 8]),
    kind=st.sampled_from(KINDS),
    ratio=st.floats(0.2, 5),
)
def test_scales_and_spent_are_inverse(
    epsilon: float, delta: float, tables: int, neighbors: Any, rows: int | None, kind: Any, ratio: float
) -> None:
    settings: Any = {"neighbors": neighbors, "mechanism": kind[0], "composition": kind[1], "rows_per_person": rows}
    budget = Budget(epsilon=epsilon, delta=delta, **settings)
    weights = np.concatenate([np.ones(tables), np.full(tables // 2, ratio)])
    scales = budget.scales(weights)
    assert budget.spent(budget.tables(scales)) <= epsilon
    # Not only safe but tight: two percent less noise would overspend.
    assert budget.spent(budget.tables(scales * 0.98)) > epsilon
    np.testing.assert_allclose(scales / weights, scales[0], rtol=1e-6)


def test_a_scale_is_rounded_up_to_what_the_sampler_draws_exactly() -> None:
    values = np.concatenate([np.geomspace(1e-3, 1e7, 1000), [1.0, 2.0**24]])
    rounded = accountant.round_up_scale(values)
    assert (rounded >= values).all()
    assert (rounded <= values * (1 + 2.0**-22)).all()
    assert (rounded.astype(np.float32) == rounded).all()
    assert accountant.round_up_scale(1.5) == 1.5


def brute_laplace_delta(epsilon: float, shifts: list[tuple[float, int]]) -> float:
    """Sum over every outcome of every unit shift's two-valued loss."""
    losses = [1 / scale for scale, count in shifts for _ in range(count)]
    delta = 0.0
    for signs in product((1, -1), repeat=len(losses)):
        loss = sum(sign * each for sign, each in zip(signs, losses, strict=True))
        chance = math.prod(1 / (1 + math.exp(-sign * each)) for sign, each in zip(signs, losses, strict=True))
        delta += chance * max(0.0, 1 - math.exp(epsilon - loss))
    return delta


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0, 2.5])
@pytest.mark.parametrize("shifts", [[(3.0, 8)], [(1.0, 4), (2.5, 8)], [(0.7, 3)]])
def test_laplace_delta_equals_the_sum_over_all_outcomes(epsilon: float, shifts: list[tuple[float, int]]) -> None:
    scales = np.array([scale for scale, _ in shifts])
    counts = np.array([count for _, count in shifts])
    assert accountant.laplace_delta(epsilon, scales, counts) == pytest.approx(
        brute_laplace_delta(epsilon, shifts), abs=1e-11
    )


def true_delta(mechanism: str, moves: Sequence[tuple[float, int]], epsilon: float) -> float:
    """The delta of cells with noise of these scales that are shifted by so much, by enumeration of all outcomes."""
    chances, losses = np.ones(1), np.zeros(1)
    for scale, shift in moves:
        reach = int((14 if mechanism == "gaussian" else 60) * scale) + abs(shift)
        both = np.arange(-reach, reach + 1) - np.array([[0], [shift]])
        here, there = -(both**2) / (2 * scale**2) if mechanism == "gaussian" else -np.abs(both) / scale
        mass = np.exp(here) / np.exp(here).sum()
        chances, losses = np.outer(chances, mass).ravel(), np.add.outer(losses, here - there).ravel()
    return float(np.sum(chances * np.maximum(0.0, -np.expm1(epsilon - losses))))


def test_the_two_valued_loss_is_that_of_the_discrete_laplace_distribution() -> None:
    direct = true_delta("laplace", [(2.0, 1)], 0.2)
    assert accountant.laplace_delta(0.2, array(2.0), np.array([1])) == pytest.approx(direct, rel=1e-9)


@pytest.mark.parametrize("shifts", [4_002_000, 4_000])
def test_laplace_delta_at_high_precision(shifts: int) -> None:
    """The incomplete beta function is trusted to a million compositions: compare with a 40-digit sum."""
    scale = Budget(epsilon=1.0, mechanism="laplace").scales(np.ones(shifts // 2))[0]
    with mpmath.workdps(40):
        up = 1 / (1 + mpmath.exp(-1 / mpmath.mpf(float(scale))))
        first = math.floor((1.0 * float(scale) + shifts) / 2) + 1
        total = mpmath.mpf(0)
        for success in range(first, shifts + 1):
            chance = mpmath.binomial(shifts, success) * up**success * (1 - up) ** (shifts - success)
            loss = (2 * success - shifts) / mpmath.mpf(float(scale))
            term = chance * (1 - mpmath.exp(1 - loss))
            total += term
            if success > first + 10 and term < total * mpmath.mpf(10) ** -12:
                break
    ours = accountant.laplace_delta(1.0, array(scale), np.array([shifts]))
    assert ours == pytest.approx(float(total), rel=1e-6)
    assert ours <= DEFAULT_DELTA


@pytest.mark.parametrize(("epsilon", "mu"), [(0.01, 0.05), (1.0, 0.18), (5.0, 1.0), (30.0, 6.0), (1e-4, 1e-4)])
def test_gaussian_curve_at_high_precision(epsilon: float, mu: float) -> None:
    with mpmath.workdps(50):
        exact = mpmath.ncdf(mpmath.mpf(mu) / 2 - mpmath.mpf(epsilon) / mu) - mpmath.exp(epsilon) * mpmath.ncdf(
            -mpmath.mpf(mu) / 2 - mpmath.mpf(epsilon) / mu
        )
    ours = gdp_delta(epsilon, mu)
    assert ours >= float(exact)
    assert ours == pytest.approx(float(exact), rel=1e-5, abs=1e-12)


def pld_epsilon(event: dp_event.DpEvent, count: int, delta: float) -> float:
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(event, count)
    return float(accountant.get_epsilon(delta))


@pytest.mark.parametrize(("shifts", "sigma", "scale"), [(90, 52.3, 50.8), (210, 79.8, 78.9), (2_000, 60.0, 300.0)])
def test_epsilons_against_dp_accounting(shifts: int, sigma: float, scale: float) -> None:
    # Ours pays for discreteness (variance sigma^2 - 4) and is never below the continuous truth.
    theirs = pld_epsilon(dp_event.GaussianDpEvent(sigma), shifts, DEFAULT_DELTA)
    assert gaussian_epsilon(array(sigma), np.array([shifts]), DEFAULT_DELTA) == pytest.approx(theirs, rel=3e-3)
    # Their Laplace noise is continuous; a unit shift of the discrete one loses the same at most, and less inside.
    theirs = pld_epsilon(dp_event.LaplaceDpEvent(scale), shifts, DEFAULT_DELTA)
    assert accountant.laplace_epsilon(array(scale), np.array([shifts]), DEFAULT_DELTA) == pytest.approx(
        theirs, rel=2e-2
    )


@pytest.mark.parametrize(("most", "sigma", "tables"), [(4, 300.0, 105), (8, 640.0, 21)])
def test_gaussian_noise_for_l_rows_is_what_the_accountants_say(most: int, sigma: float, tables: int) -> None:
    budget = Budget(epsilon=1.0, neighbors="add-remove", rows_per_person=most)
    theirs = pld_epsilon(dp_event.GaussianDpEvent(sigma / most), tables, DEFAULT_DELTA)
    assert budget.spent(budget.tables([sigma], [tables])) == pytest.approx(theirs, rel=0.01)
    assert budget.spent(Spend.of([sigma], [tables])) < theirs / 2


def test_the_gaussian_curve_holds_for_the_discrete_gaussian_itself() -> None:
    """The theorem's claim, computed: delta of the exact discrete Gaussian at mixed scales."""
    exact = true_delta("gaussian", [(5.0, 1), (8.0, 1), (5.0, 1)], 0.9)
    assert 0.9 <= gaussian_epsilon(array(5.0, 8.0), array(2.0, 1.0), exact) == pytest.approx(0.9, rel=0.12)


def test_the_simulation_behind_the_gaussian_theorem() -> None:
    """A discrete Gaussian is a blurred continuous one: the proof's two-step draw, integrated numerically."""
    with mpmath.workdps(60):
        sigma2, s2, x = mpmath.mpf(9), mpmath.mpf(4), 0
        tau2 = sigma2 - s2
        total = mpmath.fsum(mpmath.exp(-(mpmath.mpf(z) ** 2) / (2 * sigma2)) for z in range(-60, 61))
        for z in (0, 1, 5):

            def integrand(y: mpmath.mpf, z: int = z) -> mpmath.mpf:
                centre = int(y)
                normalizer = mpmath.fsum(
                    mpmath.exp(-((k - y) ** 2) / (2 * s2)) for k in range(centre - 30, centre + 31)
                )
                density = mpmath.exp(-((y - x) ** 2) / (2 * tau2)) / mpmath.sqrt(2 * mpmath.pi * tau2)
                return density * mpmath.exp(-((z - y) ** 2) / (2 * s2)) / normalizer

            # The trapezoidal rule on a smooth, decaying integrand.
            step = mpmath.mpf(1) / 3
            two_step = step * mpmath.fsum(integrand(step * k) for k in range(-130, 131))
            discrete = mpmath.exp(-(mpmath.mpf(z) ** 2) / (2 * sigma2)) / total
            assert abs(mpmath.log(two_step / discrete)) < mpmath.mpf("4e-34")


def test_zcdp_is_the_bound_of_small_scales_and_never_below_the_gaussian_truth() -> None:
    epsilon = gaussian_epsilon(array(1.5), np.array([2]), 1e-6)
    assert epsilon == accountant.zcdp_epsilon(cost("gaussian", Spend.of([1.5], 2)).rho, 1e-6)
    for rho in (1e-3, 0.1, 2.0):
        assert gdp_delta(accountant.zcdp_epsilon(rho, 1e-8), math.sqrt(2 * rho)) <= 1e-8


def test_advanced_and_basic_composition_by_hand() -> None:
    by_hand = math.sqrt(2 * 10 * math.log(1e6)) * 0.1 + 10 * 0.1 * (math.exp(0.1) - 1)
    assert accountant.advanced_epsilon([0.1], [10], 1e-6) == pytest.approx(by_hand)
    assert accountant.advanced_epsilon([0.1, 0.1], [4, 6], 1e-6) == pytest.approx(by_hand)
    budget = Budget(epsilon=1.0, mechanism="laplace", composition="basic")
    assert budget.spent(budget.tables([4.0, 4.0])) == pytest.approx(1.0)
    assert replace(budget, neighbors="add-remove").spent(Spend.of([4.0])) == pytest.approx(0.25)


REFUSED = tomllib.loads(Path(__file__).with_name("budgets.toml").read_text())["cases"]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_budgets_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BudgetError, match=message):
        Budget(**{"epsilon": 1.0, **settings})


def test_noise_that_cannot_be_drawn_or_counted_is_refused() -> None:
    with pytest.raises(
        BudgetError, match=f"above the largest that can be drawn exactly \\({accountant.MAX_SCALE:.0f}\\)"
    ):
        Budget(epsilon=1e-7).scales(np.ones(105))
    with pytest.raises(BudgetError, match="at most two different scales, got 3"):
        Budget(epsilon=1.0, mechanism="laplace").spent(Spend.of([1.0, 2.0, 3.0], 2))


@pytest.mark.parametrize(("mechanism", "composition"), KINDS)
def test_tables_may_be_given_in_groups(mechanism: Any, composition: Any) -> None:
    budget = Budget(epsilon=1.0, mechanism=mechanism, composition=composition)
    one_by_one = budget.spent(budget.tables([30.0, 40.0, 30.0, 40.0, 30.0]))
    assert budget.spent(budget.tables([30.0, 40.0], [3, 2])) == one_by_one
    assert budget.spent(budget.tables([40.0, 30.0, 30.0], [2, 1, 2])) == one_by_one
    assert budget.spent(budget.tables(30.0, 3)) == budget.spent(budget.tables([30.0] * 3)) < one_by_one
    assert budget.spent(budget.tables([])) == 0.0


@pytest.mark.parametrize(("mechanism", "composition"), KINDS)
def test_what_is_remembered_belongs_to_its_sensitivity_and_its_delta(
    monkeypatch: pytest.MonkeyPatch, mechanism: Any, composition: Any
) -> None:
    """The same scales asked again under other neighbors or another delta are another question."""
    kind: Any = {"epsilon": 1.0, "mechanism": mechanism, "composition": composition}
    scales = [35.0] * 40
    two, one = (
        own.spent(own.tables(scales))
        for own in (Budget(neighbors=neighbors, **kind) for neighbors in ("replace-one", "add-remove"))
    )
    assert two > 1.3 * one
    assert two == Budget(**kind).spent(Budget(**kind).tables(scales))
    if composition != "basic":
        assert Budget(delta=1e-3, **kind).spent(Budget(**kind).tables(scales)) < 0.8 * two
    monkeypatch.setattr(Budget, "shifts", 1)
    assert Budget(**kind).spent(Budget(**kind).tables(scales)) == one


def test_memory_is_bounded() -> None:
    before = accountant._compose.cache_info()
    assert before.maxsize == 1_024
    Budget(epsilon=1.0).spent(Spend.of(np.linspace(50.0, 60.0, 5_000)))
    assert accountant._compose.cache_info().currsize == before.currsize


def test_the_curve_has_one_home() -> None:
    scales, shifts = array(60.0, 80.0), np.array([10, 200])
    mu_squared = cost("gaussian", Spend.of(scales, shifts)).mu_squared
    assert curve_epsilon(mu_squared, DEFAULT_DELTA) == gaussian_epsilon(scales, shifts, DEFAULT_DELTA)
    assert gdp_delta(curve_epsilon(mu_squared, 1e-6), math.sqrt(mu_squared)) <= 1e-6
    assert gdp_delta(0.999 * curve_epsilon(mu_squared, 1e-6), math.sqrt(mu_squared)) > 1e-6
    # A curve that starts below delta costs nothing.
    assert curve_epsilon(1e-20, 1e-6) == 0.0


def _exact_sum(scales: Any, shifts: Any, each: Any) -> Any:
    return mpmath.fsum(int(u) * each(mpmath.mpf(float(b))) for b, u in zip(scales, shifts, strict=True))


def _true_epsilons(scales: Any, shifts: Any, delta: float) -> dict[str, Any]:
    """By 50-digit arithmetic: what every sum and every conversion would give without any rounding."""
    rho = _exact_sum(scales, shifts, lambda b: 1 / (2 * b**2))
    mu = mpmath.sqrt(_exact_sum(scales, shifts, lambda b: 1 / (b**2 - 4)))
    squares = _exact_sum(scales, shifts, lambda b: b**-2)
    drift = _exact_sum(scales, shifts, lambda b: (mpmath.exp(1 / b) - 1) / b)
    d = mpmath.mpf(delta)

    def bound(alpha: Any) -> Any:
        return rho * alpha + mpmath.log(1 - 1 / alpha) - mpmath.log(d * alpha) / (alpha - 1)

    # The conversion takes the best of 12,001 values of alpha; each is a theorem.
    centre = mpmath.sqrt(mpmath.log(1 / d) / rho)
    best = min(bound(1 + centre * mpmath.exp(step / mpmath.mpf(1000))) for step in range(-300, 301))

    def curve(epsilon: Any) -> Any:
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu) - d

    low, high = mpmath.mpf(0), 20 * mu + 20 * mu**2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if curve(middle) > 0 else (low, middle)
    return {
        "zcdp": best,
        "curve": low,
        "basic": _exact_sum(scales, shifts, lambda b: 1 / b),
        "advanced": mpmath.sqrt(2 * mpmath.log(1 / d) * squares) + drift,
    }


@pytest.mark.parametrize(
    ("scales", "shifts"), [([79.8], [210]), ([40.0, 90.5], [28, 182]), ([2.5], [1]), ([3.1, 5.7, 11.3], [6, 30, 9])]
)
@pytest.mark.parametrize("delta", [2.0**-30, 1e-5])
def test_no_conversion_states_less_than_it_costs(scales: Any, shifts: Any, delta: float) -> None:
    """Not by one unit of the last digit; and never more than a hair above."""
    spend = Spend.of(scales, shifts)
    with mpmath.workdps(50):
        true = _true_epsilons(scales, shifts, delta)
        once = Budget(epsilon=1.0, delta=delta, neighbors="add-remove", mechanism="laplace", composition="basic")
        stated = {
            "zcdp": accountant.zcdp_epsilon(cost("gaussian", spend).rho, delta),
            "curve": curve_epsilon(cost("gaussian", spend).mu_squared, delta),
            "basic": once.spent(spend),
            "advanced": accountant.advanced_epsilon(1 / spend.scales, spend.moves, delta),
        }
        for name, value in stated.items():
            above = mpmath.mpf(value) / true[name] - 1
            assert 0 < above < (1e-6 if name == "zcdp" else 1e-9), (name, above)
            # A statement that is one unit of the last digit too low would be seen.
            assert mpmath.mpf(math.nextafter(float(true[name]), 0)) < true[name]


def test_sums_and_chances_are_rounded_up() -> None:
    spend = Spend.of([79.3, 80.1, 12.7], [91, 14, 3])
    groups = list(zip(spend.scales.tolist(), spend.moves.tolist(), strict=True))
    with mpmath.workdps(50):
        found = cost("gaussian", Spend.of(spend.scales, 2 * spend.moves))
        rho = mpmath.fsum(2 * u / (2 * mpmath.mpf(b) ** 2) for b, u in groups)
        mu_squared = mpmath.fsum(2 * u / (mpmath.mpf(b) ** 2 - 4) for b, u in groups)
        assert rho < found.rho < rho * (1 + mpmath.mpf(1e-9))
        assert mu_squared < found.mu_squared < mu_squared * (1 + mpmath.mpf(1e-9))
        for epsilon in (1e-3, 0.1, 1.0, 5.0):
            mu = mpmath.mpf(accountant.pure_mu(epsilon))
            wrong = mpmath.exp(-epsilon) / (1 + mpmath.exp(-epsilon))
            assert mpmath.ncdf(-mu / 2) < wrong < mpmath.ncdf(-mu / 2 * (1 - mpmath.mpf(1e-8)))
        scale, threshold = 10.0, 65
        tail = mpmath.ncdf(-mpmath.mpf(threshold - 2) / scale)
        assert tail < accountant.chance_of_one(scale, threshold) < tail * (1 + mpmath.mpf(1e-9))


def test_what_a_threshold_takes_is_rounded_against_the_release() -> None:
    """The delta and the epsilon that are left are rounded down, and what is spent is rounded up."""
    budget, lost = Budget(epsilon=1.0, delta=1e-9), 1e-10 / 3
    left = budget.less(lost)
    with mpmath.workdps(50):
        assert left.delta < mpmath.mpf(budget.delta) - mpmath.mpf(lost) < left.delta * (1 + mpmath.mpf(1e-9))
        rest = budget.epsilon + mpmath.log(1 - mpmath.mpf(lost))
        assert left.epsilon < rest < left.epsilon * (1 + mpmath.mpf(1e-9))
    assert budget.less(0.0) == budget
    spend = budget.tables([80.0], [210], lost)
    alone = gaussian_epsilon(spend.scales, spend.moves, left.delta)
    with mpmath.workdps(50):
        assert budget.spent(spend) > mpmath.mpf(alone) - mpmath.log(1 - mpmath.mpf(lost))
