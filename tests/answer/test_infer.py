"""Inference from a model: exact linear algebra, questions in words, honest refusals, intervals that hold."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sklar
from sklar.answer.effects import Effects, Floats, NoisyTable, pool_effects, pool_tables
from sklar.answer.infer import infer
from sklar.answer.infer.inquiry import MEASURED, Inquiry
from sklar.answer.infer.inside import Scores, inside_of, score
from sklar.answer.infer.onestep import Reference, applied, grid, noise_covariance, one_step, parts
from sklar.answer.infer.statistics import _WORDS, Records, interaction, reached, solve
from sklar.answer.infer.words import Factor, read_question
from sklar.answer.predicate import QueryError
from sklar.budget.certificate import is_of_schema
from sklar.cli import cli
from sklar.draw.decode import Decoder, Shape
from sklar.files.model import Model
from sklar.fitting.density import rows_inside
from sklar.fitting.latent import independent
from sklar.kernel.queries import Block, Tables
from sklar.kernel.theorems import Budget
from sklar.public.schema import Attribute, Schema
from sklar.rows.encode import encode
from tests.answer import test_query
from tests.conftest import output_of

SCHEMA = Schema(
    name="people",
    attributes=(
        Attribute(name="age", kind="integer", edges=(20, 30, 40, 50, 60), missing="?"),
        Attribute(name="sex", kind="categorical", values=("Female", "Male")),
        Attribute(name="region", kind="categorical", values=("North", "South", "West", "Isle"), other=True),
        Attribute(name="owns", kind="boolean"),
        Attribute(name="weight", kind="real", edges=(0.0, 50.0, 100.0), points=(0.0,), special=(-1,)),
    ),
)


def codes(rows: int) -> Any:
    """Dependent codes; the last region is all but empty, and so is `other`."""
    drawn = test_query.codes(rows, SCHEMA)
    drawn[2] = np.where(drawn[2] >= 3, 0, drawn[2])
    return drawn


def frame(rows: int) -> Any:
    return Decoder(SCHEMA).decode(codes(rows), np.random.default_rng(1))


@pytest.fixture(scope="module")
def model() -> Model:
    return sklar.fit(frame(6000), SCHEMA, epsilon=4.0)


def exactly(model: Model) -> Model:
    """The same model beside tables that are all but exact."""
    queries = [Tables(cells=SCHEMA.cells, order=order) for order in (1, 2)]
    return with_blocks(model, *(block_of(query, 2.0**-10) for query in queries))


def block_of(query: Tables, scale: float) -> Block:
    """Exact counts, stated with a scale."""
    return Block(query=query, scales=np.full(query.sizes.size, scale), values=query.count(codes(6000)))


def with_blocks(model: Model, *blocks: Block) -> Model:
    return replace(model, measured=replace(model.measured, blocks=blocks))


def test_pooled_effects_are_the_best_linear_unbiased_estimates() -> None:
    """Against generalized least squares on all cells of a joint table, whose total is known."""
    generator = np.random.default_rng(2)
    sizes, n = (2, 3, 4), 50
    joint = generator.integers(0, 9, size=sizes).astype(np.float64)
    joint *= n / joint.sum()
    tables, designs, seen, variances = [], [], [], []
    for attributes in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (1, 2)):
        others = tuple(axis for axis in range(3) if axis not in attributes)
        variance = float(generator.uniform(0.5, 4.0))
        noisy = joint.sum(axis=others) + generator.normal(size=[sizes[i] for i in attributes])
        tables.append(NoisyTable(attributes=attributes, counts=noisy, variance=variance))
        unit = np.eye(joint.size).reshape(joint.size, *sizes).sum(axis=tuple(1 + axis for axis in others))
        designs.append(unit.reshape(joint.size, -1).T)
        seen.append(noisy.ravel())
        variances.append(np.full(noisy.size, variance))
    design, weights = np.concatenate(designs), 1 / np.concatenate(variances)
    # The total is known: one observation without noise.
    design, weights = np.vstack([design, np.ones(joint.size)]), np.append(weights, 1e9)
    normal = np.linalg.pinv((design * weights[:, None]).T @ design, rcond=1e-13)
    solved = normal @ (design * weights[:, None]).T @ np.append(np.concatenate(seen), n)

    by_set = pool_tables(tables, (0, 1, 2), n)
    effects = Effects(where=(0, 1, 2), sizes=sizes, by_set=by_set, n_rows=n, n_rows_variance=0.0)
    one, other = (generator.normal(size=size) for size in ((2, 2, 3), (2, 3, 4)))
    functions: dict[tuple[int, ...], Floats] = {(0, 1): one, (1, 2): other}
    flat = (one[:, :, :, None] + other[:, None, :, :]).reshape(2, -1)
    coefficients = parts(functions)
    found = applied(coefficients, by_set)
    constant = sum(each.reshape(2, -1).mean(axis=1) for each in functions.values())
    assert np.allclose(found + constant, flat @ solved / n, atol=1e-6)
    assert np.allclose(noise_covariance(coefficients, effects), flat @ normal @ flat.T / n**2, rtol=1e-5)


def test_the_error_of_a_measured_number_of_rows_moves_all_shares_alike() -> None:
    table = NoisyTable(attributes=(0,), counts=np.array([30.0, 70.0]), variance=4.0)
    by_set = pool_tables([table], (0,), 100)
    effects = Effects(where=(0,), sizes=(2,), by_set=by_set, n_rows=100, n_rows_variance=25.0)
    coefficients = parts({(0,): np.array([[1.0, 0.0]])})
    # 0.5 + (t0 - t1) / 2n: the share's distance from 1/2 is what scales.
    assert noise_covariance(coefficients, effects)[0, 0] == pytest.approx(2 / 100**2 + 0.2**2 * 0.05**2)


def test_exact_tables_give_exact_answers_whatever_the_model_says(model: Model) -> None:
    """A share, a mean and a difference are functions of measured tables: a wrong model does not move them."""
    rows = codes(6000)
    wrong = replace(exactly(model), copula=independent(SCHEMA, np.repeat(1 / SCHEMA.sizes, SCHEMA.sizes)))
    known = rows[0] < 4
    ages = np.array([24.5, 34.5, 44.5, 54.5])[np.minimum(rows[0], 3)]
    for given, where in (("", known), (" where owns = true", known & (rows[3] == 1))):
        found = infer(wrong, f"mean(age){given}", scores={"age": "midpoint"}, target="table").figures[0]
        assert found.estimate == pytest.approx(ages[where].mean(), abs=1e-6)
        assert found.standard_error < 1e-4
    men, women = (np.mean(rows[3][rows[1] == sex]) for sex in (1, 0))
    found = infer(wrong, "difference of share(owns = true) by sex", target="table").figures[0]
    assert found.name == "sex = Male less sex = Female"
    assert found.estimate == pytest.approx(men - women, abs=1e-9)
    shares = infer(wrong, "share(region)", target="table").figures
    assert [figure.estimate for figure in shares] == pytest.approx(np.bincount(rows[2], minlength=5) / 6000)


def test_one_step_takes_a_regression_and_a_correlation_from_the_model_to_the_tables(model: Model) -> None:
    """To second order in what the model gets wrong, whose stated error is one of many fits (six of them: 2e-9)."""
    rows = codes(6000).astype(np.float64)
    ages = np.array([24.5, 34.5, 44.5, 54.5, np.nan])[rows[0].astype(int)]
    kept = ~np.isnan(ages)
    x = np.stack([np.ones(kept.sum()), rows[1][kept], ages[kept]], axis=1)
    true = np.linalg.lstsq(x, rows[3][kept], rcond=None)[0]
    found = infer(exactly(model), "owns ~ sex + age", scores={"age": "midpoint", "owns": {"false": 0, "true": 1}})
    assert found.statistic == "Linear regression of owns on sex, age"
    assert [figure.name for figure in found.figures] == ["(intercept)", "sex = Male", "age"]
    for figure, value in zip(found.figures, true, strict=True):
        assert abs(figure.estimate - value) < 6 * figure.model_error + 0.2 * figure.standard_error + 1e-3
    r = np.corrcoef(ages[kept], rows[1][kept])[0, 1]
    scores: Any = {"age": "midpoint", "sex": {"Female": 0.0, "Male": 1.0}}
    found = infer(exactly(model), "corr(age, sex)", scores=scores)
    assert found.figures[0].estimate == pytest.approx(r, abs=6 * found.figures[0].model_error + 5e-3)


def regressed() -> tuple[Floats, Floats]:
    """Rows, and a design of sex and regions."""
    rows = codes(6000).astype(np.float64)
    return rows, np.stack([np.ones(6000), rows[1], (rows[2] == 1), (rows[2] == 2)], axis=1)


def test_the_sampling_error_is_that_of_statistics_packages(model: Model) -> None:
    """With exact tables what is left is sampling: the robust errors of least squares, of a mean, of a correlation."""
    rows, x = regressed()
    beta = np.linalg.lstsq(x, rows[3], rcond=None)[0]
    left = rows[3] - x @ beta
    inverse = np.linalg.inv(x.T @ x)
    robust = np.sqrt(np.diag(inverse @ ((x * left[:, None] ** 2).T @ x) @ inverse))
    found = infer(exactly(model), "owns ~ sex + region", scores={"owns": {"false": 0, "true": 1}})
    errors = [figure.standard_error for figure in found.figures]
    assert errors == pytest.approx(robust, rel=0.15)
    share = infer(exactly(model), "share(sex = 'Male')").figures[0]
    assert share.standard_error == pytest.approx(math.sqrt(rows[1].mean() * (1 - rows[1].mean()) / 6000), rel=0.05)
    assert share.sampling_error == pytest.approx(share.standard_error, rel=1e-3)
    assert infer(exactly(model), "share(sex = 'Male')", target="table").figures[0].sampling_error is None


def test_a_logistic_regression_finds_what_maximum_likelihood_does(model: Model) -> None:
    rows, x = regressed()
    beta = np.zeros(4)
    for _ in range(30):
        p = 1 / (1 + np.exp(-x @ beta))
        beta += np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x, x.T @ (rows[3] - p))
    found = infer(exactly(model), "owns ~ sex + region")
    assert found.statistic == "Logistic regression of the log odds of owns = true on sex, region"
    for figure, value in zip(found.figures, beta, strict=True):
        assert abs(figure.estimate - value) < figure.standard_error
    assert any("compared with 'North'; too rare for a coefficient of their own: Isle, other" in n for n in found.notes)
    predicate = infer(exactly(model), "region = 'South' ~ sex where owns = true")
    assert predicate.statistic == "Logistic regression of the log odds of region = 'South' on sex where owns = true"
    south, men = rows[2] == 1, rows[1] == 1
    odds = [np.mean(south[(rows[3] == 1) & (men == sex)]) for sex in (False, True)]
    ratio = math.log(odds[1] / (1 - odds[1])) - math.log(odds[0] / (1 - odds[0]))
    # Of three attributes together, so not all of it was measured.
    assert predicate.figures[1].measured < 1
    assert abs(predicate.figures[1].estimate - ratio) < 6 * predicate.figures[1].standard_error


def test_a_group_that_noise_hides_is_said_to_be_unknown(model: Model) -> None:
    # A level so high that noise on an empty group reaches it less than once in a hundred million.
    found = infer(model, "mean(age) by region", level=1 - 1e-9)
    empty = next(figure for figure in found.figures if figure.name == "region = Isle")
    assert empty.low is None
    told = "too few rows to tell from noise, so nothing is known: region = Isle"
    assert any(each.startswith(told) for each in found.cautions)
    assert any("region = Isle" in line and " none " in line for line in found.lines())
    less = infer(model, "difference of mean(age) by region", level=1 - 1e-9).figures
    assert [figure.low is None for figure in less] == [False, False, True, True]


def test_the_interval_of_a_ratio_is_fiellers() -> None:
    """The range over the ellipsoid of two means is the set of t with (n - t d)^2 <= z^2 Var(n - t d); of three, the
    range of a standard deviation over many of its points.
    """
    n, d, (nn, nd, dd), z = 2.0, 1.0, (0.04, 0.01, 0.03), 1.96
    lead, middle = d**2 - z**2 * dd, n * d - z**2 * nd
    root = math.sqrt(middle**2 - lead * (n**2 - z**2 * nn))
    covariance = np.array([[[nn, nd], [nd, dd]]])
    found = reached(_WORDS["mean"], np.array([[n, d]]), covariance, z)
    assert found[0] == pytest.approx([(middle - root) / lead, (middle + root) / lead], rel=1e-4)
    unclear = reached(_WORDS["mean"], np.array([[1.0, 0.1]]), np.array([np.diag([0.01, 0.01])]), z)
    assert unclear[0].tolist() == [-math.inf, math.inf]
    generator = np.random.default_rng(3)
    half = 0.05 * generator.normal(size=(3, 3))
    points = generator.normal(size=(20_000, 3))
    points = np.array([5.0, 1.0, 1.0]) + z * points / np.linalg.norm(points, axis=1)[:, None] @ half.T
    values = _WORDS["sd"].value(points.T)
    found = reached(_WORDS["sd"], np.array([[5.0, 1.0, 1.0]]), (half @ half.T)[None], z)[0]
    assert found == pytest.approx([values.min(), values.max()], rel=1e-3)


def test_a_three_way_share_says_how_little_was_measured_and_adds_the_spread_of_fits(model: Model) -> None:
    pairs = (block for block in model.measured.blocks if getattr(block.query, "order", 0) in (1, 2))
    model = replace(model, measured=replace(model.measured, blocks=tuple(pairs)))
    found = infer(model, "share(age < 30 and sex = 'Male' and owns = true)")
    figure = found.figures[0]
    assert figure.measured < MEASURED
    assert figure.model_error > 0
    assert found.cautions == (
        f"only {100 * figure.measured:.0f}% of this was measured; the rest is what the model makes of it, and nothing "
        "says how wrong that may be. There is no interval, but bounds that the noisy tables leave, or nothing.",
    )
    assert figure.bounds
    assert " (bounds)" in found.lines()[2]
    # Of a difference there are none, and no test.
    less = infer(model, "difference of share(owns = true and age < 30) by sex")
    assert [(each.low, each.high, each.p_value, each.bounds) for each in less.figures] == [(None, None, None, False)]
    assert "none" in less.lines()[2]
    # A model that knows of no such row is not sure that there is none.
    figure = infer(model, "share(region = 'Isle' and sex = 'Male' and owns = true)").figures[0]
    assert figure.measured < MEASURED
    assert figure.standard_error > 0.03 / math.sqrt(6000) / 2


def test_bounds_hold_where_three_columns_have_a_structure_that_no_pair_shows() -> None:
    """With c = a + b mod 3, and pairs alone: shares of cells, and within them, lie within bounds that are not all.

    Each of these six misses less than once in a million releases at this level.
    """
    generator, rows = np.random.default_rng(5), 6000
    a, b = generator.integers(0, 3, (2, rows))
    x = generator.integers(0, 100, rows)
    frame = pl.DataFrame({"a": a, "b": b, "c": (a + b) % 3, "x": x})
    entry = '{ type = "categorical", values = [0, 1, 2] }'
    schema = Schema.from_toml(
        f'[attributes]\na = {entry}\nb = {entry}\nc = {entry}\nx = {{ type = "integer", edges = [0, 25, 50, 75, 100] }}'
    )
    fitted = sklar.fit(frame, schema, epsilon=1.0)
    pairs = [each for each in fitted.measured.blocks if getattr(each.query, "order", 0) in (1, 2)]
    blind = sklar.fit_tables(replace(fitted.measured, blocks=tuple(pairs)))
    for c in range(3):
        for asked, share in ((f"a = '0' and b = '0' and c = '{c}'", 1.0), (f"a = '0' and x >= 50 and c = '{c}'", 0.5)):
            figure = infer(blind, f"share({asked})", target="table", level=1 - 1e-7).figures[0]
            truth = np.mean((a == 0) & ((a + b) % 3 == c) & ((b == 0) if share == 1 else (x >= 50)))
            if figure.measured < MEASURED:
                assert figure.bounds
                assert (figure.low or 0.0) - 1e-12 <= truth <= (figure.high or 0.0) + 1e-12
                assert 0.05 < (figure.high or 1.0) - (figure.low or 0.0) < 0.3


def test_drawn_records_answer_as_listed_ones_do(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    question = "share(age >= 40 and sex = 'Male' and owns = true)"
    listed = infer(model, question).figures[0]
    monkeypatch.setattr("sklar.answer.infer.onestep.MOST_LISTED", 0)
    drawn = infer(model, question).figures[0]
    # 100,000 draws: the standard error of a share is 0.0016 at most; five of them.
    assert drawn.estimate == pytest.approx(listed.estimate, abs=0.008)
    assert drawn.measured == pytest.approx(listed.measured, abs=0.03)
    assert drawn.standard_error == pytest.approx(listed.standard_error, rel=0.5)


def test_three_way_tables_over_coarse_levels_are_used(model: Model) -> None:
    """All but exact ones make a share of coarse levels known; noisy ones add their noise."""
    cells, rows = SCHEMA.cells, codes(6000)
    # Ages below 40, from 40 on, and missing; sexes and owning as they are; one level of the others.
    coarse = np.concatenate([[0, 0, 1, 1, 2], [0, 1], [0] * 5, [0, 1], [0] * 4])
    triples = Tables(cells=cells, order=3, sets=np.array([[0, 1, 3]]), coarse=coarse)
    true = np.mean((coarse[rows[0]] == 1) & (rows[1] == 1) & (rows[3] == 1))
    question, exact = "share(age >= 40 and sex = 'Male' and owns = true)", exactly(model)
    measured = []
    for scale in (2.0**-10, 4.0, 100.0):
        told = with_blocks(exact, *exact.measured.blocks, block_of(triples, scale))
        known = infer(told, question, target="table").figures[0]
        assert known.estimate == pytest.approx(true, abs=3 * known.standard_error + 1e-4)
        # A centered cell of 3 x 2 x 2 holds (1 - 1/3) / 4 of its variance.
        assert known.noise_error < 1.05 * scale / 6000 * math.sqrt(1 / 6) + 1e-6
        measured.append(known.measured)
    assert measured[0] > 0.999
    assert measured[0] > measured[1] - 1e-6 > measured[2]


def test_the_statistic_of_independence_has_its_degrees_of_freedom_on_average() -> None:
    """Under independence, with sampling and noise of like size. The mean of 800 draws of chi-square(6) has a standard
    error of 0.12, so that this fails by chance less than once in a million; a variance taken for 0.8 of what it is
    gives 7.5.
    """
    generator = np.random.default_rng(5)
    p, q, n, sd = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.3, 0.2, 0.1]), 2000, 12.0
    shares = np.outer(p, q).ravel()[None, :]
    reference = Reference(where=(0, 1), sizes=(3, 4), codes=grid((3, 4)), weights=shares, drawn=None)
    drawn = []
    for _ in range(800):
        exact = generator.multinomial(n, np.outer(p, q).ravel()).reshape(3, 4)
        sums = {(0,): exact.sum(axis=1), (1,): exact.sum(axis=0), (0, 1): exact}
        tables = [
            NoisyTable(attributes=where, counts=counts + sd * generator.normal(size=counts.shape), variance=sd**2)
            for where, counts in sums.items()
        ]
        by_set = pool_tables(tables, (0, 1), n)
        effects = Effects(where=(0, 1), sizes=(3, 4), by_set=by_set, n_rows=n, n_rows_variance=0.0)
        step = one_step(effects, reference, *interaction(reference, (0, 1), lambda codes: np.ones(len(codes))))
        d, covariance = step.values, step.covariance(population=True)
        drawn.append(float(d @ np.linalg.solve(covariance, d)))
    assert np.mean(drawn) == pytest.approx(6.0, abs=0.65)


def test_dependence_is_found_and_told(model: Model) -> None:
    found = infer(model, "independent(sex, age)")
    assert found.test is not None
    assert (found.test.p_value < 1e-6, found.test.degrees) == (True, 4)
    assert found.lines()[2] == "  independence is rejected at the level 0.05"
    pairs = with_blocks(model, *(each for each in model.measured.blocks if getattr(each.query, "order", 0) in (1, 2)))
    some = infer(pairs, "independent(sex, age) where owns = true")
    # Of three columns pairs tell too little: there is no verdict.
    assert some.test is None
    assert any("of what is tested was measured" in each and "There is no test" in each for each in some.cautions)
    assert "  CAUTION: " in repr(some)
    assert some.to_columns() == {}
    assert found.to_polars().columns == ["name", "statistic", "degrees", "p_value"]


def test_a_bin_that_noise_filled_has_the_score_of_the_bin_that_it_is_drawn_from() -> None:
    attribute = Attribute(name="x", kind="integer", edges=(0, 10, 1000, 10**6))
    known: dict[str, Any] = {"means": np.full(3, 5.0), "errors": np.zeros(3)}
    shape = Shape(bins=np.array([0, 0, 0]), heights=np.arange(2.0), places=np.array([0.0, 10.0]), **known)
    assert scored(attribute, shape).values.tolist() == [4.5] * 3


def scored(attribute: Attribute, shape: Shape | None, said: Any = None) -> Scores:
    return score(attribute, said, lambda: inside_of(attribute, attribute, np.arange(attribute.n_levels), shape))


@pytest.fixture(scope="module")
def searched() -> Model:
    """A number whose bounds lie far beyond its rows: a search sees none there."""
    schema = Schema.from_toml(
        '[attributes]\ncost = { type = "integer", domain = "private", low = 0, high = 1_000_000, bins = 12 }\n'
        'sex = { type = "categorical", values = ["f", "m"] }'
    )
    costs = np.random.default_rng(1).gamma(2, 300, 8000).astype(np.int64)
    return sklar.fit(pl.DataFrame({"cost": costs, "sex": ["f", "m"] * 4000}), schema, epsilon=2.0)


def test_the_mean_of_a_searched_number_is_limited_to_what_was_seen_and_says_so(searched: Model) -> None:
    found, attribute = infer(searched, "mean(cost) by sex"), searched.schema.attribute("cost")
    ends = [*np.concatenate(searched.shapes["cost"].ends).tolist(), *attribute.points]
    limits = f"[{int(min(ends))}, {int(max(ends))}]"
    assert found.statistic == f"Mean of cost limited to {limits} by sex"
    assert found.to_dict()["limits"] == {"cost": limits}
    caution = f"'cost' is limited to {limits}, where the search saw rows: what lies beyond, if anything, counts"
    assert any(each.startswith(caution) for each in found.cautions)
    assert repr(found).count("limited to") == 2
    # Scores that the caller declares are about nothing else.
    assert infer(searched, "mean(cost)", scores={"cost": "midpoint"}).limits == {}


def test_where_numbers_lie_inside_their_bins_is_part_of_the_error_of_a_mean(model: Model, searched: Model) -> None:
    attribute = Attribute(name="x", kind="real", edges=(0.0, 10.0, 30.0))
    known: dict[str, Any] = {"means": np.array([4.0, 15.0]), "errors": np.array([1.0, 2.0])}
    shape = Shape(bins=np.arange(2), heights=np.arange(3.0), places=np.array([0.0, 10.0, 30.0]), **known)
    found = scored(attribute, shape)
    inside = found.inside
    assert inside is not None
    assert (inside.errors.tolist(), inside.widths.tolist(), found.values.tolist()) == ([1, 2], [10, 20], [4, 15])
    assert inside.hidden == pytest.approx(np.array([100, 400]) / 12, rel=0.01)
    assert (inside.masses * inside.points).sum(axis=1) == pytest.approx([4, 15])
    for asked, name in ((model, "age"), (searched, "cost")):
        shaped, declared = (
            infer(asked, f"mean({name})", scores=said).figures[0] for said in (None, {name: "midpoint"})
        )
        assert shaped.model_error > declared.model_error
    # What is left of the 0.15 of each width that is unknown without a look inside, by the noise on first moments.
    attribute, noise = model.schema.attribute("age"), rows_inside(model.measured)[model.schema.names.index("age")][1]
    expected = noise / model.n_rows * np.sqrt(np.sum(np.diff(attribute.edges) ** 2.0))
    assert infer(model, "mean(age)").figures[0].model_error == pytest.approx(float(expected), rel=0.3)
    blind = replace(model, measured=replace(model.measured, blocks=model.measured.blocks[:2]))
    assert infer(blind, "mean(age)").figures[0].model_error == pytest.approx(0.67, abs=0.15)
    # A tail: its mean may lie anywhere, as a uniform number does.
    ends = replace(SCHEMA.attribute("weight"), edges=(0.0, 10.0, 20.0, 100.0), points=(), special=())
    rows = pl.DataFrame({"weight": np.random.default_rng(3).gamma(2.0, 10.0, 2000).clip(0, 99), "owns": [True] * 2000})
    tailed = sklar.fit(rows, Schema(name="t", attributes=(ends, SCHEMA.attribute("owns"))), epsilon=4.0)
    tailed = replace(tailed, measured=replace(tailed.measured, blocks=tailed.measured.blocks[:2]))
    assert tailed.shapes["weight"].errors == pytest.approx([1.5, 1.5, 80 / math.sqrt(12)])


def test_a_count_beyond_what_a_search_saw_is_no_certain_zero(searched: Model) -> None:
    """At most what the noise of the search's tables leaves, in every interface."""
    found = searched.query("cost > 500000")
    assert found.beyond_most is not None
    assert found.high is not None
    assert found.standard_error is not None
    assert 20 < found.beyond_most < 2000
    assert found.high >= found.beyond_most
    assert found.bounds
    assert "CAUTION: beyond 'cost' [" in "\n".join(found.lines())
    share = infer(searched, "share(cost > 500000)", target="table")
    assert 8000 * (share.figures[0].high or 0.0) == pytest.approx(found.high)
    assert share.cautions == found.cautions
    inside = searched.query("cost > 300")
    assert inside.beyond_most is None
    # Where a file did not keep the search's answers, all rows may lie there.
    lost = with_blocks(searched, *(block for block in searched.measured.blocks if is_of_schema(block)))
    assert (lost.query("cost > 500000").high or 0.0) > 0


