"""Analyses in words: against numbers that NumPy finds on the coded rows, and what their intervals say."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import sklar
from sklar.answer.effects import Floats
from sklar.answer.infer import infer
from sklar.answer.infer.statistics import Records, solve
from sklar.answer.predicate import QueryError
from sklar.files.model import Model
from tests.answer.test_infer import SCHEMA, codes, exactly, frame

SCORES: Any = {"age": "midpoint", "owns": {"false": 0.0, "true": 1.0}}
AGES = np.array([24.5, 34.5, 44.5, 54.5, np.nan])


@pytest.fixture(scope="module")
def model() -> Model:
    return sklar.fit(frame(6000), SCHEMA, epsilon=4.0)


def sums(values: Floats, where: Any = slice(None)) -> float:
    """Of rows that have a value."""
    own = values[where]
    return float(own[~np.isnan(own)].mean())


def test_measures_are_those_of_the_coded_rows(model: Model) -> None:
    """With exact tables of pairs a function of one or two columns is known, to second order."""
    rows = codes(6000)
    age, men, owns, south = AGES[rows[0]], rows[1] == 1, rows[3].astype(float), rows[2] == 1
    odds = [sums(owns, men == sex) / (1 - sums(owns, men == sex)) for sex in (True, False)]
    known, counted = ~np.isnan(age), np.nan_to_num(age)
    cases = {
        "sd(age)": np.nanstd(age),
        "sum(age)": np.nansum(age),
        "mean(log(age))": sums(np.log(age)),
        "mean(age^2)": sums(age**2),
        "mean(age*owns)": sums(age * owns),
        "mean(sqrt(age)) where sex = 'Male'": sums(np.sqrt(age), men),
        "mean(age) / mean(owns)": sums(age) / sums(owns),
        "mean(age) weighted by owns": sums(age, owns == 1),
        "mean(owns) weighted by age": float(np.average(owns[known], weights=age[known])),
        "share(sex = 'Male') weighted by age": float(counted @ men / counted.sum()),
        "odds(region = 'South')": south.mean() / (1 - south.mean()),
        "ratio of odds(owns = true) by sex": odds[0] / odds[1],
        "ratio of mean(age) by sex": sums(age, men) / sums(age, ~men),
        "difference of sd(age) by sex": np.nanstd(age[men]) - np.nanstd(age[~men]),
    }
    for question, true in cases.items():
        found = infer(exactly(model), question, scores=SCORES, target="table").figures
        assert len(found) == 1, question
        assert found[0].estimate == pytest.approx(true, rel=0.01), question
        assert found[0].noise_error < 0.01 * abs(true), question
    levels = infer(exactly(model), "share(region) weighted by owns", target="table").figures
    assert levels[0].name == "region = North"
    assert levels[0].estimate == pytest.approx(np.mean(rows[2][rows[3] == 1] == 0), rel=0.01)


def test_a_quantile_ends_at_edges_that_the_rows_leave_open(model: Model) -> None:
    """Exact tables leave the bin; noisy ones as many bins as noise hides."""
    rows = codes(6000)
    age, men = AGES[rows[0]], rows[1] == 1
    median, women = np.nanmedian(age), np.nanmedian(age[~men])
    figure = infer(exactly(model), "median(age)", target="table").figures[0]
    assert (figure.low, figure.high) == (median - 4.5, median + 4.5)
    assert (figure.low or 0) <= figure.estimate <= (figure.high or 0)
    by_sex = infer(exactly(model), "quantile(age, 0.5) by sex", target="table").figures
    assert [each.name for each in by_sex] == ["sex = Female", "sex = Male"]
    assert by_sex[0].low == women - 4.5
    # A point is itself: 0 of the weight.
    assert infer(exactly(model), "quantile(weight, 0.01)", target="table").figures[0].high == 0.0
    noisy = infer(sklar.fit(frame(300), SCHEMA, epsilon=0.2), "median(age)").figures[0]
    assert (noisy.low or 0) < median < (noisy.high or 99)
    assert (noisy.high or 99) - (noisy.low or 0) > 9
    # A level so high that noise on an empty group reaches it less than once in a hundred million.
    empty = infer(model, "median(age) by region", level=1 - 1e-9)
    assert empty.figures[3].low is None
    assert any("too few rows to tell from noise, so nothing is known: region = Isle" in each for each in empty.cautions)


def test_formulas_have_products_powers_categories_and_families(model: Model) -> None:
    rows = codes(6000)
    age, men, owns = AGES[rows[0]], (rows[1] == 1).astype(float), rows[3].astype(float)
    kept = ~np.isnan(age)
    age, men, owns = age[kept], men[kept], owns[kept]
    one = np.ones(age.size)
    bins = [(age == value).astype(float) for value in AGES[1:4]]

    def least_squares(y: Floats, *columns: Floats) -> Floats:
        return np.asarray(np.linalg.lstsq(np.stack([one, *columns], axis=1), y, rcond=None)[0])

    cases: list[tuple[str, Floats, list[str]]] = [
        ("owns ~ age + age^2", least_squares(owns, age, age**2), ["age", "age^2"]),
        ("ols(owns ~ log(age))", least_squares(owns, np.log(age)), ["log(age)"]),
        ("owns ~ C(age)", least_squares(owns, *bins), [f"age = [{low}, {low + 10})" for low in (30, 40, 50)]),
        ("log(age) ~ sex", least_squares(np.log(age), men), ["sex = Male"]),
    ]
    for question, true, names in cases:
        found = infer(exactly(model), question, scores=SCORES, target="table")
        assert [each.name for each in found.figures] == ["(intercept)", *names]
        assert [each.estimate for each in found.figures] == pytest.approx(true, rel=0.05, abs=2e-4), question
    # Of three columns, of which pairs tell a part.
    crossed = infer(exactly(model), "owns ~ age*sex", scores=SCORES)
    assert [each.name for each in crossed.figures] == ["(intercept)", "age", "sex = Male", "age:sex = Male"]
    assert crossed.statistic == "Linear regression of owns on age, sex, age:sex"
    assert crossed.figures[3].low is None
    assert infer(exactly(model), "owns ~ age + age:sex", scores=SCORES).figures[2].name == "age:sex = Male"
    rates = infer(exactly(model), "poisson(owns ~ sex)", scores=SCORES, target="table").figures
    assert rates[1].estimate == pytest.approx(
        math.log(sums(rows[3] * 1.0, rows[1] == 1) / sums(rows[3] * 1.0, rows[1] == 0)), rel=1e-3
    )
    records = Records(np.stack([one, men], axis=1), 1000 * age, one)
    slopes = solve(records, one / one.size, "Poisson")
    assert slopes == pytest.approx(
        [math.log(1000 * age[men == 0].mean()), math.log(age[men == 1].mean() / age[men == 0].mean())]
    )
    with pytest.raises(QueryError, match="a Poisson regression is of numbers that are not negative"):
        solve(records._replace(y=-records.y), one, "Poisson")


def test_ratios_of_a_regression_are_the_exponentials_of_its_coefficients(model: Model) -> None:
    plain, ratios = (infer(model, f"{asked}owns ~ sex + region") for asked in ("", "ratio of "))
    assert ratios.statistic == "Odds ratios of the logistic regression of the log odds of owns = true on sex, region"
    for one, other in zip(plain.figures, ratios.figures, strict=True):
        ends = [math.exp(each or 0.0) for each in (one.estimate, one.low, one.high)]
        assert [other.estimate, other.low, other.high] == pytest.approx(ends)
        # No dependence is a ratio of one: the same test, of the same coefficient.
        assert (other.p_value, other.measured) == (one.p_value, one.measured)
    assert ratios.joint == plain.joint
    assert infer(model, "ratio of poisson(weight ~ sex)").statistic.startswith("Rate ratios of the Poisson regression")
    # All columns of a term together; a test of one column is the square of its own.
    assert set(plain.joint) == {"region"}
    assert plain.joint["region"].degrees == 2
    assert plain.joint["region"].p_value < 1e-6
    assert any(line.startswith("  region jointly: chi-square ") for line in plain.lines())
    assert json.loads(json.dumps(plain.to_dict()))["joint"]["region"]["degrees"] == 2


def test_an_interval_lies_as_its_statistic_is_curved(model: Model) -> None:
    """Odds are skewed: their interval is that of the share, as Fieller's of a ratio, and not symmetric."""
    small = sklar.fit(frame(800), SCHEMA, epsilon=1.0)
    odds, share = (infer(small, f"{word}(owns = true and sex = 'Female')").figures[0] for word in ("odds", "share"))
    ends = [(each or 0.0) / (1 - (each or 0.0)) for each in (share.low, share.high)]
    assert [odds.low, odds.high] == pytest.approx(ends, rel=0.02)
    assert (odds.high or 0) - odds.estimate > 1.05 * (odds.estimate - (odds.low or 0))


def test_what_has_no_value_is_left_out_and_told(model: Model) -> None:
    found = infer(model, "mean(log(weight))", scores={"weight": "midpoint"})
    assert any("rows in which log(weight) has no value are left out" in each for each in found.cautions)
    assert infer(model, "sum(weight)").target == "table"
    with pytest.raises(QueryError, match="weights must not be negative, and 'age' has levels below zero"):
        infer(model, "sd(weight) weighted by age", scores={"age": dict.fromkeys(SCHEMA.attribute("age").levels, -1.0)})
    with pytest.raises(QueryError, match=r"C\(...\) takes a number by its bins, which have no mean"):
        infer(model, "mean(C(age))")