@pytest.fixture(scope="module")
def heaped() -> tuple[pl.DataFrame, Model]:
    """A real of which seven in ten are exactly 0, which no bin tells, and whether it is large, mostly right."""
    generator, rows = np.random.default_rng(1), 8000
    x = np.where(generator.random(rows) < 0.7, 0.0, generator.gamma(2, 20, rows).clip(0, 199))
    sure = np.where(generator.random(rows) < 0.95, x >= 50, x < 50)
    frame = pl.DataFrame({"x": x, "f": generator.random(rows) < 0.5, "sure": sure, "k": generator.integers(0, 4, rows)})
    schema = Schema.from_toml(
        """
        [attributes]
        x = {type = "real", edges = [0, 20, 50, 200]}
        f = {type = "boolean"}
        sure = {type = "boolean"}
        k = {type = "integer", edges = [0, 1, 2, 3, 4]}
        """
    )
    return frame, sklar.fit(frame, schema, epsilon=4.0)


def test_a_border_inside_a_bin_has_bounds_that_hold_whatever_heaps_there_are(
    heaped: tuple[pl.DataFrame, Model],
) -> None:
    """Bins of reals include their lower edges, and the last its upper one. Noise adds little at a level of 1 - 1e-9."""
    frame, model = heaped
    x, f = frame["x"].to_numpy(), frame["f"].to_numpy()
    cases = {
        "share(x > 0)": np.mean(x > 0),
        "share(x <= 20)": np.mean(x <= 20),
        "share(x < 200)": 1.0,
        "mean(x) where x > 0": x[x > 0].mean(),
        "share(f = true) where x > 0": f[x > 0].mean(),
        "odds(x > 25)": np.mean(x > 25) / np.mean(x <= 25),
        "median(x) where x > 25": np.median(x[x > 25]),
    }
    for question, true in cases.items():
        figure = infer(model, question, target="table", level=1 - 1e-9).figures[0]
        assert figure.bounds, question
        assert (figure.low or 0.0) <= true <= (figure.high or 0.0), question
    assert infer(model, "x > 25 ~ f").figures[1].bounds
    assert not infer(model, "share(x >= 20)").figures[0].bounds
    with pytest.raises(QueryError, match=r"only whole bins were measured. Ask x >= 0\.0 or x >= 20\.0"):
        infer(model, "independent(f, sure) where x > 0")


def test_numbers_of_one_step_are_themselves_whatever_was_measured_inside_bins(
    heaped: tuple[pl.DataFrame, Model],
) -> None:
    assert scored(SCHEMA.attribute("age"), None).inside is not None
    found = Inquiry(heaped[1], "mean(k)").scores(3)
    assert (found.values.tolist(), found.by, found.inside) == ([0.0, 1.0, 2.0, 3.0], "the numbers themselves", None)
    one = Attribute(name="x", kind="integer", edges=(0, 1, 10))
    known: dict[str, Any] = {"means": np.array([0.9, 4.0]), "errors": np.array([0.5, 1.0])}
    inside = inside_of(
        one,
        one,
        np.arange(2),
        Shape(bins=np.arange(2), heights=np.arange(3.0), places=np.array([0.0, 1.0, 10.0]), **known),
    )
    assert (inside.means.tolist(), inside.errors.tolist()) == ([0.0, 3.5], [0.0, 1.0])


def test_a_regression_is_solved_around_its_own_outcome_or_refused(
    heaped: tuple[pl.DataFrame, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outcome that is mostly decided: one step from a model that knows of no dependence would be short by many."""
    frame, model = heaped
    margins = [np.bincount(own) / 8000 for own in encode(frame, model.schema)]
    wrong = replace(model, copula=independent(model.measured_schema, np.concatenate(margins)))
    scores: Any = {"x": "midpoint"}
    means = np.array([10.0, 35.0, 125.0])[np.searchsorted([20, 50], frame["x"].to_numpy(), side="right")]
    line = np.polyfit(means, frame["k"].to_numpy(), 1)[0]
    figure = infer(wrong, "k ~ x", scores=scores, target="table").figures[1]
    assert abs(figure.estimate - line) < 6 * figure.standard_error
    beta, x = np.zeros(2), np.column_stack([np.ones(8000), means])
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ beta))
        beta += np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x, x.T @ (frame["sure"].to_numpy() - p))
    for each in (model, wrong):
        figure = infer(each, "sure ~ x", scores=scores, target="table").figures[1]
        assert abs(figure.estimate - beta[1]) < 6 * figure.standard_error < 2 * beta[1]
    monkeypatch.setattr("sklar.answer.infer.statistics._REPEATED", 1)
    with pytest.raises(QueryError, match="no coefficients agree with what the noisy tables say"):
        infer(wrong, "sure ~ x", scores=scores)


def test_scores_are_shapes_midpoints_numbers_or_what_the_caller_declares(model: Model) -> None:
    age, weight = (SCHEMA.attribute(name) for name in ("age", "weight"))
    ranks = Attribute(name="rank", kind="categorical", values=(1, 2, 9), missing="")
    years = Attribute(name="year", kind="integer", edges=(1, 2, 3))
    days = Attribute(name="day", kind="datetime", edges=(0, 2_000_000))
    for attribute, said, values, by in (
        (age, "midpoint", [24.5, 34.5, 44.5, 54.5, np.nan], "midpoints of bins"),
        # The point 0 is itself, and the special value no number.
        (weight, "midpoint", [0.0, 25.0, 75.0, np.nan], "midpoints of bins"),
        (ranks, None, [1.0, 2.0, 9.0, np.nan], "the numbers themselves"),
        (years, "midpoint", [1.0, 2.0], "the numbers themselves"),
        (days, "midpoint", [0.5], "midpoints of bins, in seconds since 1970-01-01"),
    ):
        found = scored(attribute, None, said)
        assert np.array_equal(found.values, values, equal_nan=True)
        assert found.by == by
    shaped = scored(age, model.shapes["age"])
    assert shaped.by == "means of the fitted shape inside bins"
    assert all(low <= value < low + 10 for low, value in zip((20, 30, 40, 50), shaped.values, strict=False))
    notes = infer(model, "mean(weight)").notes
    assert "'weight' is known by its levels; their scores are means of the fitted shape inside bins" in notes
    assert "rows in which 'weight' is no number (missing, special) are left out" in notes


REFUSED = {
    "mode(age)": "'mode' begins no question that can be answered. Ask mean(x), median(x), share(x = 'a'), corr(x, y)",
    "quantile(age)": "',' is expected before the part of rows that lies below, such as quantile(x, 0.9), got ')'.",
    "quantile(age, 90)": "a quantile is of a part between 0 and 1, got '90'. Write quantile(x, 0.9).",
    "median(log(age))": "a quantile is of a number as it is, got log(age). Name it alone.",
    "median(age) / mean(age)": "a quantile is known up to a bin, and is not compared. Ask for it alone, or by groups.",
    "mean(__import__(age))": "'__import__' is no function that questions know. They are log, sqrt and C.",
    "age ~ weight^9": "a power is 2 or 3, got '9'. Write x^2.",
    "age ~ sex*": "an attribute is expected, got the end.",
    "age ~ sex - owns": "'-' is not expected here: a formula lists names with +, : or * between them, or 'where' a",
    "mean(age) weighted sex": "'by' is expected after 'weighted', got 'sex'.",
    "mean(age) weighted by sex": "attribute 'sex' holds categories, which have no mean.",
    "mean(log(sex))": "attribute 'sex' holds categories, which have no mean.",
    "age ~ log(sex)": "attribute 'sex' holds categories, which have no mean.",
    "logit(age ~ sex)": "a logistic regression is of a yes or no, and 'age' is a number. Use ols.",
    "ols(sex ~ age)": "an outcome must be a number or have two values, and 'sex' has 2.",
    "ratio of age ~ sex": "a linear regression has no ratios, only logistic and Poisson ones. Remove 'ratio of'.",
    "mean age": "'(' is expected to begin what is asked about, got 'age'.",
    "mean(age": "')' is expected to close '(', got the end.",
    "mean(age, sex)": "mean takes 1 name, got 2.",
    "corr(age)": "corr takes 2 names, got 1.",
    "corr(age, age)": "corr takes two different attributes, got 'age' twice. Name another.",
    "mean(agee)": "the schema has no attribute 'agee'. Did you mean 'age'?",
    "mean('age')": "an attribute is expected, got 'age'.",
    "mean(age) by": "an attribute is expected, got the end.",
    "mean(age) by sex, sex": "groups are by different attributes, got one twice. Remove one.",
    "mean(age) of sex": "'of' is not expected here: a question ends with 'by' names, or 'where' a predicate.",
    "difference mean(age)": "'of' is expected after 'difference', got 'mean'.",
    "difference of mean(age)": "a difference is between groups of a measure. Write difference of mean(x) by z.",
    "independent(age, sex) by owns": "a test of independence has no groups and no weights. Ask for some rows",
    "independent(age, sex) weighted by weight": "a test of independence has no groups and no weights. Ask for some",
    "age ~ sex by owns": "a formula has no groups. Ask for some rows with where.",
    "age ~ sex*owns*region*weight*age": "at most 4 terms are crossed, got 5. Write x:z for a product.",
    "mean(region)": "attribute 'region' holds categories, which have no mean. Ask for a share, such as "
    "share(region = 'North'), or declare scores.",
    "age ~ sex ~ owns": "a formula has one '~', got more. Write outcome ~ name + name.",
    "~ sex": "an outcome is expected before '~', got nothing.",
    "age ~": "an attribute is expected, got the end.",
    "age ~ sex sex": "'sex' is not expected here: a formula lists names with +, : or * between them, or 'where' a",
    "age ~ sex + sex": "a formula names each term once, got 'sex' twice. Remove one.",
    "age ~ age": "the outcome is decided by 'age' or decides it. Leave that name out.",
    "region = 'North' ~ region": "the outcome is decided by 'region' or decides it. Leave that name out.",
    "region ~ sex": "an outcome must be a number or have two values, and 'region' has 4.",
    "owns = true and sex = 'Male' ~ age": "an outcome is a predicate about one attribute, got one of 2.",
    "share(income = 1)": "the schema has no attribute 'income'.",
}
SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"level": 1.0}, "the confidence level must lie strictly between 0 and 1, got 1.0. Try 0.95."),
    ({"target": "population"}, "a sum is of the rows of a table. Ask about the target 'table', or for a mean."),
    ({"target": "sample"}, "the target must be 'population' or 'table', got 'sample'."),
    ({"scores": {"ag": "midpoint"}}, "scores are given for 'ag', which is no attribute of the schema."),
    ({"scores": {"age": "median"}}, "scores of 'age' must be 'midpoint' or a number for each level, got 'median'."),
    ({"scores": {"age": {"x": 1.0}}}, "attribute 'age' has no level 'x', got a score for it."),
]


def test_what_cannot_be_answered_is_told_why(model: Model) -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [(question, {}, message) for question, message in REFUSED.items()]
    for question, settings, message in cases + [("sum(age)", *each) for each in SETTINGS]:
        with pytest.raises(QueryError) as refused:
            infer(model, question, **settings)
        assert str(refused.value).startswith(message)


def test_names_with_signs_and_blanks_are_read() -> None:
    odd = {"age": "a+b", "sex": "x ~ y", "owns": "is it?"}
    attributes = tuple(replace(each, name=odd.get(each.name, each.name)) for each in SCHEMA.attributes)
    schema = replace(SCHEMA, attributes=attributes)
    formula, mean = (read_question(text, schema) for text in ('"is it?" ~ "x ~ y" + a+b', 'mean(a+b) by "x ~ y"'))
    sex, age = Factor("", 1), Factor("", 0)
    assert (formula.measures[0].products, formula.terms) == (((Factor("", 3),),), ((sex,), (age,)))
    assert (mean.measures[0].products, mean.by) == (((age,),), (1,))
    assert read_question("owns~sex+age", SCHEMA).terms == ((sex,), (age,))


def test_too_many_groups_and_too_many_contrasts_are_refused(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most, question, message in (
        ("_MOST_FIGURES", 9, "mean(age) by region, sex", "at most 9 figures are given at once, got 10. Ask"),
        ("_MOST_CONTRASTS", 3, "independent(age, sex)", "compares at most 3 contrasts, got 4. Use"),
        ("_MOST_NUMBERS", 1, "mean(age)", "too many groups of too many levels at once. Ask about fewer of them"),
    ):
        monkeypatch.setattr(f"sklar.answer.infer.statistics.{name}", most)
        with pytest.raises(QueryError, match=message):
            infer(model, question)


def test_a_regression_is_refused_where_noise_hides_how_regressors_vary(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    remedy = "Name fewer regressors, or use a release with a larger epsilon."
    monkeypatch.setattr("sklar.answer.infer.statistics.CLEAR", 1e6)
    with pytest.raises(
        QueryError, match=f"moment matrix must be at least 1e.06 of its standard errors, got .* {remedy}"
    ):
        infer(model, "owns ~ age + weight")
    monkeypatch.setattr("sklar.answer.infer.statistics.CLEAR_LEVEL", 1e6)
    with pytest.raises(QueryError, match=r"two categories with far more rows than noise. Leave it out."):
        infer(model, "owns ~ region")


def test_what_the_model_leaves_no_room_for_is_told(model: Model) -> None:
    ones, weights, split = np.ones(4), np.full(4, 0.25), np.array([0.0, 0.0, 1.0, 1.0])
    tied, apart = (Records(np.stack(x, axis=1), split, ones) for x in ([ones, split, 2 * split], [ones, split]))
    with np.errstate(invalid="ignore"):
        assert np.isnan(_WORDS["corr"].value(np.ones((6, 1)))).all()
    single = with_blocks(model, exactly(model).measured.blocks[0])
    cases: dict[str, Callable[[], Any]] = {
        "the regressors must not determine one another": lambda: solve(tied, weights, "linear"),
        "an outcome that the regressors leave open": lambda: solve(apart, weights, "logistic"),
        "a regression needs two-way tables, and the model holds none": lambda: infer(single, "owns ~ sex"),
        "the model holds no two-way tables, so independence": lambda: infer(single, "independent(age, sex)"),
    }
    for message, call in cases.items():
        with pytest.raises(QueryError, match=message):
            call()
    assert infer(single, "mean(age) by sex").figures[0].measured < MEASURED


def test_a_measured_number_of_rows_is_part_of_the_error() -> None:
    model = sklar.fit(frame(1500), SCHEMA, Budget(epsilon=2.0, neighbors="add-remove"))
    found = infer(model, "mean(age) by sex", target="table")
    assert abs(found.n_rows - 1500) < 200
    assert pool_effects(model.measured, (0,)).n_rows_variance > 0
    assert not any("taken to have a level" in note for note in found.notes)


def certified(model: Model, **changes: Any) -> Model:
    return replace(model, measured=replace(model.measured, certificate=replace(model.certificate, **changes)))


def test_what_the_release_did_is_told(model: Model) -> None:
    many = certified(model, count="rows", rows_per_person=3)
    found = infer(many, "mean(age)")
    assert found.target == "table"
    assert "counted are rows, at most 3 of each person" in found.notes
    noise, inside = "intervals cover the release's noise", "where numbers lie inside their bins"
    assert f"{noise} and the choice of rows of people and {inside}" in found.notes
    assert f"{noise} and sampling and {inside}" in infer(model, "mean(age)").notes
    assert f"{noise} and sampling and {inside}" in infer(model, "owns ~ age").notes
    assert f"{noise} and sampling" in infer(model, "mean(age)", scores={"age": "midpoint"}).notes
    with pytest.raises(QueryError, match=r"this release counts several rows of each person. Ask about the target"):
        infer(many, "mean(age)", target="population")
    assert infer(certified(many, count="people"), "mean(age)").target == "population"
    notes = infer(certified(model, mechanism="laplace"), "mean(age)").notes
    assert "intervals take Laplace noise for normal, which sums of many cells are" in notes
    lost = infer(certified(exactly(model), public_rows=7000), "mean(age)").cautions
    assert any("do not add up to the number of rows" in caution for caution in lost)


def test_rules_are_honored() -> None:
    """A determined attribute is answered by the one that determines it; forbidden cells hold no row of the model."""
    document, levels = SCHEMA.to_dict(), SCHEMA.attribute("region").levels
    document["attributes"]["coast"] = {"type": "categorical", "values": ["no", "yes"]}
    mapped = {level: "no" if level == "North" else "yes" for level in levels}
    document["rules"] = [
        {"attribute": "coast", "determined_by": "region", "map": mapped},
        {"forbid": {"sex": "Male", "region": "West"}},
    ]
    schema = Schema.from_dict(document)
    rows = codes(4000)
    rows[1][rows[2] == 2] = 0
    rows = np.vstack([rows, (rows[2] > 0)[None, :]])
    model = sklar.fit(Decoder(schema).decode(rows, np.random.default_rng(1)), schema, epsilon=4.0)
    found = infer(model, "share(coast = 'yes') by sex", target="table").figures
    for figure, sex in zip(found, (0, 1), strict=True):
        assert abs(figure.estimate - np.mean(rows[5][rows[1] == sex])) < 6 * figure.standard_error
    assert infer(model, "share(sex = 'Male' and region = 'West' and owns = true)").figures[0].estimate < 0.02
    fitted = infer(model, "owns ~ coast + sex")
    assert fitted.figures[1].name == "coast = yes"
    told = infer(model, "independent(coast, sex)")
    assert "'coast' was not measured; tested is 'region', which determines it" in told.notes
    with pytest.raises(QueryError, match="must be measured apart, and a rule determines one by the other"):
        infer(model, "independent(coast, region)")


@pytest.mark.parametrize("dummies", [False, True])
def test_the_papers_copula_is_refused_with_a_remedy(model: Model, dummies: bool) -> None:
    binary = sklar.fit_tables(model.measured, method=sklar.Method(name="binary", dummies=dummies))
    with pytest.raises(QueryError, match=r"the paper's copula over dummies\. Fit another to the same noisy tables"):
        infer(binary, "mean(age)")


def test_an_answer_is_told_in_lines_json_and_tables(model: Model, tmp_path: Path) -> None:
    found = model.infer("mean(age) by sex", level=0.9)
    lines = found.lines()
    assert lines[0] == "Mean of age by sex, of the population that the table came from (6,000 rows):"
    assert "90% interval" in lines[1]
    assert lines[2].startswith("  sex = Female")
    assert "  note: every row is taken to have a level of every attribute" in lines
    assert repr(found) == "\n".join(lines)
    assert json.loads(json.dumps(found.to_dict()))["figures"][1]["name"] == "sex = Male"
    assert found.to_polars().height == len(found.to_pandas()) == 2
    model.save(tmp_path / "m.sklar")
    shown = output_of(cli, "infer", tmp_path / "m.sklar", "mean(age)", "--midpoints", "--target", "table")
    assert shown.startswith("Mean of age, of the table itself (6,000 rows):")
    assert "their scores are midpoints of bins" in shown
    wide = infer(sklar.fit(frame(800), SCHEMA, epsilon=1.0), "mean(weight) by sex")
    assert any("times as wide as the rows themselves would" in note for note in wide.notes)
    assert sklar.Synthesizer(SCHEMA, epsilon=4.0).fit(frame(300)).infer("mean(age)").figures


def test_bins_that_noise_made_far_away_move_no_statistic_beyond_the_numbers_that_are_drawn() -> None:
    shape = Shape(bins=np.array([0, 1, 1]), heights=np.array([0.0, 1, 2]), places=np.array([0.0, 10, 20]))
    far = Attribute(name="far", kind="real", edges=(0.0, 10.0, 9e8, 1e9), domain="found")
    inside = inside_of(far, far, np.arange(3), shape)
    assert inside.lows.min(axis=1).tolist() == [0, 10, 10]
    assert inside.highs.max(axis=1).tolist() == [10, 20, 20]
    assert ((inside.lows.min(axis=1) <= inside.means) & (inside.means <= inside.highs.max(axis=1))).all()
